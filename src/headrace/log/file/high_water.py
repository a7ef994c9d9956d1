"""The high-water mark: the last synced commit, in a file beside the catalog.

It detects an incomplete copy. SQLite keeps its newest transactions in `catalog.db-wal`. A folder
that was copied without that file has an older catalog, which is consistent by itself.

The file is written after each synced commit and never synced itself. So it may be too low, but
never too high: its commit was on the device before.
"""

from __future__ import annotations

import contextlib
import zlib
from pathlib import Path

from headrace.errors import LogError
from headrace.log.file.disk import Disk

NAME = "high-water"


def note_commit(folder: Path, disk: Disk, number: int) -> None:
    """Note that a commit is on the device. A failure to do so does not fail the commit."""
    path = folder / NAME
    with contextlib.suppress(LogError, OSError):
        if not path.exists():
            disk.create(path)
        disk.write(path, [_line(number)], 0)


def noted_commit(folder: Path) -> int:
    """The noted commit; 0 if the file is missing or cut short."""
    try:
        line = (folder / NAME).read_bytes()
    except OSError:
        return 0
    number = line[:20]
    return int(number) if number.isdigit() and line == _line(int(number)) else 0


def _line(number: int) -> bytes:
    text = b"%020d" % number
    return b"%b %08x\n" % (text, zlib.crc32(text))
