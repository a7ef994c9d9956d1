"""The states and results that a log reports: values without behaviour."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass, field
from typing import Any

import pyarrow as pa

from headrace.clock import FIRST_MOMENT, LAST_MOMENT
from headrace.log.assignment import Partition
from headrace.log.settings import TopicSettings


@dataclass(frozen=True)
class Topic:
    """The declaration of a topic. `schema` is None for a topic of raw bytes."""

    name: str
    partitions: int
    schema: pa.Schema | None = None
    key: str | None = None
    event_time: str | None = None
    settings: TopicSettings = field(default_factory=TopicSettings)


@dataclass(frozen=True)
class PartitionState:
    """The contents of a partition: the offsets from `first` up to, not including, `end`.

    `segments` and `bytes` are None if the log does not report them.
    """

    partition: int
    first: int
    end: int
    segments: int | None
    tiered_segments: int
    bytes: int | None
    last_append: int | None


@dataclass(frozen=True)
class TopicState:
    """A topic and its current contents."""

    topic: Topic
    partitions: tuple[PartitionState, ...]
    frontier: int | None

    @property
    def records(self) -> int:
        """The number of offsets in use; after compaction there are fewer records."""
        return sum(state.end - state.first for state in self.partitions)

    @property
    def bytes(self) -> int | None:
        """The topic's size; None if the log does not report it."""
        sizes = [state.bytes for state in self.partitions if state.bytes is not None]
        return sum(sizes) if len(sizes) == len(self.partitions) else None


@dataclass(frozen=True)
class Ack:
    """The offsets of a commit's records in one partition: `first` up to `end`."""

    topic: str
    partition: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class TopicCommit:
    """The effect of a commit on a topic: its rows and their event times.

    `before` and `after` are the topic's frontier. Event times after `bound`, which is the append
    time plus the topic's skew, are invalid, and so are those outside the years 1 to 9999.
    `misplaced` counts rows with an invalid or no event time; `oldest` is the lowest valid one.
    Where each row is judged by its own partition, `behind` is how far a row is at most behind the
    frontier that it met.
    """

    number: int
    rows: int
    before: int | None
    after: int | None
    oldest: int | None
    misplaced: int
    bound: int | None
    behind: int | None = None


def believed(bound: int | None) -> tuple[int, int]:
    """The first and the last valid event time of a commit with this bound.

    Spark's timestamps, like Python's, have the years 1 to 9999.
    """
    return FIRST_MOMENT, LAST_MOMENT if bound is None else min(bound, LAST_MOMENT)


@dataclass(frozen=True)
class Receipt:
    """The log's answer to a commit. `duplicate` is True if it was in the log already."""

    commit: int | None
    timestamp: int
    acks: tuple[Ack, ...]
    duplicate: bool = False

    @property
    def records(self) -> int:
        return sum(ack.end - ack.first for ack in self.acks)


@dataclass(frozen=True)
class Lag:
    """A group's lag in one partition."""

    topic: str
    partition: int
    committed: int | None
    end: int
    records: int
    seconds: float
    member: str | None


@dataclass(frozen=True)
class Member:
    """A member of a group. An `idle` one has no partitions.

    On Kafka, `topics` are those of its partitions, and `heartbeat` is unknown.
    """

    id: str
    instance: str | None
    topics: tuple[str, ...]
    partitions: tuple[Partition, ...]
    heartbeat: int | None

    @property
    def idle(self) -> bool:
        return not self.partitions


@dataclass(frozen=True)
class GroupState:
    """A consumer group: its members and lags.

    `generation` is None on Kafka, which does not report it; `assignor` is empty without members.
    """

    name: str
    generation: int | None
    assignor: str
    members: tuple[Member, ...]
    lags: tuple[Lag, ...]

    @property
    def lag(self) -> int:
        return sum(lag.records for lag in self.lags)

    @property
    def seconds(self) -> float:
        """The lag of the partition that is farthest behind."""
        return max((lag.seconds for lag in self.lags), default=0.0)

    @property
    def topics(self) -> list[str]:
        """The topics that it reads or has offsets in, by name."""
        wanted = {topic for member in self.members for topic in member.topics}
        return sorted(wanted | {lag.topic for lag in self.lags})

    def summary(self) -> dict[str, Any]:
        """The group as plain data, without its members and partitions."""
        return {
            "name": self.name,
            "generation": self.generation,
            "assignor": self.assignor,
            "topics": self.topics,
            "members": len(self.members),
            "lag": self.lag,
            "seconds": self.seconds,
        }


@dataclass(frozen=True)
class UpkeepReport:
    """The effect of one round of upkeep on a topic."""

    topic: str
    segments_deleted: int = 0
    segments_compacted: int = 0
    segments_tiered: int = 0
    records_removed: int = 0
    bytes_freed: int = 0

    @classmethod
    def total(cls, topic: str, reports: Iterable[UpkeepReport]) -> UpkeepReport:
        """The effect of several rounds, or of several partitions."""
        _, *counts = zip(*map(astuple, reports), strict=True)
        return cls(topic, *map(sum, counts))


@dataclass(frozen=True)
class Flaw:
    """Damage to stored data, and its remedy."""

    what: str
    problem: str
    remedy: str
    harmless: bool = False


Tell = Callable[[int, int], None]
"""A progress callback: bytes done, and bytes in total."""
