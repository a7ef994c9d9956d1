"""What every log can do, whether it lives in a folder or on a broker.

`Log` is the whole of it: topics, producers, consumers, reading, groups and upkeep. What one kind
of log cannot do is a `Capability` it does not list, and asking for it raises `Unsupported`.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from types import TracebackType
from typing import Any, Literal, Self

import pyarrow as pa

from headrace.errors import TopicExists, Unsupported
from headrace.log.assignment import Partition
from headrace.log.position import EARLIEST, LATEST, Position
from headrace.log.record import Batch, Header, Record
from headrace.log.settings import TopicSettings
from headrace.log.state import GroupState, Receipt, Topic, TopicCommit, TopicState, UpkeepReport

Acks = Literal["none", "written", "synced"]
CommitMode = Literal["before", "after", "manual"]


class Capability(StrEnum):
    """What a log may lack."""

    COMMITS = "commit numbers that order the whole log"
    FRONTIERS = "the highest event time of a topic at every commit"
    SEQUENCES = "producer sequences that a restarted process can go on from"
    ATOMIC_VISIBILITY = "transactions whose records become visible at one moment"
    DENSE_OFFSETS = "offsets without gaps until something is compacted"
    TYPED_TOPICS = "topics with a schema of columns"
    UPKEEP = "retention and compaction on demand"
    TIERING = "closed segments on another filesystem"


class Delivery(ABC):
    """The promise of `send`: the batch the record went into."""

    @abstractmethod
    def wait(self) -> Receipt:
        """Have the batch committed now, and return the log's answer."""

    @property
    @abstractmethod
    def done(self) -> bool:
        """Whether the answer is there."""


class _Closing(ABC):
    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Writer(ABC):
    """Takes records: a producer commits them by and by, a transaction all at once."""

    @abstractmethod
    def send(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        headers: Sequence[Header] | None = None,
        partition: int | None = None,
    ) -> Delivery:
        """Add one record.

        In a raw topic `key` and `value` are bytes or text. In a typed one `value` is the row as
        a dict, and its key is in it; a `value` of None with a `key` is a tombstone.

        A record is either refused with an error or taken, once. If the log is busy or full when
        its batch is due, it stays taken, and `flush` and `close` try again and tell.
        """


class Transaction(Writer):
    """All or nothing, over any topics and the offsets of a group."""

    @abstractmethod
    def append(
        self, topic: str, data: pa.RecordBatch | pa.Table, *, partition: int | None = None
    ) -> None:
        """Add whole Arrow batches."""

    @abstractmethod
    def commit_offsets(self, consumer: Consumer) -> None:
        """Have the consumer's group go on, once this commits, after what it has polled so far."""

    @abstractmethod
    def commit(self) -> Receipt | None:
        """Make it all visible; None if there were no records in it."""

    @abstractmethod
    def abort(self) -> None:
        """Forget it all."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.commit()
        else:
            self.abort()


class Producer(_Closing, Writer):
    """Writes to the log. Closing it commits what was sent."""

    id: str

    @abstractmethod
    def append(
        self,
        topic: str,
        data: pa.RecordBatch | pa.Table,
        *,
        partition: int | None = None,
        sequence: int | None = None,
    ) -> Receipt:
        """Commit whole Arrow batches now.

        Rows go to partitions by key; without a key, or with `partition`, all go to one. With a
        `sequence`, a repeated call adds nothing and returns the first one's receipt.
        """

    @abstractmethod
    def flush(self) -> None:
        """Return when everything sent is committed."""

    @abstractmethod
    def transaction(self) -> Transaction:
        """Begin a transaction; use it in a `with` block."""

    @property
    @abstractmethod
    def next_sequence(self) -> int:
        """The sequence number the log expects next of this producer's id."""

    @property
    @abstractmethod
    def last_receipt(self) -> Receipt | None:
        """The log's answer to the last commit under this id, be it of an earlier process.

        None if there was none, or if retention has taken it away since.
        """


class Consumer(_Closing):
    """Reads topics from a position that it, or its group, keeps."""

    @abstractmethod
    def poll(self, timeout: timedelta = timedelta(0), max_records: int = 500) -> list[Record]:
        """The next records, waiting for the first of them up to `timeout`."""

    @abstractmethod
    def poll_batches(
        self, timeout: timedelta = timedelta(0), max_records: int = 100_000
    ) -> list[Batch]:
        """As `poll`, as Arrow."""

    @abstractmethod
    def commit(self) -> None:
        """Record for the group that everything polled so far is done."""

    @abstractmethod
    def rewind(self) -> None:
        """Go back to the group's committed offsets, as one must after an aborted transaction."""

    @property
    @abstractmethod
    def assignment(self) -> frozenset[Partition]:
        """The partitions this consumer reads now."""

    @property
    @abstractmethod
    def generation(self) -> int:
        """How often the group has been rebalanced, as far as this member knows."""

    @abstractmethod
    def position(self, topic: str, partition: int) -> int:
        """The offset that is read next."""

    @abstractmethod
    def seek(
        self, position: Position, topic: str | None = None, partition: int | None = None
    ) -> None:
        """Go on reading from `position` in the partitions named, or in all."""

    @abstractmethod
    def pause(self, *partitions: Partition) -> None:
        """Stop reading these (all, if none are named) and keep them."""

    @abstractmethod
    def resume(self, *partitions: Partition) -> None:
        """Undo `pause`."""

    @abstractmethod
    def __iter__(self) -> Iterator[Record]:
        """Records for ever, waiting for more. A record counts as handled when the next is asked
        for, so leaving the loop at any point loses nothing."""


class Log(_Closing):
    """A durable, partitioned, replayable history.

    Closing it closes its producers, which commit what they have, and its consumers, which do not
    commit: what they polled last may not have been handled.
    """

    url: str
    capabilities: frozenset[Capability]

    def require(self, capability: Capability) -> None:
        """Return if the log can do it, raise `Unsupported` if not."""
        if capability not in self.capabilities:
            raise Unsupported(
                f"The log at {self.url} does not have {capability.value}",
                hint="Use an embedded log (file:./data) where this is needed",
                capability=capability.name,
            )

    # Topics

    @abstractmethod
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
        """Declare a topic: typed if it has a `schema`, else raw bytes."""

    def ensure_topic(self, declared: Topic) -> Topic:
        """The topic of that name: made as declared, or as it was if it is there already."""
        with contextlib.suppress(TopicExists):
            return self.create_topic(
                declared.name,
                partitions=declared.partitions,
                schema=declared.schema,
                key=declared.key,
                event_time=declared.event_time,
                settings=declared.settings,
            )
        return self.topic(declared.name).topic

    @abstractmethod
    def topics(self) -> list[Topic]:
        """All topics, by name."""

    @abstractmethod
    def topic(self, name: str) -> TopicState:
        """One topic and what is in it."""

    @abstractmethod
    def alter_topic(
        self,
        name: str,
        *,
        settings: Mapping[str, Any] | None = None,
        partitions: int | None = None,
        schema: str | pa.Schema | None = None,
    ) -> Topic:
        """Change settings, add partitions, or add nullable columns at the end of the schema."""

    @abstractmethod
    def delete_topic(self, name: str) -> None:
        """Delete a topic, its records and what groups remember of it."""

    # Writing

    @abstractmethod
    def producer(
        self,
        *,
        id: str | None = None,
        acks: Acks = "synced",
        linger: timedelta = timedelta(milliseconds=10),
        batch_bytes: int = 4 << 20,
    ) -> Producer:
        """A producer. Giving it an `id` fences out any older one with the same id."""

    # Reading

    @abstractmethod
    def read(
        self,
        topic: str,
        *,
        start: Position = EARLIEST,
        stop: Position = LATEST,
        partitions: Iterable[int] | None = None,
        columns: Sequence[str] | None = None,
    ) -> Iterator[Batch]:
        """What the topic holds between two positions, partition by partition, and then stop.

        `stop` is fixed when the call is made. An offset applies to each partition read.
        """

    @abstractmethod
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
        """A consumer; with a `group` it shares the partitions with the group's other members.

        `start` is for partitions where the group has no committed offset. `commit` says when the
        group's offset moves past a record: `before` it is handed out (at most once), `after` the
        next poll shows that it was handled (at least once), or `manual`ly, by `commit()` or in a
        transaction (exactly once).
        """

    @abstractmethod
    def offset_at(self, topic: str, partition: int, position: Position) -> int:
        """The offset of the first record at or after a position."""

    # Commits and frontiers

    @abstractmethod
    def head(self) -> int:
        """The number of the last commit, 0 before the first."""

    @abstractmethod
    def commit_time(self, commit: int) -> int:
        """When a commit was made, in microseconds since the epoch."""

    @abstractmethod
    def commits(self, topic: str, after: int, limit: int) -> list[TopicCommit]:
        """The next commits after a number, at most `limit`, that touch a topic."""

    @abstractmethod
    def advance(self, topic: str, moment: datetime) -> int | None:
        """Move a topic's frontier on without a row, because events up to then have come.

        That is a commit without records, and its number is returned; None if the frontier was there
        already. A moment ahead of the clock by more than the topic's `skew` is refused.
        """

    @abstractmethod
    def frontier(self, topic: str, commit: int | None = None) -> int | None:
        """The highest event time in the topic up to and including a commit, by default the last.

        None if there is none yet. Event times ahead of the append time by more than the topic's
        `skew` do not count.
        """

    # Groups

    @abstractmethod
    def groups(self) -> list[str]:
        """The names of all groups."""

    @abstractmethod
    def group(self, name: str) -> GroupState:
        """Who is in a group and how far it is behind."""

    @abstractmethod
    def reset_group(self, name: str, topic: str, position: Position) -> dict[int, int]:
        """Move an idle group's offsets in a topic; returns them by partition."""

    @abstractmethod
    def delete_group(self, name: str) -> None:
        """Forget a group that has no members."""

    # Upkeep

    @abstractmethod
    def upkeep(self, topic: str | None = None) -> list[UpkeepReport]:
        """Apply retention, compaction and tiering as each topic's settings say."""

    @abstractmethod
    def compact(self, topic: str) -> UpkeepReport:
        """Compact a topic now, its newest segment included."""
