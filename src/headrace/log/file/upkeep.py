"""Upkeep of a log: retention, tiering and garbage collection.

Each deletion starts with a transaction that removes the segment from the catalog and notes its file
as garbage; then the file is deleted. A crash in between leaves a note, not a leak. (Tiering is the
exception: a crash between the copy and its transaction leaves an unused copy.)
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw

from headrace.clock import Clock, micros
from headrace.errors import LogError
from headrace.forks import in_child
from headrace.log.declared import TopicRow
from headrace.log.file import storage
from headrace.log.file.catalog import Catalog, many, one
from headrace.log.file.clock_watch import made_at
from headrace.log.file.disk import Disk
from headrace.log.file.marks import remove_marks_before_first
from headrace.log.file.queue.keys import forget_idle_keys
from headrace.log.file.queue.rows import first_unfinished
from headrace.log.file.segments import Segments, note_garbage
from headrace.log.file.topics import forget_topic, topic_by_id
from headrace.log.state import UpkeepReport

_MEMORY = 7 * 24 * 3600 * 1_000_000
"""The log remembers an anonymous producer for this long, for its retries, and each heartbeat, for
readers in the middle of a batch."""

log = logging.getLogger(__name__)


class Upkeep:
    """Deletes and moves closed segments."""

    def __init__(
        self, folder: Path, catalog: Catalog, segments: Segments, disk: Disk, clock: Clock
    ) -> None:
        self._folder = folder
        self._catalog = catalog
        self._segments = segments
        self._disk = disk
        self._clock = clock
        self._renew()
        in_child(self, Upkeep._renew)

    def _renew(self) -> None:
        # A forked child leaves the parent's queued work to the parent.
        self._later = ThreadPoolExecutor(1, "headrace-upkeep")

    def after_roll(self, topics: set[int]) -> None:
        """Schedule retention for topics in which a segment was just closed.

        The commit that closed the segment does not wait for it and cannot fail because of it.
        """
        for id in topics:
            if self._disk.exclusive:  # one connection, hence one thread
                self._tidy(id)
            else:
                with contextlib.suppress(RuntimeError):  # the log is being closed
                    self._later.submit(self._tidy, id)

    def _tidy(self, id: int) -> None:
        try:
            self._segments.sync_closed()
            with self._catalog.reading() as db:
                topic = topic_by_id(db, id)
            if topic is not None:
                self.retain(topic)
        except (LogError, FileNotFoundError) as error:
            log.warning("the upkeep of a topic failed and will be tried again later: %s", error)

    def close(self) -> None:
        """Finish the scheduled work."""
        self._later.shutdown()

    def retain(self, topic: TopicRow) -> UpkeepReport:
        """Delete the oldest segments that exceed the topic's retention."""
        settings = topic.topic.settings
        if not settings.deletes or (
            settings.retention is None and settings.retention_bytes is None
        ):
            return UpkeepReport(topic.name)
        segments = records = freed = 0
        with self._catalog.writing(synced=True) as db:
            now = self._clock.now()
            for partition in range(topic.topic.partitions):
                for segment, length, removed in self._expired(db, topic, partition, now):
                    self._forget_segment(db, topic, partition, segment)
                    segments, records, freed = segments + 1, records + removed, freed + length
            if segments:
                remove_marks_before_first(db, topic)
                _prune(db, topic.id, now)
        self.collect_garbage()
        return UpkeepReport(
            topic.name, segments_deleted=segments, records_removed=records, bytes_freed=freed
        )

    def prune(self, topic: TopicRow) -> None:
        """Delete metadata of a topic's commits and queues that nothing needs any more."""
        with self._catalog.writing() as db:
            _prune(db, topic.id, self._clock.now())
            for (queue,) in many(db, "SELECT id FROM queue WHERE topic = ?", topic.id):
                forget_idle_keys(db, queue, self._clock.now())

    def tier(self, topic: TopicRow) -> UpkeepReport:
        """Move closed segments to the topic's other filesystem."""
        settings = topic.topic.settings
        if settings.tier is None:
            return UpkeepReport(topic.name)
        moved = freed = 0
        now = self._clock.now()
        with self._catalog.reading() as db:
            found = many(
                db,
                "SELECT id, partition, length FROM segment WHERE topic = ? AND location IS NULL "
                "AND (closed <= ? OR closed > ?) ORDER BY id",
                topic.id,
                now - micros(settings.tier_after),
                now,  # closed by a clock that was ahead
            )
        for segment, partition, length in found:
            path = self._segments.path(topic.id, partition, segment)
            # A unique name for each attempt: another process may be tiering the same segment.
            name = f"{path.stem}-{uuid.uuid4().hex[:12]}{path.suffix}"
            url = storage.tier_url(settings.tier, f"{self._log_id()}/{name}")
            try:
                storage.store(path, url)
            except FileNotFoundError:
                continue  # compacted or deleted by another process meanwhile
            with self._catalog.writing(synced=True) as db:
                db.execute(
                    "UPDATE segment SET location = ?, synced = length "
                    "WHERE id = ? AND location IS NULL",
                    (url, segment),
                )
                if db.changes():
                    note_garbage(db, path.name)
                    moved, freed = moved + 1, freed + length
                else:
                    note_garbage(db, url)  # another process was faster, or the segment is gone
        self.collect_garbage()
        return UpkeepReport(topic.name, segments_tiered=moved, bytes_freed=freed)

    def delete_topic(self, topic: TopicRow) -> None:
        """Delete a topic and its files."""
        with self._catalog.writing(synced=True) as db:
            for (segment,) in many(db, "SELECT id FROM segment WHERE topic = ?", topic.id):
                self._segments.discard(db, segment)
            forget_topic(db, topic)
        self.collect_garbage()

    def collect_garbage(self) -> None:
        """Remove the files noted as garbage."""
        with self._catalog.reading() as db:
            noted = many(db, "SELECT location FROM garbage")
        gone = []
        down: set[str] = set()
        for (location,) in noted:
            host = storage.host(location)
            if host in down:
                continue  # one timeout per server is enough
            try:
                if "://" in location:
                    storage.remove(location)
                else:
                    self._disk.remove(self._folder / "segments" / location)
                gone.append((location,))
            except LogError as error:
                log.warning("garbage was not removed and will be tried again: %s", error)
                if host:
                    down.add(host)
        if gone:
            with self._catalog.writing() as db:
                db.executemany("DELETE FROM garbage WHERE location = ?", gone)

    def _expired(
        self, db: apsw.Connection, topic: TopicRow, partition: int, now: int
    ) -> list[tuple[int, int, int]]:
        """Segments to delete, oldest first: id, length and rows."""
        settings = topic.topic.settings
        found = many(
            db,
            "SELECT s.id, s.length, s.closed, (SELECT sum(rows) FROM chunk WHERE segment = s.id), "
            "(SELECT max(number) FROM chunk WHERE segment = s.id), "
            "(SELECT max(end) FROM chunk WHERE segment = s.id) "
            "FROM segment s WHERE s.topic = ? AND s.partition = ? "
            "ORDER BY (SELECT min(first) FROM chunk WHERE segment = s.id)",
            topic.id,
            partition,
        )
        expired = []
        total = sum(length for _, length, *_ in found)
        needed = first_unfinished(db, topic.id, partition)
        for segment, length, closed, rows, newest, end in found:
            old = (
                settings.retention is not None
                and newest is not None
                and made_at(db, newest, now) < now - micros(settings.retention)
            )
            # The open segment never exceeds the limit by itself: it is still being filled.
            large = (
                settings.retention_bytes is not None
                and closed is not None
                and total - length >= settings.retention_bytes
            )
            if not old and not large:
                break
            if needed is not None and (end or 0) > needed:
                log.warning(
                    "retention keeps the records of partition %d of topic %r from offset %d on: "
                    "a queue over it has not finished them",
                    partition,
                    topic.name,
                    needed,
                )
                break
            if closed is None:
                self._segments.close(db, segment, now)
            total -= length
            expired.append((segment, length, rows or 0))
        return expired

    def _forget_segment(
        self, db: apsw.Connection, topic: TopicRow, partition: int, segment: int
    ) -> None:
        end = one(db, "SELECT max(end) FROM chunk WHERE segment = ?", segment)
        if end and end[0] is not None:
            db.execute(
                "UPDATE partition SET first = max(first, ?) WHERE topic = ? AND partition = ?",
                (end[0], topic.id, partition),
            )
        self._segments.discard(db, segment)

    def _log_id(self) -> str:
        with self._catalog.reading() as db:
            found = one(db, "SELECT value FROM setting WHERE name = 'log_id'")
        return str(found[0]) if found else "log"


def _prune(db: apsw.Connection, topic: int, now: int) -> None:
    """Delete commits without remaining rows, except each topic's and each producer's last.

    Of consecutive old heartbeats only the last stays; to a reader the frontier then seems to have
    moved less often. Commits with rows stay as they are, so the same rows are late.
    """
    (old,) = one(db, "SELECT max(number) FROM commits WHERE time < ?", now - _MEMORY) or (None,)
    db.execute(
        "DELETE FROM topic_commit WHERE topic = ?1 AND number < coalesce((SELECT min(c.number) "
        "FROM partition p JOIN chunk c ON c.topic = p.topic AND c.partition = p.partition "
        "WHERE p.topic = ?1 AND c.first = (SELECT min(first) FROM chunk WHERE topic = p.topic "
        "AND partition = p.partition)), ?2) "
        "AND number < (SELECT max(number) FROM topic_commit WHERE topic = ?1)",
        (topic, old or 0),
    )
    pruned = db.changes()
    db.execute(
        "DELETE FROM topic_commit WHERE topic = ?1 AND number IN (SELECT number FROM (SELECT "
        "number, rows, lead(number) OVER later AS next, lead(rows) OVER later AS next_rows "
        "FROM topic_commit WHERE topic = ?1 WINDOW later AS (ORDER BY number)) "
        "WHERE rows = 0 AND next_rows = 0 AND next <= ?2)",
        (topic, old or 0),
    )
    if db.changes():
        pruned += db.changes()
        db.execute(
            "UPDATE topic_commit SET before = earlier.after FROM (SELECT number, "
            "lag(after) OVER (ORDER BY number) AS after FROM topic_commit WHERE topic = ?1) "
            "AS earlier WHERE topic = ?1 AND rows = 0 AND topic_commit.number = earlier.number "
            "AND earlier.after IS NOT NULL AND earlier.number <= ?2",
            (topic, old or 0),
        )
    # Only anonymous producers have epoch 0, and they cannot come back.
    db.execute("DELETE FROM producer WHERE epoch = 0 AND used < ?", (now - _MEMORY,))
    if pruned:
        db.execute(
            "DELETE FROM commits WHERE number NOT IN (SELECT number FROM topic_commit) "
            "AND number NOT IN (SELECT number FROM producer WHERE number IS NOT NULL) "
            "AND number < (SELECT number FROM head)"
        )
