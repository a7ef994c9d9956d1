"""The life of segments in the catalog: created, closed, synced, and in the end discarded."""

from __future__ import annotations

import contextlib
from pathlib import Path

import apsw

from headrace.log.file.catalog import Catalog, many, one
from headrace.log.file.disk import Disk
from headrace.log.file.layout import header
from headrace.log.file.segment import SEGMENTS, segment_path

_UNSYNCED_BYTES = 1 << 30


class Segments:
    """The segments of a log. Only `sync_closed` may be called without the catalog's write lock."""

    def __init__(self, folder: Path, catalog: Catalog, disk: Disk) -> None:
        self._folder = folder
        self._catalog = catalog
        self._disk = disk
        catalog.before_sync = self.sync

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
        note_garbage(db, location or self.path(topic, partition, segment).name)
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

    def sync(self, db: apsw.Connection) -> None:
        """Have every byte that the catalog speaks of on the device.

        Every synced transaction does this before it commits. Once it is durable, so is the
        metadata of all commits before it, and none of them may be without its bytes.
        """
        unsynced = many(
            db, "SELECT id, topic, partition, synced FROM segment WHERE synced < length"
        )
        for id, topic, partition, _ in unsynced:
            # A file that somebody removed is damage, which readers are told of; it must not
            # keep everybody else from writing.
            with contextlib.suppress(FileNotFoundError):
                self._disk.sync(self.path(topic, partition, id))
            self._disk.step("synced a segment")
        if any(synced == 0 for *_, synced in unsynced):
            # Of a segment that was never synced even the name may not be on the device.
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
        closed = many(
            self._catalog.reader(),
            "SELECT id, topic, partition, length FROM segment "
            "WHERE synced < length AND closed IS NOT NULL AND location IS NULL",
        )
        if sum(length for *_, length in closed) < _UNSYNCED_BYTES:
            return
        for id, topic, partition, _ in closed:
            self._disk.sync(self.path(topic, partition, id))
        self._disk.sync_folder(self._folder / SEGMENTS)
        with self._catalog.writing() as db:
            db.executemany(
                "UPDATE segment SET synced = length WHERE id = ?", [(id,) for id, *_ in closed]
            )


def note_garbage(db: apsw.Connection, location: str) -> None:
    """Note a file that nothing refers to any more, to be removed."""
    db.execute("INSERT OR IGNORE INTO garbage VALUES (?)", (location,))
