"""Kafka as a backend of the suite: real time, and a broker that is emptied after each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription

from headrace.clock import MILLISECOND, Clock, SystemClock, micros
from headrace.log import EARLIEST, Consumer, Log, Position, Time
from headrace.log.kafka import consumer as kafka_consumer
from headrace.log.kafka.consumer import KafkaConsumer
from headrace.log.kafka.log import KafkaLog
from headrace.log.roles import CommitMode
from tests.conformance.backends import Backend
from tests.waiting import left

BROKER = {
    "group.max.session.timeout.ms": "7200000",
    "group.min.session.timeout.ms": "100",
}

HASTE = 5
"""Divisor for waits of seconds. A wait of a minute or more takes `_MOMENT`."""
_MOMENT = 20 * MILLISECOND
_MINUTE = timedelta(minutes=1)
_BETWEEN = 5 * MILLISECOND
_SILENCE = timedelta(seconds=4)
"""Poll interval after which a member is gone, in tests marked `silence`."""


def _shortened(span: timedelta) -> timedelta:
    return span / HASTE if span < _MINUTE else timedelta(seconds=6)


class HastyLog(KafkaLog):
    """Kafka with shorter sessions, which also end when a member does not poll.

    Only where a test waits for the end of one: in tests marked `silence`, and for static members,
    which keep their place when they are closed. Any other session is as long as users have it: a
    busy machine can hold back heartbeats for seconds.

    Kafka's client sends heartbeats while its caller is busy, as it should. In a test, one thread
    polls all members, and a member that is not polled counts as gone. So its poll interval is
    short.
    """

    silence = _MINUTE

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
        if self.silence < _MINUTE or instance is not None:
            session = _shortened(session)
        return super().consumer(
            *topics,
            group=group,
            start=start,
            commit=commit,
            assignor=assignor,
            instance=instance,
            session=session,
            max_poll_interval=max(self.silence, session),
        )


def _ours(consumers: tuple[Consumer, ...]) -> list[KafkaConsumer]:
    return [consumer for consumer in consumers if isinstance(consumer, KafkaConsumer)]


def _groups(consumers: tuple[Consumer, ...]) -> set[str]:
    return {consumer._terms.group for consumer in _ours(consumers) if consumer._terms is not None}


class KafkaBackend(Backend):
    """A log on a broker, on the machine's clock: `later` really waits."""

    name = "kafka"

    @classmethod
    def begin(cls, request: pytest.FixtureRequest, folder: Path) -> Self:
        made = cls(folder)
        if request.node.get_closest_marker("silence"):
            made._silence = _SILENCE
        made._servers = request.getfixturevalue("own_broker").servers
        # Members hear of a rebalance by a heartbeat, and no test should wait for it.
        request.getfixturevalue("monkeypatch").setattr(kafka_consumer, "HEARTBEAT_MS", 400)
        made._admin = AdminClient({"bootstrap.servers": made._servers, "log_level": 0})
        return made

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._servers = ""
        self._silence = _MINUTE
        self._admin: AdminClient = None
        self._real = SystemClock()
        self._passed = timedelta(0)
        self._times = [(timedelta(0), self._next_millisecond())]

    def make(self, clock: Clock | None) -> Log:
        settings = "timeout=20s&topic.metadata.refresh.interval.ms=200"
        log = HastyLog(f"kafka://{self._servers}?{settings}")
        log.silence = self._silence
        return log

    def later(self, span: timedelta) -> None:
        self._passed += span
        wait = _MOMENT if span >= _MINUTE else micros(max(span, timedelta(0)) / HASTE)
        self._real.sleep(wait)
        self._times.append((self._passed, self._next_millisecond()))

    def time(self, span: timedelta) -> Time:
        for passed, real in self._times:
            if passed >= span:
                return Time(real)
        return Time(self._times[-1][1] + micros(timedelta(hours=1)))

    def waited(self, seconds: float, span: timedelta) -> bool:
        return 0 < seconds < 3600

    def miss(self, consumers: tuple[Consumer, ...], session: timedelta) -> None:
        ours = _ours(consumers)
        # A closed member has no id any more, but a static one keeps its place by its instance name.
        gone = {c._consumer.memberid() for c in ours if not c._closed}
        names = {c._terms.instance for c in ours if c._terms is not None and c._terms.instance}
        self.later(session)
        while any(
            member.member_id in gone or member.group_instance_id in names
            for group in _groups(consumers)
            for member in self._described(group).members
        ):
            self._real.sleep(_MOMENT)

    def rounds(self) -> Iterator[int]:
        """As many rounds as the test's time allows: a round may take no time at all."""
        for number in itertools.takewhile(lambda _: left() > 1, itertools.count()):
            yield number
            self._real.sleep(_BETWEEN)

    def _described(self, group: str) -> ConsumerGroupDescription:
        return self._admin.describe_consumer_groups([group])[group].result()

    def settled(self, log: Log, consumers: tuple[Consumer, ...]) -> bool:
        """True if the broker and the members agree on their assignments."""
        for group in _groups(consumers):
            found = self._described(group)
            assigned = {
                member.member_id: frozenset(
                    (p.topic, p.partition) for p in member.assignment.topic_partitions
                )
                for member in found.members
            }
            if found.state.name != "STABLE" or any(
                assigned.get(consumer._consumer.memberid()) != consumer.assignment
                for consumer in _ours(consumers)
            ):
                return False
        return True

    def close(self) -> None:
        super().close()
        admin = self._admin
        names = [name for name in admin.list_topics().topics if not name.startswith("__")]
        if names:
            for answer in admin.delete_topics(names).values():
                answer.result()
        while groups := [g.group_id for g in admin.list_consumer_groups().result().valid]:
            for answer in admin.delete_consumer_groups(groups).values():
                try:
                    answer.result()
                except KafkaException:
                    self._real.sleep(_MOMENT)  # a static member keeps its place for a while
        while any(name in admin.list_topics().topics for name in names):
            self._real.sleep(_MOMENT)

    def _next_millisecond(self) -> int:
        """A time after all appends so far, and before all later ones."""
        point = self._real.now() // MILLISECOND * MILLISECOND + MILLISECOND
        self._real.sleep(max(0, point - self._real.now()) + 1)
        return point
