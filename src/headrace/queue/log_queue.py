"""A queue on an embedded log. Every settlement is a commit."""

from __future__ import annotations

import os
import socket
import threading
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import islice

from headrace.clock import SECOND, micros, to_datetime
from headrace.errors import InvalidSetting, LeaseLost
from headrace.log.interface import Log
from headrace.log.queueing import (
    Acquired,
    Outcome,
    QueueRow,
    QueueState,
    Settled,
)
from headrace.log.roles import Delivery, Producer, Transaction
from headrace.log.state import Receipt
from headrace.queue.contract import (
    Message,
    NewMessage,
    QueueCapability,
    Settlement,
    WorkQueue,
    check_settled_once,
)
from headrace.queue.journal import journal_rows, letters
from headrace.queue.putting import LOOK_AGAIN, all_headers, put_together, raw_batch

_PUT_AT_ONCE = 5_000
MINUTE = 60 * SECOND


class LogQueue(WorkQueue):
    """A queue on an embedded log. Thread-safe.

    `worker` names who takes messages, for `headrace queue show`.
    """

    capabilities = frozenset(QueueCapability)

    def __init__(self, log: Log, row: QueueRow, *, worker: str | None = None) -> None:
        self.name = row.name
        self.log = log
        self.row = row
        self.worker = worker or f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"
        self._queues = log.queues()
        self._clock = self._queues.clock
        self._raw = log.topic(row.topic).topic.schema is None
        self._putter: Producer | None = None
        self._settler: Producer | None = None
        self._lock = threading.Lock()
        self._nothing_until: tuple[int, int | None] | None = None
        """After a look that found nothing: the log's changes, and when to look again anyway."""

    def close(self) -> None:
        with self._lock:
            for producer in (self._putter, self._settler):
                if producer is not None:
                    producer.close()
            self._putter = self._settler = None

    # Putting

    def send(self, message: NewMessage) -> Delivery:
        self.check(message)
        if self.settings.max_messages is not None:
            self.put_many([message])
            return _Done()
        if not self._raw:
            return self._put().send(self.row.topic, message.value, message.key)
        return self._put().send(
            self.row.topic, message.raw_value, message.raw_key, all_headers(message, self._clock)
        )

    def put_many(self, messages: Iterable[NewMessage], *, timeout: timedelta | None = None) -> int:
        most = min(_PUT_AT_ONCE, self.settings.max_messages or _PUT_AT_ONCE)
        done = 0
        left = iter(messages)
        while some := list(islice(left, most)):
            for message in some:
                self.check(message)
            put_together([(self, some)], self._clock, timeout)
            done += len(some)
        return done

    def transaction(self) -> Transaction:
        """A transaction of the producer that puts messages."""
        return self._put().transaction()

    def changes(self) -> int:
        """A number that changes with the log."""
        return self._queues.changes()

    def add(
        self,
        transaction: Transaction,
        messages: Sequence[NewMessage],
        dropped: Sequence[Settlement] = (),
    ) -> None:
        """Put messages with a transaction, if there is room once others are dropped."""
        if self._raw:
            transaction.append(self.row.topic, raw_batch(messages, self._clock))
        else:
            for message in messages:
                transaction.send(self.row.topic, message.value, message.key)
        if self.settings.max_messages is not None:
            transaction.attach(self._queues.room(self.row, len(messages) - len(dropped)))
        if dropped:
            self._attach(transaction, dropped)

    def oldest(self, count: int) -> list[Settlement]:
        """Settlements that drop the oldest messages that nobody works on."""
        reason = f"the queue was full ({self.settings.max_messages} messages)"
        return [
            Settlement(self._message(each), Outcome.DROPPED, (), reason)
            for each in self._queues.oldest(self.row, count)
        ]

    def check(self, message: NewMessage) -> None:
        """Raise if the queue cannot have a message like this."""
        if message.priority and not self.settings.priorities:
            raise InvalidSetting(
                f"Queue {self.name!r} has no priorities",
                hint="Create it with priorities=true, or put messages without a priority",
            )
        if (message.priority or message.delay or message.headers) and not self._raw:
            raise InvalidSetting(
                f"The topic of queue {self.name!r} is typed, so its messages have no headers, no "
                "priority and no delay",
                hint="Use a queue with a topic of its own",
            )

    # Taking

    def take(self, limit: int = 1, *, timeout: timedelta = timedelta(0)) -> list[Message]:
        deadline = self._clock.monotonic() + micros(timeout)
        while True:
            messages = self._take(limit)
            now = self._clock.monotonic()
            if messages or now >= deadline:
                return messages
            self._clock.sleep(min(LOOK_AGAIN, deadline - now))

    def _take(self, limit: int) -> list[Message]:
        """Take what there is. Nothing is looked up until the log changes or something is due."""
        changes, now = self._queues.changes(), self._clock.monotonic()
        if self._nothing_until is not None:
            seen, due = self._nothing_until
            if changes == seen and (due is None or now < due):
                return []
        messages = self._taken(self._queues.acquire(self.row, limit, self.worker))
        self._nothing_until = None
        if not messages:
            due = self._queues.next_due(self.row)
            # A wall clock that is set moves what is due, and changes nothing in the log.
            self._nothing_until = (changes, None if due is None else now + min(due, MINUTE))
        return messages

    def _taken(self, acquired: Sequence[Acquired]) -> list[Message]:
        """The messages to hand out of those acquired. The others become dead letters."""
        most = self.settings.max_deliveries
        messages, over = [], []
        for each in acquired:
            message = self._message(each)
            if each.record is None:
                reason = "retention has deleted it"
                over.append(Settlement(message, Outcome.REJECTED, (), reason))
            elif most is not None and each.deliveries > most:
                reason = f"its lease ended {most} times: workers crashed, or were too slow"
                over.append(Settlement(message, Outcome.REJECTED, (), reason))
            else:
                messages.append(message)
        once = self.settings.delivery == "at-most-once"
        if once:
            over += [Settlement(message) for message in messages]
        lost = {message.id for message in self.settle(over)}
        messages = [message for message in messages if message.id not in lost]
        return [replace(message, handle=None) for message in messages] if once else messages

    def _message(self, each: Acquired) -> Message:
        record = each.record
        return Message(
            self.name,
            f"{self.row.topic}-{self.row.uid:x}-{each.partition}-{each.offset}",
            None if record is None else record.key,
            None if record is None else record.value,
            () if record is None else record.headers,
            each.deliveries,
            each.token,
            each.priority,
            each.partition,
            each.offset,
            to_datetime(0) if record is None else record.timestamp,
            None if record is None else record.commit,
            each,
        )

    # Settling

    def settle(self, settlements: Sequence[Settlement]) -> list[Message]:
        return self._exchange(settlements, 0)[0]

    def exchange(
        self, settlements: Sequence[Settlement], limit: int
    ) -> tuple[list[Message], list[Message]]:
        if not settlements:
            return [], self.take(limit)
        lost, acquired = self._exchange(settlements, limit)
        return lost, self._taken(acquired)

    def _exchange(
        self, settlements: Sequence[Settlement], limit: int
    ) -> tuple[list[Message], list[Acquired]]:
        check_settled_once(settlements)
        # At most once, messages were accepted before they were handed out.
        left = [s for s in settlements if s.sends or s.message.handle is not None]
        lost: list[Message] = []
        while left:
            part = self._queues.acquiring(self.row, limit, self.worker) if limit > 0 else None
            try:
                with self._settle().transaction() as transaction:
                    self._attach(transaction, left)
                    if part is not None:
                        transaction.attach(part)
                return lost, [] if part is None else part.acquired()
            except LeaseLost as error:
                gone = set(error.details["deliveries"])
                lost += [s.message for s in left if _delivery(s) in gone]
                left = [s for s in left if _delivery(s) not in gone]
        return lost, []

    def _attach(self, transaction: Transaction, settlements: Sequence[Settlement]) -> None:
        """Add settlements to a transaction: what they send, and their lines in the journal."""
        for settlement in settlements:
            for send in settlement.sends:
                transaction.send(send.topic, send.value, send.key, send.headers)
        settlements = [s for s in settlements if s.message.handle is not None]
        if not settlements:
            return
        transaction.append(self.row.journal, journal_rows(self.worker, settlements))
        dead = [s for s in settlements if s.outcome in (Outcome.REJECTED, Outcome.DROPPED)]
        if dead:
            transaction.append(self.row.dead_letters, letters(self.row, dead))
        settled = [
            Settled(
                s.message.partition,
                s.message.offset,
                s.message.token,
                s.outcome,
                s.reason,
                micros(s.delay),
                s.counted,
            )
            for s in settlements
        ]
        transaction.attach(self._queues.settling(self.row, settled))

    def renew(self, *messages: Message) -> list[Message]:
        held = [message.handle for message in messages if message.handle is not None]
        lost = {(e.partition, e.offset, e.token) for e in self._queues.renew(self.row, held)}
        return [m for m in messages if (m.partition, m.offset, m.token) in lost]

    def state(self) -> QueueState:
        return self._queues.state(self.row)

    def _put(self) -> Producer:
        with self._lock:
            if self._putter is None:
                self._putter = self.log.producer(acks="synced")
            return self._putter

    def _settle(self) -> Producer:
        with self._lock:
            if self._settler is None:
                self._settler = self.log.producer(acks="synced")
            return self._settler


class _Done(Delivery):
    """The result of a message that is committed already."""

    def wait(self) -> Receipt:
        return Receipt(None, 0, ())

    @property
    def done(self) -> bool:
        return True


def _delivery(settlement: Settlement) -> tuple[int, int, int]:
    message = settlement.message
    return message.partition, message.offset, message.token
