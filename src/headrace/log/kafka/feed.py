"""The reading side of a Kafka consumer: its partitions, positions and fetched messages."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import OffsetSpec

from headrace.clock import SECOND
from headrace.errors import HeadraceError
from headrace.log.consumer import PlacedConsumer
from headrace.log.declared import TopicRow, unknown_topic
from headrace.log.kafka.client import Client
from headrace.log.kafka.failures import UNKNOWN
from headrace.log.kafka.lookup import find_offsets, out_of_range, ranges
from headrace.log.kafka.messages import KafkaCursor
from headrace.log.kafka.topics import Topics, number_of
from headrace.log.position import EARLIEST, Position
from headrace.log.positions import Assigned, Positions
from headrace.log.roles import CommitMode

_AHEAD = 2_000
"""The minimum of records to fetch, so that partitions can take turns."""
_LOOK_AT_TOPICS = 5 * SECOND


class Feed(PlacedConsumer):
    """A consumer without group membership: it reads the partitions that it is given."""

    _consumer: Consumer

    def __init__(
        self,
        client: Client,
        topics: Topics,
        rows: Sequence[TopicRow],
        *,
        start: Position,
        commit: CommitMode,
    ) -> None:
        self._positions = Positions(rows)
        super().__init__(self._positions, client.clock, commit=commit)
        self._client = client
        self._topics = topics
        self._rows = {row.id: row for row in rows}
        self._start = start
        self._ignored: dict[str, set[str]] = {}
        self._looked_at = self._clock.monotonic()

    @property
    @abstractmethod
    def _steady(self) -> bool:
        """True if partitions are assigned and revoked incrementally."""

    @abstractmethod
    def _fetch(self, most: int, seconds: float) -> list[Message]:
        """Messages from Kafka's client."""

    @abstractmethod
    def _fail(self, error: KafkaError, topic: str | None) -> None:
        """Raise Kafka's error as a headrace error."""

    # Partitions

    def _starts(self, row: TopicRow, position: Position) -> dict[int, int]:
        return find_offsets(self._client, row, range(row.topic.partitions), position)

    def _offset_of(self, topic: TopicRow, partition: int, position: Position) -> int:
        return find_offsets(self._client, topic, [partition], position)[partition]

    def _open(self, row: TopicRow, offsets: dict[int, int], done: dict[int, int | None]) -> None:
        for partition, offset in offsets.items():
            cursor = KafkaCursor(row, partition, offset, self._again(row.name))
            self._positions.start(cursor, done.get(partition))

    def _assign(self) -> None:
        """Assign all partitions to Kafka's client, without a group."""
        self._client.introduce(self._consumer, *{row.name for row in self._rows.values()})
        self._consumer.assign([_place(mine) for mine in self._positions.assigned.values()])
        for mine in self._positions.assigned.values():
            _cursor(mine).sought = _cursor(mine).paused = False

    def _again(self, name: str) -> Callable[[set[str]], TopicRow | None]:
        def look(odd: set[str]) -> TopicRow | None:
            known = self._ignored.setdefault(name, set())
            if odd <= known:
                return None
            known |= odd
            row = self._topics.find(name)
            self._replace(row)
            return row

        return look

    def _replace(self, row: TopicRow) -> None:
        self._rows = {i: r for i, r in self._rows.items() if r.name != row.name} | {row.id: row}
        self._positions.replace(row)

    def _look_at_topics(self) -> None:
        """Handle topics that were deleted or recreated and, without a group, new partitions."""
        self._looked_at = self._clock.monotonic()
        found = self._topics.described(row.name for row in self._rows.values())
        for row in list(self._rows.values()):
            now = found.get(row.name)
            if now is not None and number_of(now) == row.id:
                if len(now.partitions) > row.topic.partitions and not self.grouped:
                    self._read_more(self._topics.find(row.name), row.topic.partitions)
            elif now is not None and self.grouped:
                self._move(row, self._topics.find(row.name))
            else:
                for place, mine in self._positions.assigned.items():
                    if place[0] == row.id and mine.error is None:
                        mine.error, mine.raised = unknown_topic(row.name), False

    def _read_more(self, row: TopicRow, known: int) -> None:
        """Start to read new partitions."""
        self._replace(row)
        more = range(known, row.topic.partitions)
        self._open(row, find_offsets(self._client, row, more, EARLIEST), {})
        self._assign()

    def _move(self, old: TopicRow, new: TopicRow) -> None:
        """Switch from a deleted topic to the one that was created under its name."""
        mine = [number for topic, number in self._positions.assigned if topic == old.id]
        for number in mine:
            self._give_up((old.id, number))
        self._replace(new)
        there = [number for number in mine if number < new.topic.partitions]
        self._open(new, find_offsets(self._client, new, there, self._start), {})
        for number in there:
            _cursor(self._positions.assigned[new.id, number]).sought = True

    # Fetching

    def _look(self, max_records: int, timeout: int) -> None:
        self._pump(max_records, 0)
        if timeout <= 0:
            self._catch_up(max_records)
            return
        self._client.check_trouble()
        if not self.grouped and self._clock.monotonic() - self._looked_at > _LOOK_AT_TOPICS:
            self._look_at_topics()

    def _wait(self, span: int) -> None:
        self._pump(1, min(span / SECOND, 0.1))

    def _pump(self, wanted: int, seconds: float) -> None:
        """Buffer what Kafka's client has fetched, and handle events of the group."""
        self._settle()
        waiting = sum(len(_cursor(m).waiting) for m in self._reading())
        most = max(wanted, _AHEAD) - waiting
        if most <= 0 and not self.grouped:
            return
        for message in self._fetch(max(1, most), seconds):
            self._take(message)

    def _catch_up(self, wanted: int) -> None:
        """Fetch up to the current ends, or until there are enough records of all partitions."""
        self._look_at_topics()
        ends: dict[tuple[str, int], Any] = {}
        for _ in self._client.moments():
            reading = {
                (m.cursor.topic.name, m.cursor.partition): m
                for m in self._reading()
                if m.error is None
            }
            unknown = [place for place in reading if place not in ends]
            if unknown:
                ends |= self._client.some_offsets(unknown, OffsetSpec.latest())
            behind, waiting = [], 0
            for place, mine in reading.items():
                end = ends[place]
                if isinstance(end, HeadraceError):
                    mine.error, mine.raised = end, False
                    continue
                waiting += len(_cursor(mine).waiting)
                if _cursor(mine).fetched < end[0]:
                    behind.append(mine)
            starved = any(not _cursor(mine).waiting for mine in behind)
            if not behind or (waiting >= wanted and not starved):
                return
            self._pump(wanted, 0.05)

    def _take(self, message: Message) -> None:
        error = message.error()
        mine = self._mine(message.topic(), message.partition())
        if error is None:
            if mine is not None:
                _cursor(mine).put(message)
            return
        if error.code() == KafkaError._PARTITION_EOF:
            if mine is not None:
                _cursor(mine).crash_point(message.offset() or 0)
            return
        if error.code() == KafkaError._AUTO_OFFSET_RESET and mine is not None:
            cursor = _cursor(mine)
            held = ranges(self._client, cursor.topic, [cursor.partition])[cursor.partition]
            if not held[0] <= cursor.fetched <= held[1]:
                mine.error = out_of_range(
                    cursor.topic.name, cursor.partition, cursor.fetched, *held
                )
                mine.raised = False
            else:
                cursor.sought = True  # the offset does exist
            return
        if error.code() in (KafkaError._MAX_POLL_EXCEEDED, KafkaError.REBALANCE_IN_PROGRESS):
            return  # the group has moved on; polling rejoins it
        if error.code() in UNKNOWN:
            if mine is not None:
                self._look_at_topics()  # it may have been recreated
            return  # a topic that does not exist has no records
        self._fail(error, message.topic())

    def _mine(self, topic: str | None, partition: int | None) -> Assigned | None:
        if partition is None:
            return None  # an event of the topic, not of a partition
        for row in self._rows.values():
            if row.name == topic:
                return self._positions.assigned.get((row.id, partition))
        return None

    def _reading(self) -> list[Assigned]:
        return [mine for mine in self._positions.assigned.values() if not mine.paused]

    def _settle(self) -> None:
        """Apply seeks, pauses and resumes to Kafka's client."""
        for mine in self._positions.assigned.values():
            cursor = _cursor(mine)
            if cursor.sought:
                try:
                    self._consumer.seek(_place(mine))
                except KafkaException:
                    self._restart(mine)  # not fetching yet, or stopped at an error
                cursor.sought = False
            if mine.paused != cursor.paused:
                if mine.paused:
                    self._consumer.pause([_place(mine)])
                else:
                    self._consumer.resume([_place(mine)])
                cursor.paused = mine.paused

    def _begin_here(self, mine: Assigned) -> None:
        """Make Kafka's client resume a paused partition at its start position."""
        cursor = _cursor(mine)
        cursor.sought = cursor.paused = True

    def _restart(self, mine: Assigned) -> None:
        if self._steady:
            self._consumer.incremental_unassign([_place(mine)])
            self._consumer.incremental_assign([_place(mine)])
            _cursor(mine).paused = False
        else:
            self._assign()


def _cursor(mine: Assigned) -> KafkaCursor:
    assert isinstance(mine.cursor, KafkaCursor)
    return mine.cursor


def _place(mine: Assigned) -> TopicPartition:
    """The next fetch position of a partition."""
    cursor = _cursor(mine)
    return TopicPartition(cursor.topic.name, cursor.partition, cursor.fetched)
