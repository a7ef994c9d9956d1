"""What an operator does with a batch inside of the transaction that stores it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

import apsw
import pyarrow as pa

from headrace.log import Log
from headrace.plan.batch import StepBatch
from headrace.plan.crash_points import CrashPoint
from headrace.plan.law import Law
from headrace.plan.steps import Step


@dataclass(frozen=True)
class Passage:
    """The progress of event time with a batch: the frontier before it and after it."""

    before: int | None
    after: int | None

    @property
    def span(self) -> tuple[int | None, int | None]:
        return self.before, self.after

    def less(self, span: int) -> Passage:
        """Both, so much earlier."""
        return Passage(*(None if f is None else f - span for f in (self.before, self.after)))


class ViewTerms(NamedTuple):
    """When the rows of a view are final: its emission, and the lateness of its windows."""

    emit: str
    delay: timedelta
    grace: timedelta


class Stored(NamedTuple):
    """What a keeper is made of: a step, its columns, its log, and where it tells of changes."""

    step: Step
    shapes: Any
    log: Log
    changelog: str | None
    crash_point: CrashPoint


class Keeper(ABC):
    """Keeps the results of one step, and publishes what is to be published of them."""

    schema: pa.Schema
    """The columns of what a reader sees, or of what is published."""
    view_terms: ViewTerms | None = None
    """The terms of its view; None for one whose rows are never final."""

    def create(self, db: apsw.Connection) -> None:  # noqa: B027 - some keep nothing
        """Create its tables, when the step is new."""

    def enter(self, db: apsw.Connection, frontier: int | None, spoken: Sequence[str]) -> None:  # noqa: B027
        """Make ready, given the frontier and the topics that were written to already."""

    @abstractmethod
    def store(self, db: apsw.Connection, batch: StepBatch[Any], passage: Passage) -> Law:
        """Keep a batch; returns the terms of the law that only the store knows.

        That is how many rows were counted, and whatever else became of rows in its hands.
        """

    def recall(self, db: apsw.Connection, request: pa.Table | None) -> pa.Table:
        """The state that a batch needs before it is computed: none, unless an operator has some."""
        return pa.table({})

    def frontiers(self, db: apsw.Connection) -> Mapping[str, int]:
        """The frontier of each topic with the stored results, where it is kept."""
        return {}
