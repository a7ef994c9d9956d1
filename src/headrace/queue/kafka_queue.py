"""A queue on Kafka: a share group. At least once, and without what a share group lacks.

The group has the queue's name, and its configuration is where the queue's settings are. Kafka drops
a record without a word when it was handed out as often as the group's limit says, so that limit is
higher than the queue's own by what a worker may need to write the dead letter.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from datetime import timedelta

from headrace.clock import MILLISECOND, SystemClock, micros, to_datetime
from headrace.errors import InvalidPosition, InvalidSetting, TopicExists, UnknownQueue
from headrace.log.dead_letter import DEAD_LETTER
from headrace.log.kafka.log import KafkaLog
from headrace.log.kafka.shares import Answer, Place, Shared
from headrace.log.position import EARLIEST, LATEST, Position
from headrace.log.queueing import Outcome, QueueRow, QueueSettings, QueueState
from headrace.log.roles import Delivery, Transaction, Writer
from headrace.queue.contract import (
    Message,
    NewMessage,
    QueueCapability,
    Settlement,
    WorkQueue,
    check_settled_once,
    lacks,
    queue_exists,
)
from headrace.queue.journal import letters

_SPARE = 3
"""Deliveries in which workers may crash before they have written the dead letter."""

_LEASE = "share.record.lock.duration.ms"
_LIMIT = "share.delivery.count.limit"
_START = "share.auto.offset.reset"
_STARTS = {EARLIEST: "earliest", LATEST: "latest"}
_SLICE = 100 * MILLISECOND

_NEEDS = {
    "ordered": QueueCapability.KEY_ORDER,
    "key_concurrency": QueueCapability.KEY_LIMITS,
    "key_rate": QueueCapability.KEY_LIMITS,
    "priorities": QueueCapability.PRIORITY,
    "max_messages": QueueCapability.BOUND,
    "backoff": QueueCapability.DELAY,
    "delivery": QueueCapability.AT_MOST_ONCE,
}
"""The settings that need what a share group lacks."""


def create_kafka_queue(
    log: KafkaLog,
    name: str,
    *,
    topic: str | None = None,
    partitions: int = 1,
    settings: QueueSettings,
    start: Position = EARLIEST,
) -> KafkaQueue:
    """Create a queue over the topic of its name, or over another one."""
    plain = QueueSettings()
    for setting, capability in _NEEDS.items():
        if getattr(settings, setting) != getattr(plain, setting):
            raise lacks(name, capability)
    if start not in _STARTS:
        raise InvalidPosition(
            f"Queue {name!r} on Kafka cannot start at {start}", hint="Use earliest or latest"
        )
    if settings.max_deliveries is None:
        raise InvalidSetting(
            "Kafka limits the deliveries of a message",
            hint="Set max_deliveries, so that a dead letter is written before Kafka drops it",
        )
    if _LIMIT in log.share_settings(name):
        raise queue_exists(name)
    if topic is None:
        with contextlib.suppress(TopicExists):
            log.create_topic(name, partitions=partitions)
    with contextlib.suppress(TopicExists):
        log.create_topic(f"{name}.dead", schema=DEAD_LETTER)
    log.set_share_settings(
        name,
        {
            _LEASE: str(settings.lease // timedelta(milliseconds=1)),
            _LIMIT: str(settings.max_deliveries + _SPARE),
            _START: _STARTS[start],
            "share.isolation.level": "read_committed",
        },
    )
    return KafkaQueue(log, name, topic=topic)


class KafkaQueue(WorkQueue):
    """A queue on Kafka. Thread-safe.

    Kafka hands out up to about `prefetch` messages at once, and the next ones when all of these are
    settled. It counts each delivery, even one that a worker gave back untouched.
    """

    capabilities = frozenset[QueueCapability]()

    def __init__(
        self, log: KafkaLog, name: str, *, topic: str | None = None, prefetch: int = 100
    ) -> None:
        configs = log.share_settings(name)
        if _LIMIT not in configs:
            raise UnknownQueue(
                f"There is no queue {name!r} at {log.url}",
                hint="Create it: headrace queue create",
                queue=name,
            )
        self.name = name
        self.log = log
        lease = timedelta(milliseconds=int(configs[_LEASE]))
        self._most = int(configs[_LIMIT]) - _SPARE
        settings = QueueSettings(lease=lease, max_deliveries=self._most)
        self.row = QueueRow(0, name, topic or name, 0, settings)
        self._uid = log.topic_ids([self.row.topic]).get(self.row.topic, 0)
        self._raw = log.topic(self.row.topic).topic.schema is None
        self._clock = SystemClock()
        self._producer = log.producer(acks="synced")
        self._member = log.share_member(self.row.topic, name, prefetch)
        self._lock = threading.Lock()
        self._waiting: deque[Message] = deque()
        self._stale = 0
        self._held: dict[Place, Message] = {}

    def close(self) -> None:
        with self._lock:
            self._producer.close()
            self._member.close()

    # Putting

    def send(self, message: NewMessage) -> Delivery:
        self.check(message)
        return self._send(self._producer, message)

    def _send(self, writer: Writer, message: NewMessage) -> Delivery:
        if not self._raw:
            return writer.send(self.row.topic, message.value, message.key)
        return writer.send(self.row.topic, message.raw_value, message.raw_key, message.headers)

    def check(self, message: NewMessage) -> None:
        """Raise if the queue cannot have a message like this."""
        if message.delay:
            self.require(QueueCapability.DELAY)
        if message.priority:
            self.require(QueueCapability.PRIORITY)

    def transaction(self) -> Transaction:
        """A transaction, whose messages workers see when it is committed."""
        return self._producer.transaction()

    def add(
        self,
        transaction: Transaction,
        messages: Sequence[NewMessage],
        dropped: Sequence[Settlement] = (),
    ) -> None:
        """Put messages with a transaction."""
        for message in messages:
            self._send(transaction, message)

    def changes(self) -> int:
        """Nothing waits for changes: the queue has no bound."""
        return 0

    def oldest(self, count: int) -> list[Settlement]:
        """Nothing is dropped: the queue has no bound."""
        return []

    def put_many(self, messages: Iterable[NewMessage], *, timeout: timedelta | None = None) -> int:
        sent = len([self.send(message) for message in messages])
        self._producer.flush()
        return sent

    # Taking

    def take(self, limit: int = 1, *, timeout: timedelta = timedelta(0)) -> list[Message]:
        deadline = self._clock.monotonic() + micros(timeout)
        while True:
            with self._lock:
                if not self._waiting and not self._held:
                    left = max(0, deadline - self._clock.monotonic())
                    self._fetch(min(left, _SLICE))
                if self._waiting and self._clock.monotonic() > self._stale:
                    self._drop_waiting()
                found = [self._waiting.popleft() for _ in range(min(limit, len(self._waiting)))]
                self._held |= {_place(message): message for message in found}
            left = deadline - self._clock.monotonic()
            if found or left <= 0:
                return found
            if self._held:
                self._clock.sleep(min(left, _SLICE // 10))

    def _fetch(self, patience: int) -> None:
        """Ask for messages, and write dead letters for those that were handed out too often."""
        begin = self._clock.monotonic()
        over: list[Settlement] = []
        for each in self._member.poll(patience / 1_000_000):
            message = self._message(each)
            if each.record is None:
                over.append(Settlement(message, Outcome.REJECTED, (), each.problem))
            elif each.deliveries > self._most:
                reason = f"its lease ended {self._most} times: workers crashed, or were too slow"
                over.append(Settlement(message, Outcome.REJECTED, (), reason))
            else:
                self._waiting.append(message)
        # They were acquired after that, so until then half of the lease is left at least.
        self._stale = begin + micros(self.settings.lease) // 2
        if over:
            self._end(over)

    def _drop_waiting(self) -> None:
        """Give back what waited here for too long: its lease might end while it is worked on."""
        answers: list[tuple[Place, Answer]] = [(_place(m), "release") for m in self._waiting]
        self._waiting.clear()
        self._member.acknowledge(answers)

    def _message(self, each: Shared) -> Message:
        record = each.record
        return Message(
            self.name,
            f"{self.row.topic}-{self._uid:x}-{each.partition}-{each.offset}",
            None if record is None else record.key,
            each.value if record is None else record.value,
            () if record is None else record.headers,
            each.deliveries,
            each.deliveries,
            0,
            each.partition,
            each.offset,
            to_datetime(0) if record is None else record.timestamp,
            None,
        )

    # Settling

    def settle(self, settlements: Sequence[Settlement]) -> list[Message]:
        check_settled_once(settlements)
        if any(settlement.sends for settlement in settlements):
            self.require(QueueCapability.ATOMIC_ACCEPT)
        if any(settlement.delay for settlement in settlements):
            self.require(QueueCapability.DELAY)
        with self._lock:
            mine = [s for s in settlements if self._held.get(_place(s.message)) is s.message]
            refused = self._end(mine) if mine else set()
            for settlement in mine:
                del self._held[_place(settlement.message)]
        gone = {id(s) for s in settlements} - {id(s) for s in mine}
        return [s.message for s in settlements if id(s) in gone or s.message.partition in refused]

    def _end(self, settlements: Sequence[Settlement]) -> set[int]:
        """Write dead letters, and then tell Kafka: a crash in between repeats a letter."""
        dead = [s for s in settlements if s.outcome == Outcome.REJECTED]
        if dead:
            for batch in letters(self.row, dead).to_batches():
                self._producer.append(self.row.dead_letters, batch)
        return self._member.acknowledge(
            [(_place(s.message), _ANSWERS[s.outcome]) for s in settlements]
        )

    def renew(self, *messages: Message) -> list[Message]:
        raise lacks(self.name, QueueCapability.RENEW)

    def state(self) -> QueueState:
        raise lacks(self.name, QueueCapability.COUNTS)


_ANSWERS: dict[Outcome, Answer] = {
    Outcome.ACCEPTED: "accept",
    Outcome.RELEASED: "release",
    Outcome.REJECTED: "reject",
}


def _place(message: Message) -> Place:
    return message.partition, message.offset
