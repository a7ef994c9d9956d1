"""The contract of a queue, whatever keeps it: the embedded log, or Kafka's share groups.

The words are those of Kafka's share groups. A worker *acquires* messages with `take` under a lease,
and then *accepts* each (it is done), *releases* it (it is handed out again), *rejects* it (it is a
dead letter) or *renews* its lease. What a kind of queue cannot do is missing from its
`capabilities`, and a call that needs it raises `Unsupported`.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from headrace.closing import Closing
from headrace.errors import (
    InvalidRecord,
    InvalidSetting,
    LeaseLost,
    MisusedHandle,
    QueueExists,
    Unsupported,
)
from headrace.log.queueing import (
    HIGHEST_PRIORITY,
    LONGEST_DELAY,
    Outcome,
    QueueRow,
    QueueSettings,
    QueueState,
)
from headrace.log.record import Header
from headrace.log.roles import Delivery


class QueueCapability(StrEnum):
    """A feature that not every kind of queue has."""

    ATOMIC_ACCEPT = "accepting a message, its results and its follow-ups in one commit"
    RENEW = "leases that can be renewed"
    DELAY = "messages that wait for a time, and releases with a delay"
    PRIORITY = "messages of a higher priority first"
    KEY_ORDER = "one message of a key at a time, in order"
    KEY_LIMITS = "limits of rate and concurrency per key"
    BOUND = "a bound of its length"
    PAST_STATES = "its state at any past commit"
    REDRIVE = "dead letters that are sent again in place"
    AT_MOST_ONCE = "messages that are accepted before they are handed out"
    COUNTS = "counts of its messages"


@dataclass(frozen=True, slots=True)
class Send:
    """A record to be committed with a settlement: a result, or the next message of a chain."""

    topic: str
    value: Any
    key: Any = None
    headers: tuple[Header, ...] = ()


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to put. `value` is bytes or text, or what `json.dumps` takes."""

    value: Any
    key: Any = None
    headers: tuple[Header, ...] = ()
    priority: int = 0
    delay: timedelta | None = None

    def __post_init__(self) -> None:
        if not -HIGHEST_PRIORITY <= self.priority <= HIGHEST_PRIORITY:
            raise InvalidSetting(
                f"A message cannot have the priority {self.priority}",
                hint=f"Use -{HIGHEST_PRIORITY} to {HIGHEST_PRIORITY}",
            )
        if self.delay is not None:
            _check_delay(self.delay)

    @property
    def raw_key(self) -> bytes | None:
        """The key for a topic of raw bytes."""
        if self.key is None or isinstance(self.key, bytes):
            return self.key
        return str(self.key).encode()

    @property
    def raw_value(self) -> bytes:
        """The value for a topic of raw bytes."""
        if isinstance(self.value, bytes):
            return self.value
        text = self.value if isinstance(self.value, str) else json.dumps(self.value)
        return text.encode()


@dataclass(frozen=True, slots=True)
class Message:
    """A message that was handed out, and is this worker's until its lease ends.

    `id` names the message, and is the same at each delivery: give it to other systems as the
    idempotency key. `deliveries` counts from 1. `token` is higher at each later delivery: a system
    that remembers the highest can refuse a worker that lost its lease.
    """

    queue: str
    id: str
    key: Any
    value: Any
    headers: tuple[Header, ...]
    deliveries: int
    token: int
    priority: int
    partition: int
    offset: int
    timestamp: datetime
    commit: int | None
    handle: Any = field(default=None, repr=False, compare=False)
    """What the kind of queue needs to settle it."""

    def json(self) -> Any:
        """The value, read as JSON. The row of a typed topic is returned as it is."""
        if not isinstance(self.value, bytes | str):
            return self.value
        try:
            return json.loads(self.value)
        except ValueError as error:
            raise InvalidRecord(
                f"Message {self.id} is not JSON: {error}",
                hint="Read its bytes as message.value, or put JSON",
            ) from error

    @property
    def text(self) -> str:
        """The value as text."""
        return self.value if isinstance(self.value, str) else bytes(self.value or b"").decode()

    def header(self, name: str) -> bytes | None:
        """The last header of a name, or None."""
        return next((value for key, value in reversed(self.headers) if key == name), None)

    def accepted(self, *sends: Send) -> Settlement:
        """The settlement that it is done, and what commits with it. A handler may return it."""
        return Settlement(self, Outcome.ACCEPTED, sends)

    def released(self, delay: timedelta = timedelta(0), reason: str = "") -> Settlement:
        """The settlement that it is to be handed out again. A handler may return it."""
        return Settlement(self, Outcome.RELEASED, (), reason, delay)

    def rejected(self, reason: str, *sends: Send) -> Settlement:
        """The settlement that it is a dead letter. A handler may return it."""
        return Settlement(self, Outcome.REJECTED, sends, reason)


@dataclass(frozen=True, slots=True)
class Settlement:
    """The end of a delivery: accepted, released or rejected, and what commits with it.

    A released message waits for `delay`. Without `counted` it was not tried, so the delivery does
    not count towards `max_deliveries`.
    """

    message: Message
    outcome: Outcome = Outcome.ACCEPTED
    sends: tuple[Send, ...] = ()
    reason: str = ""
    delay: timedelta = timedelta(0)
    counted: bool = True

    def __post_init__(self) -> None:
        _check_delay(self.delay)


def _check_delay(delay: timedelta) -> None:
    if not timedelta(0) <= delay <= LONGEST_DELAY:
        raise InvalidSetting(
            f"A message cannot wait for {delay}", hint=f"Use 0 to {LONGEST_DELAY.days} days"
        )


class WorkQueue(Closing):
    """A queue of messages for workers. It may be used by several threads."""

    name: str
    row: QueueRow
    capabilities: frozenset[QueueCapability]

    @property
    def settings(self) -> QueueSettings:
        """The queue's settings."""
        return self.row.settings

    def failed(self, message: Message, reason: str) -> Settlement:
        """The settlement of a message whose handler failed: again later, or a dead letter."""
        most = self.settings.max_deliveries
        if most is not None and message.deliveries >= most:
            return message.rejected(f"failed {message.deliveries} times, the last time: {reason}")
        delay = timedelta(0)
        if QueueCapability.DELAY in self.capabilities:
            delay = self.settings.delay_after(message.deliveries)
        return message.released(delay, reason)

    def require(self, capability: QueueCapability) -> None:
        """Raise `Unsupported` if this kind of queue lacks a capability."""
        if capability not in self.capabilities:
            raise lacks(self.name, capability)

    # Putting

    @abstractmethod
    def send(self, message: NewMessage) -> Delivery:
        """Put a message with the next batch; `wait()` on the result returns its receipt."""

    @abstractmethod
    def put_many(self, messages: Iterable[NewMessage], *, timeout: timedelta | None = None) -> int:
        """Put messages now, in commits of many, and return their number.

        In a full queue it waits, up to `timeout`, and then raises `QueueFull`; or as `overflow`
        says.
        """

    def put(
        self,
        value: Any,
        *,
        key: Any = None,
        headers: Sequence[Header] = (),
        priority: int = 0,
        delay: timedelta | None = None,
        timeout: timedelta | None = None,
    ) -> None:
        """Put one message, and return when it is committed."""
        self.put_many([NewMessage(value, key, tuple(headers), priority, delay)], timeout=timeout)

    # Taking

    @abstractmethod
    def take(self, limit: int = 1, *, timeout: timedelta = timedelta(0)) -> list[Message]:
        """Acquire up to `limit` messages, waiting up to `timeout` for the first."""

    @abstractmethod
    def settle(self, settlements: Sequence[Settlement]) -> list[Message]:
        """End deliveries, in one commit, and return the messages whose lease was lost.

        Another worker has those, or has finished them; nothing was done about them.
        """

    def exchange(
        self, settlements: Sequence[Settlement], limit: int
    ) -> tuple[list[Message], list[Message]]:
        """Settle messages and take up to `limit` others, in one commit where that can be.

        Return the messages whose lease was lost, and the new ones.
        """
        return self.settle(settlements), self.take(limit)

    @abstractmethod
    def renew(self, *messages: Message) -> list[Message]:
        """Begin the leases of messages anew, and return the messages whose lease was lost."""

    def accept(self, *messages: Message, sends: Sequence[Send] = ()) -> None:
        """Finish messages, and commit `sends` with them."""
        self._settled([m.accepted(*(() if n else sends)) for n, m in enumerate(messages)])

    def release(
        self, *messages: Message, delay: timedelta = timedelta(0), reason: str = ""
    ) -> None:
        """Give messages back, to be handed out again after `delay`."""
        self._settled([m.released(delay, reason) for m in messages])

    def reject(self, *messages: Message, reason: str = "rejected") -> None:
        """Make messages dead letters."""
        self._settled([m.rejected(reason) for m in messages])

    def _settled(self, settlements: Sequence[Settlement]) -> None:
        lost = self.settle(settlements)
        if lost:
            raise lease_lost(lost)

    # State

    @abstractmethod
    def state(self) -> QueueState:
        """The counts of its messages now."""


def queue_exists(name: str) -> QueueExists:
    """The error for the name of another queue."""
    return QueueExists(
        f"Queue {name!r} already exists", hint=f"Open it: open_queue(log, {name!r})", queue=name
    )


def lacks(name: str, capability: QueueCapability) -> Unsupported:
    """The error for a capability that a queue lacks."""
    return Unsupported(
        f"Queue {name!r} does not have {capability.value}",
        hint="Use a queue on an embedded log (file:./data) if you need this",
        capability=capability.name,
    )


def check_settled_once(settlements: Sequence[Settlement]) -> None:
    """Raise if a delivery has two settlements in one call: they might contradict each other."""
    deliveries = Counter((s.message.id, s.message.token) for s in settlements)
    for (id, _), count in deliveries.items():
        if count > 1:
            raise MisusedHandle(
                f"Message {id} has {count} settlements in one call, so nothing was settled",
                hint="Settle each delivery once: accept, release or reject it",
                id=id,
            )


def lease_lost(lost: Sequence[Message]) -> LeaseLost:
    """The error for messages that another worker has meanwhile."""
    first = lost[0]
    more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
    return LeaseLost(
        f"The lease of message {first.id}{more} was lost, so it was not settled",
        hint="Its lease ended, or the queue was sought or purged, and another worker may have it. "
        "Renew the lease of long work, or give the queue a longer one",
        messages=[message.id for message in lost],
    )
