"""A copy of a log as it is in one moment, while everybody goes on using it.

The moment is when nobody writes: the write locks of the catalog and of the databases `beside` it
are held together while a read transaction is begun on each, which takes milliseconds. What those
see afterwards belongs together: the outputs that an application has sent, and its note of them.

Segments only grow, so their bytes up to the length that the catalog has at that moment are those of
that moment. One that compaction, retention or tiering took away meanwhile makes the copy begin
again with a new moment, and with what it has.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import apsw

from headrace.errors import CorruptSegment, LogBusy
from headrace.log.file.catalog import FILE_NAME, failures, many, one
from headrace.log.file.checksums import checked_vfs
from headrace.log.file.disk import Disk
from headrace.log.file.segment import (
    SEGMENTS,
    LocalSegment,
    SegmentFile,
    TieredSegment,
    segment_path,
)
from headrace.log.state import Tell
from headrace.sqlite import Link, connect

_ATTEMPTS = 20
_PATIENCE = 30.0
_PIECE_BYTES = 1 << 20


def copy_log(
    folder: Path, target: Path, *, beside: Mapping[Path, Path], then: Callable[[], None], tell: Tell
) -> int:
    """Copy a log and other databases, each to its place; returns the last commit.

    `then` is called when the databases `beside` are copied, while the moment is near. Segments that
    were tiered are copied too, and are local in the copy: it needs nothing that lies elsewhere.
    """
    (target / SEGMENTS).mkdir(parents=True)
    for _ in range(_ATTEMPTS):
        with _moment([folder / FILE_NAME, *beside]) as (catalog, *others):
            for picture, place in zip(others, beside.values(), strict=True):
                _copy_database(picture, place)
            then()
            if _copy_segments(catalog, folder, target, tell):
                _copy_database(catalog, target / FILE_NAME)
                return _settle(target / FILE_NAME)
    raise LogBusy(
        f"Segments of the log in {folder} were removed faster than they could be copied",
        hint="Try again when less is compacted, tiered or deleted",
    )


@contextlib.contextmanager
def _moment(paths: Sequence[Path]) -> Iterator[list[apsw.Connection]]:
    """Read transactions on databases that all begin while none of them is written."""
    with contextlib.ExitStack() as pictures:
        with contextlib.ExitStack() as locks:
            # The catalog comes last: what waits for a batch to be stored keeps no producer waiting.
            for path in reversed(paths):
                writer = locks.enter_context(_connected(path))
                writer.execute("BEGIN IMMEDIATE")
            found = [pictures.enter_context(_connected(path)) for path in paths]
            for picture in found:
                picture.execute("BEGIN; SELECT count(*) FROM sqlite_schema")
        yield found


@contextlib.contextmanager
def _connected(path: Path) -> Iterator[apsw.Connection]:
    flags = apsw.SQLITE_OPEN_READWRITE
    link = Link(
        str(path),
        lambda: connect(str(path), _PATIENCE, flags=flags, vfs=checked_vfs()),
        patience=_PATIENCE,
    )
    with failures(path, _PATIENCE).translated(), contextlib.closing(link), link as db:
        yield db


def _copy_database(picture: apsw.Connection, place: Path) -> None:
    """Copy what a transaction sees, as a database of its own without a WAL."""
    place.parent.mkdir(parents=True, exist_ok=True)
    for left in (place, place.with_name(f"{place.name}-wal")):
        left.unlink(missing_ok=True)
    with (
        failures(place, _PATIENCE).translated(),
        contextlib.closing(connect(str(place), _PATIENCE, vfs=checked_vfs())) as copy,
        copy.backup("main", picture, "main") as backup,
    ):
        while not backup.done:
            backup.step(1_000)


def _copy_segments(catalog: apsw.Connection, folder: Path, target: Path, tell: Tell) -> bool:
    """True if all segments could be copied, or else one was removed meanwhile."""
    rows = many(catalog, "SELECT id, topic, partition, length, location FROM segment ORDER BY id")
    done, total = 0, sum(row[3] for row in rows)
    left = set((target / SEGMENTS).iterdir())
    for id, topic, partition, length, location in rows:
        place = segment_path(target, topic, partition, id)
        left.discard(place)
        if not place.exists() or place.stat().st_size < length:
            try:
                _copy_segment(segment_path(folder, topic, partition, id), location, place, length)
            except FileNotFoundError as missing:
                if not _moved(folder, id, location):
                    raise CorruptSegment(
                        f"A segment of the log is missing: {missing.filename or missing}",
                        hint="'headrace log check' says what else is damaged",
                    ) from missing
                return False
        done += length
        tell(done, total)
    for path in left:
        path.unlink()
    return True


def _copy_segment(path: Path, location: str | None, place: Path, length: int) -> None:
    disk = Disk()
    source: SegmentFile = (
        LocalSegment(disk, path) if location is None else TieredSegment(disk, location)
    )
    piece = memoryview(bytearray(_PIECE_BYTES))
    with contextlib.closing(disk), place.open("wb") as file, source.reading() as read_into:
        position = 0
        while position < length:
            size = read_into(piece[: length - position], position)
            if not size:
                break  # it is cut off, as whoever checks the copy will find
            file.write(piece[:size])
            position += size
        file.flush()
        os.fsync(file.fileno())


def _moved(folder: Path, segment: int, location: str | None) -> bool:
    """True if the log has no such segment any more, or has it elsewhere."""
    with _connected(folder / FILE_NAME) as db:
        return one(db, "SELECT location FROM segment WHERE id = ?", segment) != (location,)


def _settle(path: Path) -> int:
    """Let a copied catalog speak of the copy alone, where all is local and nothing is garbage.

    Else the copy would remove files that the log itself still has on another filesystem.
    """
    with _connected(path) as db:
        db.execute("BEGIN IMMEDIATE")
        db.execute("UPDATE segment SET location = NULL WHERE location IS NOT NULL")
        db.execute("UPDATE segment SET synced = length WHERE synced < length")
        db.execute("DELETE FROM garbage")
        db.execute("COMMIT")
        head = one(db, "SELECT number FROM head")
    return int(head[0]) if head else 0


def part_ways(folder: Path) -> None:
    """Let a copy begin a history of its own when it is opened, as after a boot.

    What is committed to it from then on is not what the log that it was copied from goes on with.
    """
    with _connected(folder / FILE_NAME) as db:
        db.execute("UPDATE setting SET value = '' WHERE name = 'boot'")
