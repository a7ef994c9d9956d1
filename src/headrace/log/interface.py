"""What every log can do, whether it lives in a folder or on a broker.

`Log` is the whole of it: topics, producers, consumers, reading, groups and upkeep. What one kind
of log cannot do is a `Capability` it does not list, and asking for it raises `Unsupported`.
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
from headrace.log.position import EARLIEST, LATEST, Position
from headrace.log.record import Batch
from headrace.log.roles import Acks, CommitMode, Consumer, Producer
from headrace.log.settings import TopicSettings
from headrace.log.state import GroupState, Topic, TopicCommit, TopicState, UpkeepReport


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


def lacking(url: str, capability: Capability) -> Unsupported:
    """The error for what the log at a URL cannot do."""
    return Unsupported(
        f"The log at {url} does not have {capability.value}",
        hint="Use an embedded log (file:./data) where this is needed",
        capability=capability.name,
    )


class Log(Closing):
    """A durable, partitioned, replayable history.

    Closing it closes its producers, which commit what they have, and its consumers, which do not
    commit: what they polled last may not have been handled.
    """

    url: str
    capabilities: frozenset[Capability]

    @property
    def home(self) -> str:
        """The URL by which what is derived from the log is found. Usually that is its own."""
        return self.url

    def require(self, capability: Capability) -> None:
        """Return if the log can do it, raise `Unsupported` if not."""
        if capability not in self.capabilities:
            raise self.lacks(capability)

    def lacks(self, capability: Capability) -> Unsupported:
        """The error for what this log cannot do."""
        return lacking(self.url, capability)

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
    def topic_ids(self, names: Iterable[str]) -> dict[str, int]:
        """The ids of topics, without those that are not there; one made again has another."""

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
    def rollbacks(self) -> dict[int, int]:
        """Each history of the log that began with a rollback, and the first commit taken back.

        Histories are numbered from 1. Commits of an earlier one are gone from that commit on.
        """

    @abstractmethod
    def sync(self, upto: int) -> None:
        """Return when all commits up to a number would survive a power cut."""

    @abstractmethod
    def commit_time(self, commit: int) -> int:
        """When a commit was made, in microseconds since the epoch."""

    @abstractmethod
    def commits(self, topic: str, after: int, limit: int) -> list[TopicCommit]:
        """The next commits after a number, at most `limit`, that touch a topic."""

    @abstractmethod
    def advance(self, topic: str, moment: datetime, *, ahead: bool = False) -> int | None:
        """Move a topic's frontier on without a row, because events up to then have come.

        That is a commit without records, and its number is returned; None if the frontier was there
        already. A moment ahead of the clock by more than the topic's `skew` is refused, unless
        it is meant to be `ahead`.
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
