"""The role of a log that hands out messages one by one, and the settings of its queues.

`headrace.queue` builds the interface of users on it. A queue is state over a topic: which messages
are finished, and which are acquired, by whom and until when. The messages stay in the topic.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

from headrace.clock import Clock
from headrace.errors import InvalidSetting
from headrace.log.record import Record
from headrace.log.roles import CommitPart
from headrace.log.settings import format_span, parse_span

PRIORITY_HEADER = "headrace-priority"
"""The header of a message's priority, a whole number in text; higher comes first, 0 is usual."""

DUE_HEADER = "headrace-due"
"""The header of the time before which a message is not handed out: microseconds since the epoch."""

OVERFLOW = ("block", "refuse", "drop")
DELIVERY = ("at-least-once", "at-most-once")

LONGEST_LEASE = timedelta(hours=12)
LONGEST_DELAY = timedelta(days=36_500)
HIGHEST_PRIORITY = 1_000_000_000
RATES = (1e-8, 1e6)
"""The lowest and the highest messages per second of a key."""


@dataclass(frozen=True)
class QueueSettings:
    """The settings of a queue. None means no limit."""

    lease: timedelta = timedelta(seconds=30)
    """A message that is neither settled nor renewed for this long is handed out again."""
    max_deliveries: int | None = 5
    """A message that was handed out this often and not accepted becomes a dead letter."""
    backoff: timedelta = timedelta(seconds=1)
    """The delay after a first failure; it doubles with each further one."""
    max_backoff: timedelta = timedelta(minutes=5)
    """The longest delay after a failure."""
    delivery: str = "at-least-once"
    """`at-most-once` accepts a message before it is handed out, so that a crash loses it."""
    ordered: bool = False
    """Hand out one message of a key at a time, in order. A failed one holds up its key."""
    key_concurrency: int | None = None
    """At most this many messages of a key are acquired at once."""
    key_rate: float | None = None
    """At most this many messages of a key are handed out per second, evenly spaced."""
    priorities: bool = False
    """Hand out messages of a higher priority first. All that wait are looked at before that."""
    max_messages: int | None = None
    """The bound of the queue: messages that are not finished."""
    overflow: str = "block"
    """What `put` does in a full queue: `block`, `refuse`, or `drop` the oldest (a dead letter)."""

    def __post_init__(self) -> None:
        for name, choices in (("overflow", OVERFLOW), ("delivery", DELIVERY)):
            if getattr(self, name) not in choices:
                raise InvalidSetting(
                    f"{name} cannot be {getattr(self, name)!r}", hint=f"Use {', '.join(choices)}"
                )
        for name in ("max_deliveries", "key_concurrency", "key_rate", "max_messages"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise InvalidSetting(f"{name} cannot be {value}", hint="Choose a positive number")
        for name in ("lease", "backoff", "max_backoff"):
            least = timedelta(milliseconds=1) if name == "lease" else timedelta(0)
            if not least <= getattr(self, name) <= LONGEST_LEASE:
                raise InvalidSetting(
                    f"{name} cannot be {getattr(self, name)}", hint=f"At most {LONGEST_LEASE}"
                )
        if self.key_rate is not None and not RATES[0] <= self.key_rate <= RATES[1]:
            raise InvalidSetting(
                f"key_rate cannot be {self.key_rate}",
                hint=f"Choose a number from {RATES[0]} to {RATES[1]:.0f} per second",
            )
        if self.ordered and self.key_concurrency not in (None, 1):
            raise InvalidSetting(
                f"An ordered queue cannot hand out {self.key_concurrency} messages of a key",
                hint="Leave out key_concurrency, or ordered",
            )

        if self.ordered and self.priorities:
            raise InvalidSetting(
                "An ordered queue has no priorities: they would change the order",
                hint="Leave out priorities, or ordered",
            )

    @property
    def by_key(self) -> bool:
        """True if messages of one key depend on each other."""
        return self.ordered or self.key_concurrency is not None or self.key_rate is not None

    @property
    def per_key(self) -> int | None:
        """The number of messages of a key that may be acquired at once."""
        return 1 if self.ordered else self.key_concurrency

    def delay_after(self, deliveries: int) -> timedelta:
        """The delay of a message that failed at this delivery."""
        doubled: int = 2 ** min(deliveries - 1, 20)
        return min(self.max_backoff, self.backoff * doubled)

    def change(self, changes: Mapping[str, Any]) -> QueueSettings:
        """These settings with some changed; values may be text, as on the command line."""
        known = {field.name: field for field in dataclasses.fields(self)}
        for name in changes:
            if name not in known:
                raise InvalidSetting(
                    f"There is no queue setting {name!r}", hint=f"There are: {', '.join(known)}"
                )
        return dataclasses.replace(
            self, **{n: _parsed(n, str(known[n].type), v) for n, v in changes.items()}
        )

    def to_text(self) -> dict[str, str | None]:
        """The settings as text, as `change` takes them."""
        return {name: _text(value) for name, value in dataclasses.asdict(self).items()}


def _text(value: object) -> str | None:
    if isinstance(value, timedelta):
        return format_span(value)
    return None if value is None else str(value)


def _parsed(name: str, kind: str, value: Any) -> Any:
    if value is None or (value == "none" and "None" in kind):
        if "None" not in kind:
            raise InvalidSetting(f"{name} cannot be none", hint="Leave it out for its default")
        return None
    if not isinstance(value, str):
        return value
    try:
        if kind.startswith("timedelta"):
            return parse_span(value)
        if kind == "bool":
            return {"true": True, "false": False}[value.lower()]
        return int(value) if kind.startswith("int") else float(value) if "float" in kind else value
    except (KeyError, ValueError) as error:
        raise InvalidSetting(f"{name} cannot be {value!r}", hint=f"It takes {kind}") from error


class Outcome(StrEnum):
    """The end of a delivery, or an operation on the queue: a line of its journal."""

    ACCEPTED = "accepted"
    """It is done."""
    RELEASED = "released"
    """It is handed out again, at once or after a delay."""
    REJECTED = "rejected"
    """It is a dead letter."""
    DROPPED = "dropped"
    """It was the oldest of a full queue, and is a dead letter."""
    PURGED = "purged"
    """It was removed by hand."""
    REDRIVEN = "redriven"
    """A dead letter that waits again."""
    CREATED = "created"
    """The queue begins here."""
    SOUGHT = "sought"
    """The queue went on from another position; everything from there on waits."""


@dataclass(frozen=True)
class QueueRow:
    """A queue as stored in its log. `uid` is its topic's, so that message ids are unique."""

    id: int
    name: str
    topic: str
    uid: int
    settings: QueueSettings

    @property
    def journal(self) -> str:
        """The topic of its settlements."""
        return f"{self.name}.journal"

    @property
    def dead_letters(self) -> str:
        """The topic of its dead letters."""
        return f"{self.name}.dead"


@dataclass(frozen=True, slots=True)
class Acquired:
    """A message that was handed out: under the fencing token `token`, for the `deliveries`th time.

    `record` is None if retention has deleted it.
    """

    partition: int
    offset: int
    token: int
    deliveries: int
    priority: int
    record: Record | None


@dataclass(frozen=True, slots=True)
class Settled:
    """The end of a delivery. A released message waits for `delay` microseconds.

    One that is released without `counted` was not tried, so its delivery does not count.
    """

    partition: int
    offset: int
    token: int
    outcome: Outcome
    reason: str = ""
    delay: int = 0
    counted: bool = True


@dataclass(frozen=True)
class QueueState:
    """The messages of a queue that are not finished, and its dead letters.

    `ready` can be handed out now; `delayed` wait for a time; `blocked` wait for others of their
    key; `unread` were not looked at yet, and are some of each. `oldest` is the time of the oldest
    message that is not finished.
    """

    name: str
    ready: int
    acquired: int
    delayed: int
    blocked: int
    unread: int
    dead: int
    oldest: int | None

    @property
    def waiting(self) -> int:
        """Messages that are neither finished nor acquired."""
        return self.ready + self.delayed + self.blocked + self.unread

    @property
    def unfinished(self) -> int:
        return self.waiting + self.acquired


@dataclass(frozen=True)
class Lease:
    """An acquired message: its worker, and the microseconds until its lease ends."""

    partition: int
    offset: int
    token: int
    deliveries: int
    worker: str
    left: int


@dataclass(frozen=True)
class DeadMessage:
    """A dead letter that was not sent again, with the commit that made it one."""

    partition: int
    offset: int
    reason: str
    deliveries: int
    commit: int


class Acquiring(CommitPart, ABC):
    """A part of a commit that hands out messages with it."""

    @abstractmethod
    def acquired(self) -> list[Acquired]:
        """The messages, after the commit."""


class Queues(ABC):
    """The queues of a log. A queue is named by its id, from its row."""

    clock: Clock
    """The log's clock."""

    @abstractmethod
    def creating(
        self, name: str, topic: str, settings: QueueSettings, offsets: Mapping[int, int]
    ) -> CommitPart:
        """A part that creates a queue over an existing topic, from these offsets by partition."""

    @abstractmethod
    def alter(self, name: str, settings: QueueSettings) -> QueueRow:
        """Change a queue's settings."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Delete a queue. Its topics stay."""

    @abstractmethod
    def all(self) -> list[QueueRow]:
        """Every queue, by name."""

    @abstractmethod
    def find(self, name: str) -> QueueRow:
        """A queue by name."""

    @abstractmethod
    def acquire(self, queue: QueueRow, limit: int, worker: str) -> list[Acquired]:
        """Hand out up to `limit` messages, in order.

        Thousands of messages that nobody has looked at are looked at in one call. None is handed
        out if more are to be looked at first.
        """

    @abstractmethod
    def acquiring(self, queue: QueueRow, limit: int, worker: str) -> Acquiring:
        """A part that hands out up to `limit` messages with a commit."""

    @abstractmethod
    def changes(self) -> int:
        """A number that changes whenever another process, or this log, commits."""

    @abstractmethod
    def next_due(self, queue: QueueRow) -> int | None:
        """Microseconds until a delayed message is due or a lease ends; None if there is none."""

    @abstractmethod
    def renew(self, queue: QueueRow, held: Sequence[Acquired]) -> list[Acquired]:
        """Begin the leases anew; return those that were lost."""

    @abstractmethod
    def settling(self, queue: QueueRow, settled: Sequence[Settled]) -> CommitPart:
        """A part that ends deliveries. Its commit raises `LeaseLost` if a lease was lost."""

    @abstractmethod
    def room(self, queue: QueueRow, wanted: int) -> CommitPart:
        """A condition: the queue has room for `wanted` messages. Else `QueueFull`."""

    @abstractmethod
    def state(self, queue: QueueRow) -> QueueState:
        """The counts of a queue's messages."""

    @abstractmethod
    def leases(self, queue: QueueRow, limit: int) -> list[Lease]:
        """The acquired messages, those whose lease ends first at first."""

    @abstractmethod
    def dead(
        self,
        queue: QueueRow,
        reason: str | None = None,
        upto: int | None = None,
        limit: int | None = None,
    ) -> list[DeadMessage]:
        """The oldest dead letters, by a part of their reason, up to a commit."""

    @abstractmethod
    def redriving(self, queue: QueueRow, dead: Sequence[DeadMessage]) -> CommitPart:
        """A part after which dead messages wait again, as if they were new."""

    @abstractmethod
    def seeking(self, queue: QueueRow, offsets: Mapping[int, int]) -> CommitPart:
        """A part after which exactly the messages from these offsets on, by partition, wait."""

    @abstractmethod
    def oldest(self, queue: QueueRow, limit: int) -> list[Acquired]:
        """The oldest messages that nobody works on, of the lowest priority, to drop them.

        They are not acquired: a commit that drops one fails if a worker has it then.
        """

    @abstractmethod
    def close(self) -> None:
        """Release what it keeps open."""
