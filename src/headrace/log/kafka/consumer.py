"""Consumers on Kafka, alone or in a Kafka consumer group."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NoReturn

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from headrace.clock import SECOND
from headrace.errors import HeadraceError, InvalidSetting, MemberFenced, Retryable, UnknownTopic
from headrace.log.declared import TopicRow
from headrace.log.kafka.client import HOME, Client, fetch
from headrace.log.kafka.failures import GONE_ON, UNKNOWN
from headrace.log.kafka.feed import Feed
from headrace.log.kafka.lookup import KafkaOffsets, at, committed, find_offsets
from headrace.log.kafka.topics import Topics
from headrace.log.position import Position
from headrace.log.positions import GroupOffsets, Place
from headrace.log.roles import CommitMode

_FIRST_ASSIGNMENT = 30 * SECOND
HEARTBEAT_MS = 3000
"""Longest time between two heartbeats: by the next one, a member hears of a rebalance."""
STRATEGIES = {"sticky": "cooperative-sticky", "range": "range"}
"""Kafka's names of the assignors."""


@dataclass(frozen=True)
class Terms:
    """The settings of a consumer in a group. `alone` is True if it is the first member."""

    group: str
    assignor: str
    instance: str | None
    session: timedelta
    max_poll_interval: timedelta
    alone: bool


class KafkaConsumer(Feed):
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
        super().__init__(client, topics, rows, start=start, commit=commit)
        self._terms = terms
        self._rebalances = 0
        self._leaving = False
        self._inside = False
        self._trouble: HeadraceError | None = None
        self._owed: list[TopicPartition] = []
        self._member: Any = None
        first = {row.id: self._starts(row, start) for row in rows}  # rejects an invalid position
        if terms is None:
            self._consumer = client.consumer()
            for row in rows:
                self._open(row, first[row.id], {})
            self._assign()
        else:
            self._consumer = client.consumer(**_settings(terms))
            self._subscribe()
            try:
                self._await_assignment(terms)
            except BaseException:
                self._consumer.close()
                raise

    @property
    def home(self) -> str:
        return HOME

    @property
    def grouped(self) -> bool:
        return self._terms is not None

    @property
    def generation(self) -> int:
        return self._rebalances

    # The group

    def _subscribe(self) -> None:
        self._consumer.subscribe(
            sorted(row.name for row in self._rows.values()),
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )

    def _await_assignment(self, terms: Terms) -> None:
        """Wait for the first assignment, unless other members have to release partitions."""
        end = self._clock.monotonic() + min(_FIRST_ASSIGNMENT, int(self._client.seconds * SECOND))
        self._pump(1, 0)
        while terms.alone and not self._rebalances and self._clock.monotonic() < end:
            self._pump(1, 0.05)

    def _fetch(self, most: int, seconds: float) -> list[Message]:
        found: list[Message] = []
        self._inside = True  # the client must not be polled from a callback
        try:
            found = fetch(self._consumer, most, seconds)
            if self.grouped:
                self._member = self._consumer.consumer_group_metadata()
        except KafkaException as error:
            self._fail(error.args[0], None)
        finally:
            self._inside = False
        self._take_owed()
        if self._trouble is not None and not found:  # else these messages would be lost
            trouble, self._trouble = self._trouble, None
            raise trouble
        return found

    def _fail(self, error: KafkaError, topic: str | None) -> NoReturn:
        instance = None if self._terms is None else self._terms.instance
        if error.code() in (KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID) and instance:
            raise MemberFenced(
                f"Another consumer has taken the instance name {instance!r}",
                hint="Give each running consumer its own instance name",
            )
        if error.code() == KafkaError.INCONSISTENT_GROUP_PROTOCOL and self._terms is not None:
            raise InvalidSetting(
                f"The members of group {self._terms.group!r} do not use the assignor "
                f"{self._terms.assignor!r}",
                hint="Use their assignor, or stop all of them first",
            )
        raise self._client.failure(error, topic=topic)

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._rebalances += 1
        starts = self._taken_over(consumer, partitions)
        waiting = [TopicPartition(p.topic, p.partition, 0) for p in self._owed if p in partitions]
        if self._steady:
            consumer.incremental_assign(starts + waiting)
        else:
            consumer.assign(starts + waiting)
        consumer.pause(waiting)

    def _taken_over(
        self, consumer: Consumer, partitions: list[TopicPartition]
    ) -> list[TopicPartition]:
        """Start positions of new partitions. Those whose lookup can be retried become `_owed`."""
        starts: list[TopicPartition] = []
        for name in {partition.topic for partition in partitions}:
            mine = [p for p in partitions if p.topic == name]
            try:
                starts += self._take_over(consumer, name, mine)
            except (HeadraceError, KafkaException) as error:
                failure = error if isinstance(error, HeadraceError) else self._client.failure(error)
                self._trouble = failure
                if isinstance(failure, Retryable):
                    self._owed += mine
        return starts

    def _take_owed(self) -> None:
        """Retry the start of partitions whose lookup failed when they were assigned."""
        if self._owed:
            owed, self._owed = self._owed, []
            if isinstance(self._trouble, Retryable):
                self._trouble = None
            for start in self._taken_over(self._consumer, owed):
                mine = self._mine(start.topic, start.partition)
                if mine is not None:
                    self._begin_here(mine)

    @property
    def _steady(self) -> bool:
        return self._terms is not None and self._terms.assignor == "sticky"

    def _take_over(
        self, consumer: Consumer, name: str, partitions: list[TopicPartition]
    ) -> list[TopicPartition]:
        row = self._topics.find(name)
        for old in list(self._rows.values()):
            if old.name == name and old.id != row.id:
                self._move(old, row)
        self._replace(row)
        found = consumer.committed(partitions, self._client.seconds)
        done = {place.partition: committed(row, place) for place in found}
        fresh = [number for number, offset in done.items() if offset is None]
        offsets = {number: offset for number, offset in done.items() if offset is not None}
        offsets |= find_offsets(self._client, row, fresh, self._start)
        self._open(row, offsets, done)
        return [TopicPartition(name, number, offset) for number, offset in offsets.items()]

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._rebalances += 1
        if self._mode == "after" and not self._leaving:
            # The next owner gets uncommitted records again.
            with contextlib.suppress(HeadraceError):
                self._commit(synced=False)
        self._let_go(consumer, partitions)

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._rebalances += 1
        self._let_go(consumer, partitions)

    def _let_go(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._owed = [partition for partition in self._owed if partition not in partitions]
        for partition in partitions:
            for row in list(self._rows.values()):
                place = (row.id, partition.partition)
                if row.name == partition.topic and place in self._positions.assigned:
                    self._give_up(place)
        if self._steady:
            consumer.incremental_unassign(partitions)
        else:
            consumer.unassign()

    def _rejoin(self) -> None:
        return  # Kafka's client rejoins when it is polled

    # Offsets

    def _committed(self, place: Place) -> int | None:
        row = self._rows[place[0]]
        with self._client.translating():
            (found,) = self._consumer.committed(
                [TopicPartition(row.name, place[1])], self._client.seconds
            )
        return committed(row, found)

    def _offsets(self, moved: dict[Place, int]) -> GroupOffsets:
        assert self._terms is not None
        places = [at(self._rows[topic], number, done) for (topic, number), done in moved.items()]
        return KafkaOffsets(self._terms.group, self._member, moved, places)

    def _store(self, offsets: GroupOffsets, *, synced: bool) -> None:
        assert isinstance(offsets, KafkaOffsets)
        for _ in self._client.moments():
            try:
                self._consumer.commit(offsets=list(offsets.partitions), asynchronous=False)
                return
            except KafkaException as error:
                code = error.args[0].code()
                if code in UNKNOWN:
                    return  # the topic is gone
                if code in GONE_ON or code == KafkaError._STATE:
                    raise self._fenced(error, offsets) from None
                if code == KafkaError._FATAL:
                    self._fail(error.args[0], None)
                if code != KafkaError.REBALANCE_IN_PROGRESS:
                    raise self._client.failure(error) from None
            if self._inside:
                continue  # the other members end the rebalance; then the commit succeeds
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
            return  # the group has moved on: there is nothing left to leave
        finally:
            self._leaving = True
            self._consumer.close()


def _settings(terms: Terms) -> dict[str, Any]:
    session = terms.session // timedelta(milliseconds=1)
    settings: dict[str, Any] = {
        "group_id": terms.group,
        "partition_assignment_strategy": STRATEGIES[terms.assignor],
        "session_timeout_ms": session,
        "heartbeat_interval_ms": max(1, min(session // 5, HEARTBEAT_MS)),
        "max_poll_interval_ms": max(session, terms.max_poll_interval // timedelta(milliseconds=1)),
    }
    if terms.instance is not None:
        settings["group_instance_id"] = terms.instance
    return settings
