"""A batch of a step, and the interface of the sink that stores it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import pyarrow as pa

from headrace.errors import PipelineError
from headrace.log import Log
from headrace.plan.law import Law
from headrace.plan.position import Positions, last_commit
from headrace.plan.source_options import ANY
from headrace.plan.staging import Staged


@dataclass(frozen=True)
class Timing:
    """One batch: its rows, how many more were waiting at its end, and its parts in milliseconds.

    `results` counts its panes or rows. `files` is the time for Spark's offset and commit files,
    `state` for updating and saving Spark's state, `stored` for views, outputs and the position. The
    rest of `total` is reading and computing.
    """

    batch: int
    rows: int
    lag: int
    results: int
    total: int
    files: int
    state: int
    stored: int
    state_rows: int
    state_bytes: int

    @property
    def saving(self) -> int:
        """The time to save the batch."""
        return self.files + self.state + self.stored


@dataclass(frozen=True)
class Shapes:
    """The columns of a step's results and late rows, in Arrow types; operators add their own."""

    rows: pa.Schema
    late: pa.Schema | None


class Payload:
    """The results of an operator in a batch, for its keeper in the store."""

    @property
    def results(self) -> int:
        """The number of results, if it is known before they are stored."""
        return 0

    @property
    def state(self) -> tuple[int, int] | None:
        """Rows and bytes of state, if Spark does not know."""
        return None

    def remove(self) -> None:
        """Remove its files."""


@dataclass(frozen=True)
class Rows(Payload):
    """Rows to publish: in memory, or in files if there may be many."""

    rows: pa.Table | Staged
    delivered: int | None = None
    """The number of rows that are in their topic already, if they bypass the store."""

    @property
    def results(self) -> int:
        return 0 if isinstance(self.rows, Staged) else int(self.rows.num_rows)

    def slices(self) -> Iterator[pa.Table]:
        """The rows, in slices."""
        return self.rows.slices() if isinstance(self.rows, Staged) else iter([self.rows])

    def remove(self) -> None:
        if isinstance(self.rows, Staged):
            self.rows.remove()


P_co = TypeVar("P_co", bound=Payload, covariant=True)


@dataclass(frozen=True)
class StepBatch(Generic[P_co]):
    """The results of a step between two positions in its topics.

    `law` has all terms except those that only the store knows, such as `counted`.
    """

    start: Positions
    end: Positions
    frontier: int | None
    late: pa.Table | None
    dead: pa.Table | None
    law: Law
    payload: P_co
    taken: int = 0
    """Rows that were not too late, by Spark's own counters if an operator has them."""

    def moment(self, log: Log) -> int:
        """The time of the batch by the clock of the log."""
        return log.commit_time(last_commit(self.end))


class Sink(ABC):
    """Stores the results of a step together with their position in the log.

    A sink compares positions, not batch numbers: it never gets rows that it has already, however a
    replay is cut, and the next batch begins at its position.
    """

    begun: Positions
    """The position in each topic where the step began."""
    reached: Positions
    """The position in each topic up to which everything is stored."""
    frontier: int | None
    """The event time that all stored results have reached."""
    generation: str
    """A name that changes whenever the sink starts from scratch."""

    def limit(self, topic: str) -> int:
        """The last commit of a topic to read; no limit by default."""
        return ANY

    @abstractmethod
    def recall(self, request: pa.Table | None = None) -> pa.Table:
        """Return the operator's state that a batch needs, for a request of the operator's own.

        Sessions request those that overlap, duplicates the open groups of some keys, a lookup the
        versions of its table.
        """

    def frontiers(self) -> Mapping[str, int]:
        """The frontier of each topic in the stored results, if it is kept."""
        return {}

    @abstractmethod
    def store(self, batch: StepBatch[Payload]) -> Law:
        """Store a batch, all or nothing, and return its law."""

    def gap(self) -> PipelineError | None:
        """The error if the log no longer has the rows after its position."""
        return None

    def timed(self, timing: Timing, *, last: bool) -> None:  # noqa: B027 - a sink need not care
        """Record the timing of a batch. Unless it is the `last`, another one follows."""
