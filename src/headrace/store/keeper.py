"""Keepers: the part of an operator in the transaction that stores a batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import apsw
import pyarrow as pa

from headrace.log import Log
from headrace.plan.batch import StepBatch
from headrace.plan.crash_points import CrashPoint
from headrace.plan.law import Law
from headrace.plan.steps import Step
from headrace.store.sqlite.database import LIVE


@dataclass(frozen=True)
class Passage:
    """The progress of event time with a batch: the frontier before it and after it."""

    before: int | None
    after: int | None

    @property
    def span(self) -> tuple[int | None, int | None]:
        return self.before, self.after

    def less(self, span: int) -> Passage:
        """Return both frontiers, less a span."""
        return Passage(*(None if f is None else f - span for f in (self.before, self.after)))


class Stored(NamedTuple):
    """The parts that a keeper is made of: a step, its columns, its log and its changelog."""

    step: Step
    shapes: Any
    log: Log
    changelog: str | None
    crash_point: CrashPoint


class Keeper(ABC):
    """Stores the results of one step, and puts its output into the outbox."""

    schema: pa.Schema
    """The columns of its view, or of its output."""
    view_terms: tuple[str, int, int] = (LIVE, 0, 0)
    """The emission of its view, and its delay and grace in microseconds."""

    def create(self, db: apsw.Connection) -> None:  # noqa: B027 - some keep nothing
        """Create its tables, when the step is new."""

    def enter(self, db: apsw.Connection, frontier: int | None, spoken: Sequence[str]) -> None:  # noqa: B027
        """Prepare, given the frontier and the topics that have output already."""

    @abstractmethod
    def store(self, db: apsw.Connection, batch: StepBatch[Any], passage: Passage) -> Law:
        """Store a batch; return the terms of the law that only the store knows, as `counted`."""

    def recall(self, db: apsw.Connection, request: pa.Table | None) -> pa.Table:
        """Return the state that a batch needs before it is computed; none by default."""
        return pa.table({})

    def frontiers(self, db: apsw.Connection) -> Mapping[str, int]:
        """The frontier of each topic in the stored results, if it is kept."""
        return {}
