"""The embedded log: a `Log` in a folder."""

from __future__ import annotations

import contextlib
import json
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.clock import Clock, SystemClock, to_micros
from headrace.errors import InvalidPosition, InvalidSetting, NotALog
from headrace.log.declared import TopicRow, check_partition
from headrace.log.event_time import has_event_time
from headrace.log.file import storage, topics
from headrace.log.file.appender import Appender, StaleTopic
from headrace.log.file.catalog import Catalog, many, one
from headrace.log.file.committer import FileCommitter
from headrace.log.file.compaction import Compactor
from headrace.log.file.consumer import FileConsumer
from headrace.log.file.coordinator import Coordinator
from headrace.log.file.disk import Disk
from headrace.log.file.groups import Groups
from headrace.log.file.lookup import find_offset
from headrace.log.file.marks import Unless
from headrace.log.file.membership import MemberSettings, Membership
from headrace.log.file.places import Place, check_columns, find_places, take
from headrace.log.file.queue.queues import FileQueues
from headrace.log.file.reader import Reader
from headrace.log.file.recovery import recover
from headrace.log.file.segments import Segments
from headrace.log.file.storage import SEGMENTS
from headrace.log.file.topics import find_topic
from headrace.log.file.upkeep import Upkeep
from headrace.log.interface import Capability, Log
from headrace.log.matches import Match, check_indexed, check_matches
from headrace.log.position import EARLIEST, LATEST, Position
from headrace.log.producer import LogProducer
from headrace.log.queueing import Queues
from headrace.log.record import Batch
from headrace.log.roles import Acks, CommitMode, CommitPart, Consumer, Producer
from headrace.log.settings import TopicSettings
from headrace.log.state import GroupState, Topic, TopicCommit, TopicState, UpkeepReport


class FileLog(Log):
    """A log in a folder. Any number of processes may have it open.

    A writer waits up to `patience` seconds for its turn.
    """

    capabilities = frozenset(Capability)

    def __init__(
        self,
        folder: Path | str,
        *,
        clock: Clock | None = None,
        create: bool = True,
        patience: float = 30.0,
        disk: Disk | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.url = f"file:{self.folder.absolute()}"
        self._clock = clock or SystemClock()
        self._disk = disk or Disk()
        self._catalog = Catalog(self.folder, self._disk, create=create, patience=patience)
        self._handles: weakref.WeakSet[Producer | Consumer] = weakref.WeakSet()
        self._queues: FileQueues | None = None
        self._known: dict[str, TopicRow] = {}
        segments = Segments(self.folder, self._catalog, self._disk)
        self._appender = Appender(self._catalog, segments, self._disk, self._clock)
        self._coordinator = Coordinator(self._catalog, self._clock, self._disk.boot())
        self._groups = Groups(self._catalog, self._clock, self._coordinator)
        self._upkeep = Upkeep(self.folder, self._catalog, segments, self._disk, self._clock)
        self._compactor = Compactor(self.folder, self._catalog, segments, self._disk, self._clock)
        try:
            if not self._catalog.read_only and not (self.folder / SEGMENTS).is_dir():
                self._disk.make_folder(self.folder / SEGMENTS)
                self._disk.sync_folder(self.folder)
            self._catalog.check_whole()
            recover(self._catalog, segments, self._disk, self._clock)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the log and its consumers and producers; producers commit what was sent."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._disk.close)
            stack.callback(self._catalog.close)
            stack.callback(self._upkeep.close)
            if self._queues is not None:
                stack.callback(self._queues.close)
            for handle in list(self._handles):
                # Polled records may not have been handled, so their offsets are not committed.
                ends = handle.abandon if isinstance(handle, FileConsumer) else handle.close
                stack.callback(ends)

    def check_there(self) -> None:
        if not self._catalog.path.exists():
            raise NotALog(
                f"The folder of the log, {self.folder.absolute()}, was removed or renamed while it "
                "was in use",
                hint="Move it back, or create it from a backup with 'headrace restore'",
            )

    # Topics

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        schema: str | pa.Schema | None = None,
        key: str | None = None,
        event_time: str | None = None,
        settings: TopicSettings | Mapping[str, Any] | None = None,
    ) -> Topic:
        if not isinstance(settings, TopicSettings):
            settings = TopicSettings().change(settings or {})
        if settings.tier is not None:
            storage.check_tier(settings.tier)
        return topics.create_topic(
            self._catalog, Topic(name, partitions, None, key, event_time, settings), schema
        )

    def topics(self) -> list[Topic]:
        with self._catalog.reading() as db:
            return [row.topic for row in topics.all_topics(db)]

    def topic(self, name: str) -> TopicState:
        with self._catalog.reading() as db:
            return topics.describe_topic(db, name)

    def topic_ids(self, names: Iterable[str]) -> dict[str, int]:
        wanted = json.dumps(list(names))
        sql = "SELECT name, uid FROM topic WHERE name IN (SELECT value FROM json_each(?))"
        with self._catalog.reading() as db:
            return dict(many(db, sql, wanted))

    def alter_topic(
        self,
        name: str,
        *,
        settings: Mapping[str, Any] | None = None,
        partitions: int | None = None,
        schema: str | pa.Schema | None = None,
    ) -> Topic:
        if settings and settings.get("tier") not in (None, "none"):
            storage.check_tier(str(settings["tier"]))
        return topics.alter_topic(self._catalog, name, settings, partitions, schema)

    def delete_topic(self, name: str) -> None:
        self._upkeep.delete_topic(self._row(name))

    # Writing

    def producer(
        self,
        *,
        id: str | None = None,
        acks: Acks = "synced",
        linger: timedelta = timedelta(milliseconds=10),
        batch_bytes: int = 4 << 20,
    ) -> Producer:
        def committer() -> FileCommitter:
            return FileCommitter(
                self._catalog,
                self._appender,
                self._upkeep.after_roll,
                id=id,
                synced=acks == "synced",
            )

        producer = LogProducer(committer, acks=acks, linger=linger, batch_bytes=batch_bytes)
        self._handles.add(producer)
        return producer

    # Reading

    def read(
        self,
        topic: str,
        *,
        start: Position = EARLIEST,
        stop: Position = LATEST,
        partitions: Iterable[int] | None = None,
        columns: Sequence[str] | None = None,
        judged: bool = False,
    ) -> Iterator[Batch]:
        with self._catalog.reading() as db:
            row = find_topic(db, topic)
            check_columns(row, columns)
            wanted = range(row.topic.partitions) if partitions is None else partitions
            ranges = [
                (p, find_offset(db, row, p, start), find_offset(db, row, p, stop)) for p in wanted
            ]
        return self._scan(row, ranges, columns)

    def _scan(
        self, row: TopicRow, ranges: list[tuple[int, int, int]], columns: Sequence[str] | None
    ) -> Iterator[Batch]:
        with contextlib.closing(Reader(self.folder, self._catalog, self._disk)) as reader:
            for partition, first, end in ranges:
                yield from reader.scan(row, partition, first, end, columns)

    def consumer(
        self,
        *topics: str,
        group: str | None = None,
        start: Position = EARLIEST,
        commit: CommitMode = "after",
        assignor: str = "sticky",
        instance: str | None = None,
        session: timedelta = timedelta(seconds=10),
        max_poll_interval: timedelta = timedelta(minutes=5),
    ) -> Consumer:
        if not topics:
            raise InvalidPosition("A consumer needs a topic", hint="log.consumer('orders')")
        if commit not in ("before", "after", "manual"):
            raise InvalidSetting(f"commit cannot be {commit!r}", hint="Use before, after or manual")
        rows = [self._row(name) for name in topics]
        membership = None
        if group is not None:
            # A virtual clock does not advance by itself: there each poll is the heartbeat.
            beats = isinstance(self._clock, SystemClock)
            member = MemberSettings(group, assignor, instance, session, max_poll_interval, beats)
            membership = Membership(self._coordinator, self._clock, member, rows)
        consumer = FileConsumer(
            self._catalog,
            Reader(self.folder, self._catalog, self._disk),
            self._clock,
            rows,
            membership,
            start=start,
            commit=commit,
        )
        self._handles.add(consumer)
        return consumer

    def offset_at(self, topic: str, partition: int, position: Position) -> int:
        with self._catalog.reading() as db:
            row = find_topic(db, topic)
            return find_offset(db, row, check_partition(row, partition), position)

    # Commits and frontiers

    def last_sequence(self, producer: str) -> int | None:
        with self._catalog.reading() as db:
            found = one(db, "SELECT sequence FROM producer WHERE id = ?", producer)
        return None if found is None or found[0] < 0 else int(found[0])

    def head(self) -> int:
        with self._catalog.reading() as db:
            found = one(db, "SELECT number FROM head")
        return int(found[0]) if found else 0

    def rollbacks(self) -> dict[int, int]:
        with self._catalog.reading() as db:
            return dict(many(db, "SELECT epoch, first FROM rollback"))

    def sync(self, upto: int) -> None:
        with self._catalog.reading() as db:
            found = one(db, "SELECT synced FROM head")
        if found and found[0] < upto and not self._catalog.read_only:
            with self._catalog.writing(synced=True):
                pass  # a synced transaction makes all earlier ones durable

    def commit_time(self, commit: int) -> int:
        with self._catalog.reading() as db:
            found = one(db, "SELECT time FROM commits WHERE number = ?", commit)
        if found is None:
            raise InvalidPosition(
                f"Commit {commit} is not in the log",
                hint=f"The last one is {self.head()}; retention deletes commits with their records",
            )
        return int(found[0])

    def commits(self, topic: str, after: int, limit: int) -> list[TopicCommit]:
        with self._catalog.reading() as db:
            rows = many(
                db,
                "SELECT number, rows, before, after, oldest, misplaced, bound FROM topic_commit "
                "WHERE topic = ? AND number > ? ORDER BY number LIMIT ?",
                find_topic(db, topic).id,
                after,
                limit,
            )
        return [TopicCommit(*row) for row in rows]

    def advance(self, topic: str, moment: datetime, *, ahead: bool = False) -> int | None:
        while True:
            row = self._row(topic)
            has_event_time(row.topic)
            with contextlib.suppress(StaleTopic):
                return self._appender.advance(row, to_micros(moment), ahead=ahead)

    def frontier(self, topic: str, commit: int | None = None) -> int | None:
        with self._catalog.reading() as db:
            return topics.frontier_at(db, find_topic(db, topic).id, commit)

    # Conditions

    def unless(self, topic: str, matches: Sequence[Match], *, after: int) -> CommitPart:
        row = self._row(topic)
        check_indexed(topic, row.topic.settings)
        return Unless(row, check_matches(matches), after)

    def find(
        self,
        topic: str,
        matches: Sequence[Match],
        *,
        after: int = 0,
        upto: int | None = None,
        last: int = 0,
        columns: Sequence[str] | None = None,
    ) -> Iterator[Batch]:
        wanted = check_matches(matches)
        with self._catalog.reading() as db:
            row = find_topic(db, topic)
            check_indexed(topic, row.topic.settings)
            check_columns(row, columns)
            places = find_places(db, row, wanted, after, upto, last=last)
        return self._take(row, places, columns)

    def _take(
        self, row: TopicRow, places: list[Place], columns: Sequence[str] | None
    ) -> Iterator[Batch]:
        with contextlib.closing(Reader(self.folder, self._catalog, self._disk)) as reader:
            yield from take(reader, row, places, columns)

    # Groups

    def groups(self) -> list[str]:
        return self._groups.names()

    def group(self, name: str) -> GroupState:
        return self._groups.describe(name)

    def reset_group(self, name: str, topic: str, position: Position) -> dict[int, int]:
        return self._groups.reset(name, topic, position)

    def delete_group(self, name: str) -> None:
        self._groups.delete(name)

    # Queues

    def queues(self) -> Queues:
        if self._queues is None:
            reader = Reader(self.folder, self._catalog, self._disk)
            self._queues = FileQueues(self._catalog, self._clock, self._disk.boot(), reader)
        return self._queues

    # Upkeep

    def upkeep(self, topic: str | None = None) -> list[UpkeepReport]:
        names = [t.name for t in self.topics()] if topic is None else [topic]
        reports = []
        for name in names:
            row = self._row(name)
            done = [self._upkeep.retain(row)]
            if row.topic.settings.compacts:
                done.append(self._compacted(name, all_segments=False))
            done.append(self._upkeep.tier(row))
            self._upkeep.prune(row)
            reports.append(UpkeepReport.total(name, done))
        self._upkeep.collect_garbage()
        return reports

    def compact(self, topic: str) -> UpkeepReport:
        report = self._compacted(topic, all_segments=True)
        self._upkeep.collect_garbage()
        return report

    def _compacted(self, topic: str, *, all_segments: bool) -> UpkeepReport:
        while True:
            try:
                return self._compactor.compact(self._row(topic), all_segments=all_segments)
            except StaleTopic:
                continue  # the topic has changed; segments compacted so far stay compacted

    def _row(self, name: str) -> TopicRow:
        with self._catalog.reading() as db:
            known = self._known.get(name)
            sql = "SELECT id, version FROM topic WHERE name = ?"
            if known is None or one(db, sql, name) != (known.id, known.version):
                known = self._known[name] = find_topic(db, name)
        return known
