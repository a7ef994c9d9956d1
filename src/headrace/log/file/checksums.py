"""Page checksums of the catalog, verified at every read.

SQLite's checksum VFS keeps one in the last eight bytes of every page. apsw's wheels include it;
where it is missing, catalogs are created without checksums.
"""

from __future__ import annotations

from functools import cache

import apsw
import apsw.sqlite_extra

_RESERVED = 8
"""Reserved bytes per page; with exactly these, the VFS keeps a checksum there."""


@cache
def checked_vfs() -> str | None:
    """The name of the checksum VFS; None where it is not available."""
    if apsw.sqlite_extra.has("cksumvfs") != "extension":
        return None
    usual = apsw.vfs_names()[0]
    connection = apsw.Connection(":memory:")
    try:
        apsw.sqlite_extra.load(connection, "cksumvfs")
    finally:
        connection.close()
    # It has made itself the default, but not all databases of this process are ours.
    apsw.set_default_vfs(usual)
    return "cksmvfs"


def enable_checksums(connection: apsw.Connection) -> None:
    """Enable checksums: at once in a database without pages, else from the next VACUUM on."""
    connection.reserve_bytes("main", _RESERVED)


def has_checksums(connection: apsw.Connection) -> bool:
    """True if the pages of a database have checksums."""
    return connection.reserve_bytes("main") == _RESERVED
