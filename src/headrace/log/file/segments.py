"""The life cycle of segments: created, closed, synced and discarded."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import apsw

from headrace.errors import LogError
from headrace.log.file import tails
from headrace.log.file.catalog import Catalog, many, one
from headrace.log.file.disk import Disk, unreadable
from headrace.log.file.layout import Checksum, header
from headrace.log.file.storage import SEGMENTS, LocalSegment, segment_path

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
        """Files whose failed sync could not be marked for other processes."""

    def path(self, topic: int, partition: int, segment: int) -> Path:
        """The local path of a segment."""
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
        """Create a segment file; return its id and the length of its header."""
        head = header(columns, sparse)
        db.execute(
            "INSERT INTO segment (topic, partition, columns, sparse, length, created) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            (topic, partition, columns, sparse, head.size, time),
        )
        segment = db.last_insert_rowid()
        path = self.path(topic, partition, segment)
        self._disk.create(path)
        self._disk.remove(doubted(path))  # left by a segment that was never recorded
        self._doubts.discard(path)
        self._disk.write(path, [head], 0)
        self._disk.step("created a segment")
        return segment, head.size

    def close(self, db: apsw.Connection, segment: int, time: int) -> None:
        """Close a segment for writing."""
        db.execute("UPDATE segment SET closed = ? WHERE id = ?", (time, segment))
        db.execute("UPDATE partition SET segment = NULL WHERE segment = ?", (segment,))

    def discard(self, db: apsw.Connection, segment: int) -> None:
        """Delete a segment and its chunks from the catalog, and note its file as garbage."""
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
        """Close open segments and discard empty ones, after a rollback.

        An open segment may have lost its end or its file, so none is written to again.
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

    # A failed sync must not simply be repeated: the system may have dropped the bytes that it could
    # not write, and still report success for the next sync. So before the write lock is released, a
    # `.doubt` file beside the segment marks it for all processes, and the next synced commit writes
    # the segment's bytes to a new one first.

    def sync(self, db: apsw.Connection) -> None:
        """Sync all segment bytes that the catalog refers to.

        Every synced transaction does this before it commits. It makes the metadata of all earlier
        commits durable, so their bytes must be durable too.
        """
        catalog = self._catalog.path
        if self._doubtful(catalog):
            with contextlib.suppress(FileNotFoundError), self._doubting([catalog]):
                self._disk.rewrite(self._catalog.wal)
            self._disk.remove(doubted(catalog))
            self._doubts.discard(catalog)
        unsynced = many(
            db,
            "SELECT id, topic, partition, synced, length, location IS NULL FROM segment "
            "WHERE synced < length",
        )
        unnamed = []
        for id, topic, partition, synced, length, local in unsynced:
            path = self.path(topic, partition, id)
            anew = self._doubtful(path)
            if anew or synced == 0:
                unnamed.append(path)
            # A missing file is damage, which readers report; it must not keep others from
            # writing.
            with contextlib.suppress(FileNotFoundError), self._doubting([path]):
                if local and synced and not anew and length - synced <= tails.TAIL_BYTES:
                    tails.keep_tail(db, self._disk, id, path, synced, length)
                else:
                    self._sync(db, id, path, anew=anew)
            self._disk.step("synced a segment")
        if tails.too_many_tails(db):
            self.sync_tails(db)
        if unnamed:
            # Even the name of a segment that was never synced may not be on the device.
            with self._doubting(unnamed):
                self._disk.sync_folder(self._folder / SEGMENTS)
        if unsynced:
            db.execute("UPDATE segment SET synced = length WHERE synced < length")
        # SQLite would not sync a transaction that changes nothing.
        db.execute("UPDATE head SET synced = number WHERE synced < number")

    def sync_tails(self, db: apsw.Connection) -> None:
        """Sync the segments whose last bytes are in the catalog, and delete those copies."""
        for id, topic, partition in tails.segments_with_tails(db):
            path = self.path(topic, partition, id)
            with contextlib.suppress(FileNotFoundError), self._doubting([path]):
                self._sync(db, id, path, anew=self._doubtful(path))
        db.execute("DELETE FROM tail")

    def restore_tails(self, db: apsw.Connection) -> None:
        """Write the copies in the catalog to the segments, which a power cut may have cut."""
        for id, topic, partition in tails.segments_with_tails(db):
            tails.write_tails(db, self._disk, id, self.path(topic, partition, id))
        self.sync_tails(db)

    def _sync(self, db: apsw.Connection, segment: int, path: Path, *, anew: bool) -> None:
        """Sync a segment's file; a copy of it, if a sync of it has failed."""
        if anew:
            self._write_anew(db, segment)
        else:
            self._disk.sync(path)

    def sync_closed(self) -> None:
        """Sync the closed segments if they have many unsynced bytes.

        This bounds what a machine crash can lose of commits that were only `written`, and what
        recovery has to read. It holds no lock meanwhile: closed segments do not change.
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
            # The system may have reported success to another process meanwhile.
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
        """Mark files as doubtful if syncing them fails."""
        try:
            yield
        except LogError as error:
            for path in paths:
                self._doubt(path)
            raise type(error)(
                f"{error.message}, so the disk may have lost writes that were not synced",
                hint="Nothing of this commit is visible. Check the disk and try again: the next "
                "synced commit first rewrites what was not synced",
            ) from error

    def doubt_catalog(self) -> None:
        """Mark the catalog's WAL as doubtful, after SQLite failed to write or to sync a commit."""
        self._doubt(self._catalog.path)

    def _doubt(self, path: Path) -> None:
        self._doubts.add(path)
        try:
            self._disk.create(doubted(path))
            self._doubts.discard(path)
        except LogError as error:
            log.critical(
                "%s could not be synced, and its .doubt file, which tells other processes, could "
                "not be created either: stop them until the disk works again (%s)",
                path,
                error,
            )

    def _doubtful(self, path: Path) -> bool:
        return path in self._doubts or doubted(path).exists()

    def _write_anew(self, db: apsw.Connection, segment: int) -> None:
        """Copy a segment's chunks to a new segment, with the same bytes at the same positions."""
        topic, partition, columns, sparse, created, closed, compacted = one(
            db,
            "SELECT topic, partition, columns, sparse, created, closed, compacted FROM segment "
            "WHERE id = ?",
            segment,
        ) or (0, 0, None, 0, 0, 0, 0)
        old = LocalSegment(self._disk, self.path(topic, partition, segment))
        tails.write_tails(db, self._disk, segment, old.path)
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
                    "the disk has lost the records of partition %d from offset %d on in %s after "
                    "a failed sync; reading them will fail",
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


@lru_cache(maxsize=1024)
def doubted(path: Path) -> Path:
    """The file whose existence marks another as doubtful: its sync has failed."""
    return path.with_suffix(".doubt")


def note_garbage(db: apsw.Connection, location: str) -> None:
    """Note a file to be removed, since nothing refers to it any more."""
    db.execute("INSERT OR IGNORE INTO garbage VALUES (?)", (location,))
