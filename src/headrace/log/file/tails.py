"""Tails: the last bytes of segments, in the catalog as well, so that a small commit syncs one file.

A file that grows is slow to sync, and a commit often writes to several. So a synced commit copies
the few bytes that are not on the device into the catalog, whose own sync it needs anyway. They are
on the device then, and count as synced. After a power cut they are written to the segments again.
Once there are many, the segments themselves are synced, and the copies are deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw

from headrace.log.file.catalog import many, one
from headrace.log.file.disk import Disk

TAIL_BYTES = 16 << 10
"""The most that is copied for a segment. Above that its own sync is cheaper."""

TAILS = 512
"""Copies in the catalog before the segments are synced."""


def keep_tail(
    db: apsw.Connection, disk: Disk, segment: int, path: Path, start: int, end: int
) -> None:
    """Copy a range of a segment into the catalog."""
    buffer = bytearray(end - start)
    view, done = memoryview(buffer), 0
    with disk.reading(path) as read_into:
        while done < len(buffer) and (size := read_into(view[done:], start + done)):
            done += size
    db.execute(
        "INSERT INTO tail (segment, position, bytes) VALUES (?, ?, ?)",
        (segment, start, bytes(view[:done])),
    )


def too_many_tails(db: apsw.Connection) -> bool:
    """True if it is time to sync the segments."""
    found = one(db, "SELECT max(id) - min(id) FROM tail")
    return found is not None and found[0] is not None and found[0] + 1 >= TAILS


def segments_with_tails(db: apsw.Connection) -> Iterator[tuple[int, int, int]]:
    """The segments whose last bytes may only be in the catalog: id, topic and partition."""
    for row in many(
        db,
        "SELECT id, topic, partition FROM segment WHERE location IS NULL "
        "AND id IN (SELECT segment FROM tail)",
    ):
        yield row[0], row[1], row[2]


def write_tails(db: apsw.Connection, disk: Disk, segment: int, path: Path) -> None:
    """Write the copied bytes of a segment to its file, if it is there.

    A missing file is damage, which readers report.
    """
    if not path.exists():
        return
    for position, data in many(
        db, "SELECT position, bytes FROM tail WHERE segment = ? ORDER BY id", segment
    ):
        disk.write(path, [data], position)
