"""A batch of a step: what it hands over to the store, and the sink that keeps it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import pyarrow as pa

from headrace.errors import PipelineError
from headrace.log import Log
from headrace.plan.law import Law
from headrace.plan.position import Position, last_commit
from headrace.plan.source_options import ANY
from headrace.plan.staging import Staged
from headrace.plan.timing import Timing


@dataclass(frozen=True)
class Shapes:
    """The columns of a step's results and late rows, in Arrow types; operators add their own."""

    rows: pa.Schema
    late: pa.Schema | None


class Payload:
    """The results of one operator in a batch, for its own half in the store."""

    @property
    def results(self) -> int:
        """The number of results, where it is known before they are stored."""
        return 0

    @property
    def state(self) -> tuple[int, int] | None:
        """Rows and bytes of state, where Spark does not know."""
        return None

    def remove(self) -> None:
        """Remove the files that it lies in."""


@dataclass(frozen=True)
class Rows(Payload):
    """Rows to publish: in memory, or in files if there may be many."""

    rows: pa.Table | Staged
    delivered: int | None = None
    """The number of rows that are in their topic already, where they pass the store by."""

    @property
    def results(self) -> int:
        return 0 if isinstance(self.rows, Staged) else int(self.rows.num_rows)

    def slices(self) -> Iterator[pa.Table]:
        """The rows, some at a time."""
        return self.rows.slices() if isinstance(self.rows, Staged) else iter([self.rows])

    def remove(self) -> None:
        if isinstance(self.rows, Staged):
            self.rows.remove()


P_co = TypeVar("P_co", bound=Payload, covariant=True)


@dataclass(frozen=True)
class StepBatch(Generic[P_co]):
    """The results of a step between two positions in its topics.

    `law` has all of its terms but what the store alone can tell: how many rows were counted.
    """

    start: Mapping[str, Position]
    end: Mapping[str, Position]
    frontier: int | None
    late: pa.Table | None
    dead: pa.Table | None
    law: Law
    payload: P_co
    taken: int = 0
    """Rows that were not too late, by Spark's own counters where an operator has them."""
    made: int | None = None
    """The time of the batch, where the log has no commits that could tell."""

    def moment(self, log: Log) -> int:
        """The time of the batch by the clock of the log."""
        return log.commit_time(last_commit(self.end)) if self.made is None else self.made


class Sink(ABC):
    """Keeps the results of a step, and with them how far in the log they reach.

    A sink goes by positions, not by batch numbers: it is never handed what it has already, however
    a replay is cut, and the next batch begins where it is.
    """

    @property
    @abstractmethod
    def begun(self) -> Mapping[str, Position]:
        """The position in each topic where the step began."""

    @property
    @abstractmethod
    def reached(self) -> Mapping[str, Position]:
        """The position in each topic up to which everything is stored."""

    @property
    @abstractmethod
    def frontier(self) -> int | None:
        """The event time that all stored results have reached."""

    @property
    @abstractmethod
    def generation(self) -> str:
        """A name that changes whenever everything was forgotten and begun anew."""

    def limit(self, topic: str) -> int:
        """The last commit of a topic to read. Usually there is no last one."""
        return ANY

    @abstractmethod
    def recall(self, request: pa.Table | None = None) -> pa.Table:
        """The operator's state that a batch needs before it is computed, for a request of its own.

        Sessions ask for those that overlap, duplicates for the open groups of some keys, a lookup
        for the versions of its table.
        """

    def frontiers(self) -> Mapping[str, int]:
        """The frontier of each topic with the stored results, where it was kept."""
        return {}

    @abstractmethod
    def store(self, batch: StepBatch[Payload]) -> Law:
        """Keep a batch, all of it or nothing, and return what became of its rows."""

    def gap(self) -> PipelineError | None:
        """The reason why the next batch cannot begin where it is: the log is another one."""
        return None

    def timed(self, timing: Timing, *, last: bool) -> None:  # noqa: B027 - a sink need not care
        """Note how long a batch took. Unless it is the `last`, another one comes after it."""
