"""Checksums in the catalog: each page of the database has one, checked whenever it is read.

SQLite's own VFS for that keeps them in eight bytes at the end of every page. apsw brings it along
in its wheels; where it is missing, catalogs are made without.
"""

from __future__ import annotations

from functools import cache

import apsw
import apsw.sqlite_extra

_RESERVED = 8
"""The bytes at the end of a page that make the VFS keep a checksum there."""


@cache
def checked_vfs() -> str | None:
    """The name of the VFS; None where there is none."""
    if apsw.sqlite_extra.has("cksumvfs") != "extension":
        return None
    usual = apsw.vfs_names()[0]
    connection = apsw.Connection(":memory:")
    try:
        apsw.sqlite_extra.load(connection, "cksumvfs")
    finally:
        connection.close()
    # It makes itself the one of all databases, of which not all are ours.
    apsw.set_default_vfs(usual)
    return "cksmvfs"


def ask_for(connection: apsw.Connection) -> None:
    """Let a database have checksums that has no pages yet, or from its next VACUUM on."""
    connection.reserve_bytes("main", _RESERVED)


def has_checksums(connection: apsw.Connection) -> bool:
    """True if the pages of a database have checksums."""
    return connection.reserve_bytes("main") == _RESERVED
