"""What a step hands over for each batch, and what keeps it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from headrace.errors import PipelineError
from headrace.log import Log
from headrace.operators.stateful.outcome import Outcome
from headrace.plan.law import Law
from headrace.plan.position import Position, last_commit
from headrace.plan.source_options import ANY
from headrace.plan.staging import Staged
from headrace.plan.timing import Timing


@dataclass(frozen=True)
class Shapes:
    """The columns of what a step hands over, in Arrow's types; None where it has no such rows."""

    rows: pa.Schema
    late: pa.Schema | None = None
    sessions: pa.Schema | None = None
    versions: pa.Schema | None = None
    told: pa.Schema | None = None
    tables: tuple[pa.Schema, ...] = ()
    groups: pa.Schema | None = None


@dataclass(frozen=True)
class Regrouped:
    """The sessions that the rows of a batch are in, as parts, and those they were made of."""

    parts: pa.Table
    replaced: pa.Table


@dataclass(frozen=True)
class Joined:
    """What a join comes to in a batch, and how many rows went into it."""

    rows: Staged
    taken: int


@dataclass(frozen=True)
class Portion:
    """The results of a step between two positions in its topics.

    `rows` are panes that have changed, each as it is now, or rows to publish. `law` has all of its
    terms but what the sink alone can tell: how many rows were counted.
    """

    start: Mapping[str, Position]
    end: Mapping[str, Position]
    frontier: int | None
    rows: pa.Table
    late: pa.Table | None
    dead: pa.Table | None
    law: Law
    sessions: Regrouped | None = None
    joined: Joined | None = None
    staged: Staged | None = None
    """Rows to publish that may be many, instead of `rows`."""
    versions: pa.Table | None = None
    """What is new of a table that rows are looked up in."""
    frontiers: Mapping[str, int] = field(default_factory=dict)
    """The frontier of each topic at its end, where rows wait for one another."""
    tables: tuple[pa.Table, ...] = ()
    """What is new of each of the tables that are joined."""
    groups: pa.Table | None = None
    """Groups of duplicates that are new, or another row of which is the last now."""
    outcome: Outcome | None = None
    taken: int = 0
    """How many rows alerts were looked for in."""
    delivered: int | None = None
    """How many rows are in their topic already, where they do not come by way of the sink."""
    made: int | None = None
    """When the batch was, where the log has no commits that could tell."""

    def moment(self, log: Log) -> int:
        """When it came to this, by the clock of the log."""
        return log.commit_time(last_commit(self.end)) if self.made is None else self.made

    def slices(self) -> Iterator[pa.Table]:
        """Rows to publish, some at a time."""
        return iter([self.rows]) if self.staged is None else self.staged.slices()


class Sink(ABC):
    """Keeps the results of a step, and with them how far in the log they reach.

    A sink goes by positions, not by numbers of batches: what it has already is not handed to it
    again, however a replay is cut, and the next portion begins where it is.
    """

    @property
    @abstractmethod
    def begun(self) -> Mapping[str, Position]:
        """Where the step began in each of its topics."""

    @property
    @abstractmethod
    def reached(self) -> Mapping[str, Position]:
        """Up to where everything is stored."""

    @property
    @abstractmethod
    def frontier(self) -> int | None:
        """How far event time has come with all that is stored."""

    @property
    @abstractmethod
    def generation(self) -> str:
        """Another one each time that all was forgotten and begun anew."""

    def limit(self, topic: str) -> int:
        """The last commit of a topic that is of interest. Usually there is no last one."""
        return ANY

    @abstractmethod
    def overlapping(self, sessions: pa.Table) -> pa.Table:
        """The sessions it has, in parts, that overlap any of these and can still change."""

    @abstractmethod
    def versions(self) -> pa.Table:
        """The versions it has of the table that rows are looked up in."""

    def frontiers(self) -> Mapping[str, int]:
        """The frontier of each topic with the stored results, where it was kept."""
        return {}

    @abstractmethod
    def held(self, keys: pa.Table) -> pa.Table:
        """The groups of duplicates it has of these keys, each with the moment it was opened at."""

    @abstractmethod
    def store(self, portion: Portion) -> Law:
        """Keep a portion, all of it or nothing, and return what became of its rows."""

    def gap(self) -> PipelineError | None:
        """Why the next portion cannot begin where it is, if the log is not the one it was."""
        return None

    def timed(self, timing: Timing, *, last: bool) -> None:  # noqa: B027 - a sink need not care
        """Take note of how long a batch took. Unless it is the `last`, a portion comes after it."""
