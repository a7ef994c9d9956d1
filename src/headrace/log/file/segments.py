"""The life of segments in the catalog: created, closed, synced, and in the end discarded."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path

import apsw

from headrace.errors import LogError
from headrace.log.file.catalog import Catalog, many, one
from headrace.log.file.disk import Disk, unreadable
from headrace.log.file.layout import Checksum, header
from headrace.log.file.segment import SEGMENTS, LocalSegment, segment_path

log = logging.getLogger(__name__)

_UNSYNCED_BYTES = 1 << 30


class Segments:
    """The segments of a log. Only `sync_closed` may be called without the catalog's write lock."""

    def __init__(self, folder: Path, catalog: Catalog, disk: Disk) -> None:
        self._folder = folder
        self._catalog = catalog
        self._disk = disk
        catalog.before_sync = self.sync
        catalog.failed_sync = self.doubt_catalog
        self._doubts: set[Path] = set()
        """Doubts that other processes could not be told of."""

    def path(self, topic: int, partition: int, segment: int) -> Path:
        """Where a segment lies on this machine."""
        return segment_path(self._folder, topic, partition, segment)

    def create(
        self,
        db: apsw.Connection,
        topic: int,
        partition: int,
        columns: str | None,
        time: int,
        *,
        sparse: bool = False,
    ) -> tuple[int, int]:
        """Begin a segment file; returns its number and the length of its header."""
        head = header(columns, sparse)
        db.execute(
            "INSERT INTO segment (topic, partition, columns, sparse, length, created) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            (topic, partition, columns, sparse, head.size, time),
        )
        segment = db.last_insert_rowid()
        path = self.path(topic, partition, segment)
        self._disk.create(path)
        self._disk.remove(doubted(path))  # of a segment that was never recorded
        self._doubts.discard(path)
        self._disk.write(path, [head], 0)
        self._disk.step("created a segment")
        return segment, head.size

    def close(self, db: apsw.Connection, segment: int, time: int) -> None:
        """Let nothing more be written to a segment."""
        db.execute("UPDATE segment SET closed = ? WHERE id = ?", (time, segment))
        db.execute("UPDATE partition SET segment = NULL WHERE segment = ?", (segment,))

    def discard(self, db: apsw.Connection, segment: int) -> None:
        """Forget a segment with what chunks it still has, and note its file as garbage."""
        topic, partition, location = one(
            db, "SELECT topic, partition, location FROM segment WHERE id = ?", segment
        ) or (0, 0, None)
        path = self.path(topic, partition, segment)
        note_garbage(db, location or path.name)
        if doubted(path).exists():
            note_garbage(db, doubted(path).name)
        db.execute("UPDATE partition SET segment = NULL WHERE segment = ?", (segment,))
        db.execute("DELETE FROM chunk WHERE segment = ?", (segment,))
        db.execute("DELETE FROM segment WHERE id = ?", (segment,))

    def cut(self, db: apsw.Connection, time: int) -> None:
        """After commits were taken back: close what was open, and discard what is empty.

        A segment that was open may have lost its end, or never have reached its folder; nothing
        more is written to any of them.
        """
        for (segment,) in many(db, "SELECT id FROM segment WHERE closed IS NULL"):
            self.close(db, segment, time)
        for (segment,) in many(
            db,
            "SELECT id FROM segment WHERE NOT EXISTS "
            "(SELECT 1 FROM chunk WHERE chunk.segment = segment.id)",
        ):
            self.discard(db, segment)
        db.execute(
            "UPDATE segment SET length = (SELECT max(c.position + c.length) FROM chunk c "
            "WHERE c.segment = segment.id) WHERE location IS NULL"
        )
        db.execute("UPDATE segment SET synced = min(synced, length)")

    # What is on the device. A sync that fails is not to be tried again as it is: the system may
    # have dropped the bytes that it could not write, and answer the next sync as if nothing had
    # happened. So a file beside the segment tells all processes of the doubt, from before the
    # write lock is let go of; and before any of them builds on the segment, it is written anew.

    def sync(self, db: apsw.Connection) -> None:
        """Have every byte that the catalog speaks of on the device.

        Every synced transaction does this before it commits. Once it is durable, so is the
        metadata of all commits before it, and none of them may be without its bytes.
        """
        catalog = self._catalog.path
        if self._doubtful(catalog):
            with contextlib.suppress(FileNotFoundError), self._doubting([catalog]):
                self._disk.rewrite(self._catalog.wal)
            self._disk.remove(doubted(catalog))
            self._doubts.discard(catalog)
        unsynced = many(
            db, "SELECT id, topic, partition, synced FROM segment WHERE synced < length"
        )
        unnamed = []
        for id, topic, partition, synced in unsynced:
            path = self.path(topic, partition, id)
            anew = self._doubtful(path)
            if anew or synced == 0:
                unnamed.append(path)
            # A file that somebody removed is damage, which readers are told of; it must not
            # keep everybody else from writing.
            with contextlib.suppress(FileNotFoundError), self._doubting([path]):
                if anew:
                    self._write_anew(db, id)
                else:
                    self._disk.sync(path)
            self._disk.step("synced a segment")
        if unnamed:
            # Of a segment that was never synced even the name may not be on the device.
            with self._doubting(unnamed):
                self._disk.sync_folder(self._folder / SEGMENTS)
        if unsynced:
            db.execute("UPDATE segment SET synced = length WHERE synced < length")
        # A transaction that changes nothing would sync nothing.
        db.execute("UPDATE head SET synced = number WHERE synced < number")

    def sync_closed(self) -> None:
        """Sync the closed segments if there is much in them that never was.

        This bounds what a crash of the machine can take from commits that were only `written`,
        and what recovery has to read. No lock is held meanwhile: closed segments do not change.
        """
        with self._catalog.reading() as db:
            closed = [
                (id, self.path(topic, partition, id), synced, length)
                for id, topic, partition, synced, length in many(
                    db,
                    "SELECT id, topic, partition, synced, length FROM segment "
                    "WHERE synced < length AND closed IS NOT NULL AND location IS NULL",
                )
                if not self._doubtful(self.path(topic, partition, id))
            ]
        if sum(length for *_, length in closed) < _UNSYNCED_BYTES:
            return
        try:
            with self._doubting([path for _, path, *_ in closed]):
                for _, path, *_ in closed:
                    self._disk.sync(path)
                self._disk.sync_folder(self._folder / SEGMENTS)
        except LogError:
            # Another process may have been told meanwhile that all is well.
            with self._catalog.writing() as db:
                db.executemany(
                    "UPDATE segment SET synced = min(synced, ?) WHERE id = ?",
                    [(synced, id) for id, _, synced, _ in closed],
                )
            raise
        with self._catalog.writing() as db:
            db.executemany(
                "UPDATE segment SET synced = length WHERE id = ?",
                [(id,) for id, path, *_ in closed if not self._doubtful(path)],
            )

    @contextlib.contextmanager
    def _doubting(self, paths: list[Path]) -> Iterator[None]:
        """Doubt files if they cannot be synced."""
        try:
            yield
        except LogError as error:
            for path in paths:
                self._doubt(path)
            raise type(error)(
                f"{error.message}, so it is not sure that the disk has all that was written",
                hint="Nothing of this commit is visible. Check the disk and try again: what was "
                "only written before is written anew then",
            ) from error

    def doubt_catalog(self) -> None:
        """Doubt what SQLite has written ahead, after it failed to write or to sync a commit."""
        self._doubt(self._catalog.path)

    def _doubt(self, path: Path) -> None:
        self._doubts.add(path)
        try:
            self._disk.create(doubted(path))
            self._doubts.discard(path)
        except LogError as error:
            log.critical(
                "%s could not be synced, and other processes do not know, for a mark of that "
                "cannot be made either: stop them until the disk works again (%s)",
                path,
                error,
            )

    def _doubtful(self, path: Path) -> bool:
        return path in self._doubts or doubted(path).exists()

    def _write_anew(self, db: apsw.Connection, segment: int) -> None:
        """Move a segment's chunks to a new one, with the same bytes in the same places."""
        topic, partition, columns, sparse, created, closed, compacted = one(
            db,
            "SELECT topic, partition, columns, sparse, created, closed, compacted FROM segment "
            "WHERE id = ?",
            segment,
        ) or (0, 0, None, 0, 0, 0, 0)
        old = LocalSegment(self._disk, self.path(topic, partition, segment))
        new, end = self.create(db, topic, partition, columns, created, sparse=bool(sparse))
        path = self.path(topic, partition, new)
        for position, length, digest, first in many(
            db, "SELECT position, length, checksum, first FROM chunk WHERE segment = ?", segment
        ):
            checksum = Checksum()
            try:
                message = checksum.read(old, position, length)
            except FileNotFoundError:
                raise
            except OSError as error:
                raise unreadable(error, old.path) from error
            if checksum.value != digest:
                log.error(
                    "the disk has lost the records of partition %d from offset %d on in %s, which "
                    "it could not sync; whoever reads them is told",
                    partition,
                    first,
                    old.path,
                )
            self._disk.write(path, [message], position)
            end = max(end, position + length)
        self._disk.sync(path)
        db.execute(
            "UPDATE segment SET length = ?, closed = coalesce(?, created), compacted = ? "
            "WHERE id = ?",
            (end, closed, compacted, new),
        )
        db.execute("UPDATE chunk SET segment = ? WHERE segment = ?", (new, segment))
        self.discard(db, segment)


def doubted(path: Path) -> Path:
    """The file that says, by being there, that another could not be synced."""
    return path.with_suffix(".doubt")


def note_garbage(db: apsw.Connection, location: str) -> None:
    """Note a file that nothing refers to any more, to be removed."""
    db.execute("INSERT OR IGNORE INTO garbage VALUES (?)", (location,))
