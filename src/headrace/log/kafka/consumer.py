"""Consumers on Kafka, alone or as members of one of Kafka's own groups."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import OffsetSpec

from headrace.clock import SECOND
from headrace.errors import HeadraceError, InvalidSetting, MemberFenced, UnknownTopic
from headrace.log.consumer import PlacedConsumer
from headrace.log.declared import TopicRow, unknown_topic
from headrace.log.group_offsets import GroupOffsets, Place
from headrace.log.kafka.client import Client
from headrace.log.kafka.cursor import KafkaCursor
from headrace.log.kafka.failures import GONE_ON, UNKNOWN
from headrace.log.kafka.fetching import fetch
from headrace.log.kafka.lookup import find_offsets, out_of_range, ranges
from headrace.log.kafka.offsets import KafkaOffsets, committed, kafka_offsets
from headrace.log.kafka.topics import Topics, number_of
from headrace.log.position import EARLIEST, Position
from headrace.log.positions import Assigned, Positions
from headrace.log.roles import CommitMode

_AHEAD = 2_000
"""Records that are fetched even if fewer are asked for, so that partitions can take turns."""
_LOOK_FOR_PARTITIONS = 5 * SECOND
_FIRST_ASSIGNMENT = 30 * SECOND
STRATEGIES = {"sticky": "cooperative-sticky", "range": "range"}
"""Kafka's own names for the ways to assign."""


@dataclass(frozen=True)
class Terms:
    """On what terms a consumer is in a group. `alone` says that it is the first one."""

    group: str
    assignor: str
    instance: str | None
    session: timedelta
    max_poll_interval: timedelta
    alone: bool


class KafkaConsumer(PlacedConsumer):
    """A consumer of a log on Kafka. It belongs to one thread."""

    def __init__(
        self,
        client: Client,
        topics: Topics,
        rows: Sequence[TopicRow],
        terms: Terms | None,
        *,
        start: Position,
        commit: CommitMode,
    ) -> None:
        self._positions = Positions(rows)
        super().__init__(self._positions, client.clock, commit=commit)
        self._client = client
        self._topics = topics
        self._rows = {row.id: row for row in rows}
        self._terms = terms
        self._start = start
        self._rebalances = 0
        self._leaving = False
        self._inside = False
        self._trouble: HeadraceError | None = None
        self._member: Any = None
        self._ignored: dict[str, set[str]] = {}
        self._looked_at = self._clock.monotonic()
        first = {row.id: self._starts(row, start) for row in rows}  # refuses what is no position
        if terms is None:
            self._consumer = client.consumer()
            for row in rows:
                self._open(row, first[row.id], {})
            self._assign()
        else:
            self._consumer = client.consumer(**_settings(terms))
            self._subscribe()
            self._await_assignment(terms)

    @property
    def grouped(self) -> bool:
        return self._terms is not None

    @property
    def generation(self) -> int:
        return self._rebalances

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
        """Tell Kafka's client what is read, without a group."""
        self._client.introduce(self._consumer, *{row.name for row in self._rows.values()})
        self._consumer.assign([_place(mine) for mine in self._positions.assigned.values()])
        for mine in self._positions.assigned.values():
            _cursor(mine).sought = False

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
        """Hear of topics that are gone or made again, and without a group of new partitions."""
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
                        mine.error, mine.told = unknown_topic(row.name), False

    def _read_more(self, row: TopicRow, known: int) -> None:
        """Read partitions that were added."""
        self._replace(row)
        more = range(known, row.topic.partitions)
        self._open(row, find_offsets(self._client, row, more, EARLIEST), {})
        self._assign()

    def _move(self, old: TopicRow, new: TopicRow) -> None:
        """Go over from a topic that was deleted to the one that was made in its place."""
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
        elif not self.grouped and self._clock.monotonic() - self._looked_at > _LOOK_FOR_PARTITIONS:
            self._look_at_topics()

    def _wait(self, span: int) -> None:
        self._pump(1, min(span / SECOND, 0.1))

    def _pump(self, wanted: int, seconds: float) -> None:
        """Take in what Kafka's client has, and hear of the group."""
        self._settle_seeks()
        waiting = sum(len(_cursor(m).waiting) for m in self._reading())
        most = max(wanted, _AHEAD) - waiting
        if most <= 0 and not self.grouped:
            return
        with self._calling():
            for message in fetch(self._consumer, max(1, most), seconds):
                self._take(message)
            if self.grouped:
                self._member = self._consumer.consumer_group_metadata()
        if self._trouble is not None:
            trouble, self._trouble = self._trouble, None
            raise trouble

    def _catch_up(self, wanted: int) -> None:
        """Fetch all there is by now, or as much as is wanted and something of each partition."""
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
                    mine.error, mine.told = end, False
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
                _cursor(mine).reach(message.offset() or 0)
            return
        if error.code() == KafkaError._AUTO_OFFSET_RESET and mine is not None:
            cursor = _cursor(mine)
            held = ranges(self._client, cursor.topic, [cursor.partition])[cursor.partition]
            if not held[0] <= cursor.fetched <= held[1]:
                mine.error = out_of_range(
                    cursor.topic.name, cursor.partition, cursor.fetched, *held
                )
                mine.told = False
            else:
                cursor.sought = True  # it was there all the same
            return
        if error.code() in (KafkaError._MAX_POLL_EXCEEDED, KafkaError.REBALANCE_IN_PROGRESS):
            return  # the group has gone on, and is joined again by polling
        if error.code() in UNKNOWN and mine is None:
            return  # a topic that is gone, or not there yet, has no records
        self._fail(error, message.topic())

    def _fail(self, error: KafkaError, topic: str | None) -> None:
        instance = None if self._terms is None else self._terms.instance
        if error.code() in (KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID) and instance:
            raise MemberFenced(
                f"Another consumer has taken the instance name {instance!r}",
                hint="Each running consumer needs an instance name of its own",
            )
        if error.code() == KafkaError.INCONSISTENT_GROUP_PROTOCOL and self._terms is not None:
            raise InvalidSetting(
                f"The members of group {self._terms.group!r} do not assign by "
                f"{self._terms.assignor!r}",
                hint="Use the assignor that they use, or stop all of them first",
            )
        raise self._client.failure(error, topic=topic)

    def _mine(self, topic: str | None, partition: int | None) -> Assigned | None:
        for row in self._rows.values():
            if row.name == topic:
                return self._positions.assigned.get((row.id, partition or 0))
        return None

    def _reading(self) -> list[Assigned]:
        return [mine for mine in self._positions.assigned.values() if not mine.paused]

    def _settle_seeks(self) -> None:
        """Tell Kafka's client where to go on, where somebody has sought."""
        for mine in self._positions.assigned.values():
            cursor = _cursor(mine)
            if not cursor.sought:
                continue
            try:
                self._consumer.seek(_place(mine))
            except KafkaException:
                self._restart(mine)  # it has not begun to fetch yet, or has stopped at an error
            cursor.sought = False

    def _restart(self, mine: Assigned) -> None:
        if self.grouped and not self._eager:
            self._consumer.incremental_unassign([_place(mine)])
            self._consumer.incremental_assign([_place(mine)])
        else:
            self._consumer.assign([_place(one) for one in self._positions.assigned.values()])

    # The group

    def _subscribe(self) -> None:
        self._consumer.subscribe(
            sorted(row.name for row in self._rows.values()),
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )

    def _await_assignment(self, terms: Terms) -> None:
        """Wait for the first partitions if nobody else has to let go of them."""
        end = self._clock.monotonic() + min(_FIRST_ASSIGNMENT, int(self._client.seconds * SECOND))
        self._pump(1, 0)
        while terms.alone and not self._rebalances and self._clock.monotonic() < end:
            self._pump(1, 0.05)

    @contextlib.contextmanager
    def _calling(self) -> Iterator[None]:
        """While Kafka's client may call back, nobody may ask it for more."""
        self._inside = True
        try:
            yield
        except KafkaException as error:
            self._fail(error.args[0], None)
        finally:
            self._inside = False

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._rebalances += 1
        starts: list[TopicPartition] = []
        try:
            for name in {partition.topic for partition in partitions}:
                mine = [p for p in partitions if p.topic == name]
                starts += self._take_over(consumer, name, mine)
        except (HeadraceError, KafkaException) as error:
            self._trouble = (
                error if isinstance(error, HeadraceError) else self._client.failure(error)
            )
        if self._eager:
            consumer.assign(starts)
        else:
            consumer.incremental_assign(starts)

    @property
    def _eager(self) -> bool:
        return self._terms is not None and self._terms.assignor == "range"

    def _take_over(
        self, consumer: Consumer, name: str, partitions: list[TopicPartition]
    ) -> list[TopicPartition]:
        row = self._topics.find(name)
        for old in list(self._rows.values()):
            if old.name == name and old.id != row.id:
                self._move(old, row)
        self._replace(row)
        found = consumer.committed(partitions, self._client.seconds)
        done = {at.partition: committed(row, at) for at in found}
        fresh = [number for number, offset in done.items() if offset is None]
        offsets = {number: offset for number, offset in done.items() if offset is not None}
        offsets |= find_offsets(self._client, row, fresh, self._start)
        self._open(row, offsets, done)
        return [TopicPartition(name, number, offset) for number, offset in offsets.items()]

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._rebalances += 1
        if self._mode == "after" and not self._leaving:
            # What cannot be committed now comes again at its next owner.
            with contextlib.suppress(HeadraceError):
                self._commit(synced=False)
        self._let_go(consumer, partitions)

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._rebalances += 1
        self._let_go(consumer, partitions)

    def _let_go(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            for row in list(self._rows.values()):
                place = (row.id, partition.partition)
                if row.name == partition.topic and place in self._positions.assigned:
                    self._give_up(place)
        if self._eager:
            consumer.unassign()
        else:
            consumer.incremental_unassign(partitions)

    def _rejoin(self) -> None:
        return  # Kafka's client does so by itself, when it is polled

    # Offsets

    def _committed(self, place: Place) -> int | None:
        row = self._rows[place[0]]
        try:
            (found,) = self._consumer.committed(
                [TopicPartition(row.name, place[1])], self._client.seconds
            )
        except KafkaException as error:
            raise self._client.failure(error) from None
        return committed(row, found)

    def _offsets(self, moved: dict[Place, int]) -> GroupOffsets:
        assert self._terms is not None
        return kafka_offsets(self._terms.group, self._member, moved, self._rows)

    def _store(self, offsets: GroupOffsets, *, synced: bool) -> None:
        assert isinstance(offsets, KafkaOffsets)
        for _ in self._client.moments():
            try:
                self._consumer.commit(offsets=list(offsets.partitions), asynchronous=False)
                return
            except KafkaException as error:
                code = error.args[0].code()
                if code in UNKNOWN:
                    return  # of a topic that is gone
                if code in GONE_ON or code == KafkaError._STATE:
                    raise self._fenced(error, offsets) from None
                if code != KafkaError.REBALANCE_IN_PROGRESS:
                    raise self._client.failure(error) from None
            if self._inside:
                continue  # the others end it by themselves, and then it can be committed
            self._pump(1, 0.02)
            if not offsets.offsets.keys() <= self._positions.assigned.keys():
                raise self._fenced(KafkaError(KafkaError.ILLEGAL_GENERATION), offsets)

    def _fenced(self, error: KafkaException | KafkaError, offsets: KafkaOffsets) -> HeadraceError:
        if isinstance(error, KafkaException) and error.args[0].code() == KafkaError._STATE:
            error = KafkaError(KafkaError.UNKNOWN_MEMBER_ID)
        return self._client.failure(error, partition=offsets.partitions[0].partition)

    # The end

    def _end(self, *, commit: bool) -> None:
        try:
            if commit and self._mode == "after" and self.grouped:
                self._commit(synced=False)
        except (MemberFenced, UnknownTopic):
            return  # the group has gone on: there is nothing left to leave
        finally:
            self._leaving = True
            self._consumer.close()


def _settings(terms: Terms) -> dict[str, Any]:
    session = terms.session // timedelta(milliseconds=1)
    settings: dict[str, Any] = {
        "group_id": terms.group,
        "partition_assignment_strategy": STRATEGIES[terms.assignor],
        "session_timeout_ms": session,
        "heartbeat_interval_ms": max(1, min(session // 5, 3000)),
        "max_poll_interval_ms": max(session, terms.max_poll_interval // timedelta(milliseconds=1)),
    }
    if terms.instance is not None:
        settings["group_instance_id"] = terms.instance
    return settings


def _cursor(mine: Assigned) -> KafkaCursor:
    assert isinstance(mine.cursor, KafkaCursor)
    return mine.cursor


def _place(mine: Assigned) -> TopicPartition:
    """Where a partition is fetched from next."""
    cursor = _cursor(mine)
    return TopicPartition(cursor.topic.name, cursor.partition, cursor.fetched)
