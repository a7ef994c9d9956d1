"""Copy a log as of one moment, while it is in use.

The moment is when nobody writes: the write locks of the catalog and of the databases `beside` it
are held together while a read transaction begins on each, which takes milliseconds. So these
snapshots are consistent with each other: an application's outputs, and its record of them.

Segments only grow, so each is copied up to its length in the catalog's snapshot. If compaction,
retention or tiering removes one meanwhile, the copy starts again with new snapshots and keeps the
segments it has.
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
from headrace.log.file.storage import SEGMENTS, segment_file, segment_path
from headrace.log.state import Tell
from headrace.sqlite import Link, connect

_ATTEMPTS = 20
_PATIENCE = 30.0
_PIECE_BYTES = 1 << 20


def copy_log(
    folder: Path, target: Path, *, beside: Mapping[Path, Path], then: Callable[[], None], tell: Tell
) -> int:
    """Copy a log and other databases, each to its place; return the last commit.

    `then` is called once the databases `beside` are copied, and `tell` reports progress. Tiered
    segments are copied too and are local in the copy, so it depends on no other storage.
    """
    (target / SEGMENTS).mkdir(parents=True)
    for _ in range(_ATTEMPTS):
        with _moment([folder / FILE_NAME, *beside]) as (catalog, *others):
            for snapshot, place in zip(others, beside.values(), strict=True):
                _copy_database(snapshot, place)
            then()
            if _copy_segments(catalog, folder, target, tell):
                _copy_database(catalog, target / FILE_NAME)
                return _make_local(target / FILE_NAME)
    raise LogBusy(
        f"Segments of the log in {folder} were removed faster than they could be copied",
        hint="Try again when compaction, tiering and retention are done",
    )


@contextlib.contextmanager
def _moment(paths: Sequence[Path]) -> Iterator[list[apsw.Connection]]:
    """Read transactions on several databases, all begun while none of them is written."""
    with contextlib.ExitStack() as snapshots:
        with contextlib.ExitStack() as locks:
            # The catalog comes last: while this waits for another database, producers can write.
            for path in reversed(paths):
                writer = locks.enter_context(_connected(path))
                writer.execute("BEGIN IMMEDIATE")
            found = [snapshots.enter_context(_connected(path)) for path in paths]
            for snapshot in found:
                snapshot.execute("BEGIN; SELECT count(*) FROM sqlite_schema")
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


def _copy_database(snapshot: apsw.Connection, place: Path) -> None:
    """Copy a snapshot to a new database without a WAL."""
    place.parent.mkdir(parents=True, exist_ok=True)
    for left in (place, place.with_name(f"{place.name}-wal")):
        left.unlink(missing_ok=True)
    with (
        failures(place, _PATIENCE).translated(),
        contextlib.closing(connect(str(place), _PATIENCE, vfs=checked_vfs())) as copy,
        copy.backup("main", snapshot, "main") as backup,
    ):
        while not backup.done:
            backup.step(1_000)


def _copy_segments(catalog: apsw.Connection, folder: Path, target: Path, tell: Tell) -> bool:
    """Copy all segments; False if one was removed meanwhile."""
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
                        hint="Run 'headrace log check' to see what else is damaged, and restore "
                        "the log from a backup",
                    ) from missing
                return False
        done += length
        tell(done, total)
    for path in left:
        path.unlink()
    return True


def _copy_segment(path: Path, location: str | None, place: Path, length: int) -> None:
    disk = Disk()
    source = segment_file(disk, path, location)
    piece = memoryview(bytearray(_PIECE_BYTES))
    with contextlib.closing(disk), place.open("wb") as file, source.reading() as read_into:
        position = 0
        while position < length:
            size = read_into(piece[: length - position], position)
            if not size:
                break  # the segment is cut off; checking the copy will report it
            file.write(piece[:size])
            position += size
        file.flush()
        os.fsync(file.fileno())


def _moved(folder: Path, segment: int, location: str | None) -> bool:
    """True if the segment was removed from the log or moved."""
    with _connected(folder / FILE_NAME) as db:
        return one(db, "SELECT location FROM segment WHERE id = ?", segment) != (location,)


def _make_local(path: Path) -> int:
    """Make a copied catalog refer to local files only; return its last commit.

    Otherwise the copy would delete tiered files that the original still needs.
    """
    with _connected(path) as db:
        db.execute("BEGIN IMMEDIATE")
        db.execute("UPDATE segment SET location = NULL WHERE location IS NOT NULL")
        db.execute("UPDATE segment SET synced = length WHERE synced < length")
        db.execute("DELETE FROM tail")  # the copied segments are synced
        db.execute("DELETE FROM garbage")
        db.execute("COMMIT")
        head = one(db, "SELECT number FROM head")
    return int(head[0]) if head else 0


def part_ways(folder: Path) -> None:
    """Make a copy start a new history when it is opened, as after a reboot.

    From then on its commits differ from those of the original.
    """
    with _connected(folder / FILE_NAME) as db:
        db.execute("UPDATE setting SET value = '' WHERE name = 'boot'")
