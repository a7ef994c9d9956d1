"""The last synced commit, noted beside the catalog, to notice one that is older than the rest.

SQLite keeps its newest transactions in `catalog.db-wal`. A folder that is copied without that file
has a catalog of some earlier moment, which is sound by itself and silent about what it lacks.

The note is written after each synced commit and never synced itself. So it may be too low, and
never too high: whatever it names was on the device before.
"""

from __future__ import annotations

import contextlib
import zlib
from pathlib import Path

from headrace.errors import LogError
from headrace.log.file.disk import Disk

NAME = "high-water"


def note_commit(folder: Path, disk: Disk, number: int) -> None:
    """Note that a commit is on the device. What was committed does not fail because of it."""
    path = folder / NAME
    with contextlib.suppress(LogError, OSError):
        if not path.exists():
            disk.create(path)
        disk.write(path, [_line(number)], 0)


def noted_commit(folder: Path) -> int:
    """The commit that was noted; 0 where there is no note, or one that was cut short."""
    try:
        line = (folder / NAME).read_bytes()
    except OSError:
        return 0
    number = line[:20]
    return int(number) if number.isdigit() and line == _line(int(number)) else 0


def _line(number: int) -> bytes:
    text = b"%020d" % number
    return b"%b %08x\n" % (text, zlib.crc32(text))
