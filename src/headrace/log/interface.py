"""The interface of every log, embedded or on Kafka.

`Log` covers topics, producers, consumers, reading, groups and upkeep. A log lists each
`Capability` it has; using one it lacks raises `Unsupported`.
"""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

import pyarrow as pa

from headrace.closing import Closing
from headrace.errors import TopicExists, Unsupported
from headrace.log.matches import Match
from headrace.log.position import EARLIEST, LATEST, Position
from headrace.log.queueing import Queues
from headrace.log.record import Batch
from headrace.log.roles import Acks, CommitMode, CommitPart, Consumer, Producer
from headrace.log.settings import TopicSettings
from headrace.log.state import GroupState, Topic, TopicCommit, TopicState, UpkeepReport


class Capability(StrEnum):
    """A feature that not every log has."""

    COMMITS = "commit numbers that order the whole log"
    NUMBERED_APPENDS = "appends that are commits, each with its number"
    FRONTIERS = "the highest event time of a topic at every commit"
    SEQUENCES = "producer sequences that a restarted process can go on from"
    ATOMIC_VISIBILITY = "transactions whose records become visible at one moment"
    DENSE_OFFSETS = "offsets without gaps until something is compacted"
    TYPED_TOPICS = "topics with a schema of columns"
    CONDITIONS = "commits that are made only under a condition"
    QUEUES = "messages that are handed out one at a time, under a lease"
    UPKEEP = "retention and compaction on demand"
    TIERING = "closed segments on another filesystem"


def lacking(url: str, capability: Capability) -> Unsupported:
    """The error for a capability that the log at a URL lacks."""
    return Unsupported(
        f"The log at {url} does not have {capability.value}",
        hint="Use an embedded log (file:./data) if you need this",
        capability=capability.name,
    )


class Log(Closing):
    """A durable, partitioned, replayable log of records.

    Closing it closes its producers, which commit what was sent, and its consumers, which do not
    commit: the records they polled last may not have been handled.
    """

    url: str
    capabilities: frozenset[Capability]
    judges_rows = False
    """True if each row is judged by its own partition's history, and not by that of its commit."""

    @property
    def settings(self) -> Mapping[str, str]:
        """The settings with which another process opens the log. There may be secrets in it."""
        return {}

    @property
    def home(self) -> str:
        """The URL under which data derived from the log is stored. Usually the log's own."""
        return self.url

    def require(self, capability: Capability) -> None:
        """Raise `Unsupported` if the log lacks a capability."""
        if capability not in self.capabilities:
            raise self.lacks(capability)

    def lacks(self, capability: Capability) -> Unsupported:
        """The error for a capability that this log lacks."""
        return lacking(self.url, capability)

    def check_there(self) -> None:
        """Raise if the log was removed while it is open, as far as that can be seen at once."""

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
        """Create a topic: typed if it has a `schema`, else of raw bytes."""

    def ensure_topic(self, declared: Topic) -> Topic:
        """Create a topic as declared; if it already exists, return it unchanged."""
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

    def foreign_topics(self, names: Iterable[str]) -> dict[str, int]:
        """The partitions of those of the named topics that other programs made.

        They have no declaration yet: `ensure_topic` gives them one.
        """
        return {}

    @abstractmethod
    def topics(self) -> list[Topic]:
        """All topics, sorted by name."""

    @abstractmethod
    def topic(self, name: str) -> TopicState:
        """A topic and its contents."""

    @abstractmethod
    def topic_ids(self, names: Iterable[str]) -> dict[str, int]:
        """The ids of those topics that exist. A topic that was created again has another id."""

    @abstractmethod
    def alter_topic(
        self,
        name: str,
        *,
        settings: Mapping[str, Any] | None = None,
        partitions: int | None = None,
        schema: str | pa.Schema | None = None,
    ) -> Topic:
        """Change settings, add partitions, or add nullable columns at the end of the schema.

        Fields can be added at the end of a struct, too.
        """

    @abstractmethod
    def delete_topic(self, name: str) -> None:
        """Delete a topic, its records and the groups' offsets in it."""

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
        """Create a producer. An `id` fences out any older producer with the same id."""

    def last_sequence(self, producer: str) -> int | None:
        """The sequence number of the last commit under a producer's id; None if there is none.

        Anybody may look, without fencing the producer.
        """
        raise self.lacks(Capability.SEQUENCES)

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
        judged: bool = False,
    ) -> Iterator[Batch]:
        """Read a topic from one position up to another, partition by partition.

        `stop` is resolved when the call is made. An offset applies to each partition read. With
        `judged`, a log that judges rows one by one says how they stand in time, and gives records
        that are no rows as nulls.
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
        """Create a consumer; with a `group` it shares the partitions with the group's members.

        `start` applies to partitions where the group has no committed offset. `commit` sets when a
        record's offset is committed: `before` the record is handed out (at most once), `after` the
        next poll shows that it was handled (at least once), or `manual`ly, by `commit()` or in a
        transaction (exactly once).
        """

    @abstractmethod
    def offset_at(self, topic: str, partition: int, position: Position) -> int:
        """The offset of the first record at or after a position."""

    def offsets_at(self, topic: str, position: Position) -> tuple[int, ...]:
        """The offset of the first record at or after a position, in each partition."""
        partitions = range(self.topic(topic).topic.partitions)
        return tuple(self.offset_at(topic, partition, position) for partition in partitions)

    # Commits and frontiers, for logs with these capabilities

    def cut(self, topics: Iterable[str], *, rows: int | None = None) -> int:
        """Make commits of all records that the topics have; return the number of the last commit.

        Each has at most so many `rows`. In a log that makes a commit of each append, there is
        nothing to do.
        """
        return self.head()

    def cut_on(self, topics: Iterable[str], *, rows: int | None = None) -> bool:
        """Make one commit of what is new in some topics; True if it is full, and more is left."""
        return False

    def head(self) -> int:
        """The number of the last commit, 0 before the first."""
        raise self.lacks(Capability.COMMITS)

    def rollbacks(self) -> dict[int, int]:
        """The log's rollbacks: the number of each, from 1, and the first commit it took back.

        Commits from before a rollback are gone from that commit on.
        """
        raise self.lacks(Capability.COMMITS)

    @abstractmethod
    def sync(self, upto: int) -> None:
        """Sync the log, so that all commits up to a number survive a power cut."""

    def commit_time(self, commit: int) -> int:
        """The time of a commit, in microseconds since the epoch."""
        raise self.lacks(Capability.COMMITS)

    def commits(self, topic: str, after: int, limit: int) -> list[TopicCommit]:
        """The next commits to a topic after a commit number, at most `limit`."""
        raise self.lacks(Capability.COMMITS)

    def advance(self, topic: str, moment: datetime, *, ahead: bool = False) -> int | None:
        """Advance a topic's frontier without a row: all events up to then have arrived.

        This makes a commit without records and returns its number, or None if the frontier was
        there already. A moment ahead of the clock by more than the topic's `skew` is refused,
        unless `ahead` is set.
        """
        raise self.lacks(Capability.FRONTIERS)

    def frontier(self, topic: str, commit: int | None = None) -> int | None:
        """The highest event time in the topic up to and including a commit, by default the last.

        None if there is none yet. Event times ahead of the append time by more than the topic's
        `skew` do not count.
        """
        raise self.lacks(Capability.FRONTIERS)

    # Conditions and indexed topics, for logs with this capability

    def unless(self, topic: str, matches: Sequence[Match], *, after: int) -> CommitPart:
        """The condition that no row of an indexed topic matches in any commit after `after`.

        Attach it to a transaction, which else raises `ConditionFailed` and commits nothing. A row
        matches if it has a value of every group of at least one match.
        """
        raise self.lacks(Capability.CONDITIONS)

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
        """The rows of an indexed topic that match, in the order of their commits, without a scan.

        Only commits after `after` and up to `upto` count; with `last`, only the last so
        many rows. The rows are chosen when the call is made.
        """
        raise self.lacks(Capability.CONDITIONS)

    # Groups

    @abstractmethod
    def groups(self) -> list[str]:
        """The names of all groups."""

    @abstractmethod
    def group(self, name: str) -> GroupState:
        """A group's members and lag."""

    @abstractmethod
    def reset_group(self, name: str, topic: str, position: Position) -> dict[int, int]:
        """Reset an inactive group's offsets in a topic; return them by partition."""

    @abstractmethod
    def delete_group(self, name: str) -> None:
        """Delete a group that has no members."""

    # Work queues, for logs with this capability

    def queues(self) -> Queues:
        """The log's work queues, for `headrace.queue`."""
        raise self.lacks(Capability.QUEUES)

    # Upkeep, for logs with this capability

    def upkeep(self, topic: str | None = None) -> list[UpkeepReport]:
        """Apply retention, compaction and tiering by each topic's settings."""
        raise self.lacks(Capability.UPKEEP)

    def compact(self, topic: str) -> UpkeepReport:
        """Compact a topic now, including its newest segment."""
        raise self.lacks(Capability.UPKEEP)
