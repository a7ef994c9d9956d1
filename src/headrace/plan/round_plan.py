"""One operator in rounds of our own: it keeps its state with its results, and Spark keeps none."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from headrace.plan.batch import Shapes, Sink, StepBatch
from headrace.plan.crash_points import CrashPoint
from headrace.plan.position import Position


class RoundPlan(ABC):
    """How a step computes what lies between two positions of the log."""

    shapes: Shapes
    ahead: ClassVar[bool] = False
    """True if a batch can be computed before the one before it is stored."""
    max_rows: ClassVar[int | None] = None
    """Rows of a topic that a round takes at most, because somebody holds them in memory."""

    def begin(self, sink: Sink) -> None:  # noqa: B027 - most find everything in the store
        """Make ready to go on from where a sink is."""

    @abstractmethod
    def batch(
        self,
        sink: Sink,
        start: Mapping[str, Position],
        end: Mapping[str, Position],
        crash_point: CrashPoint,
    ) -> StepBatch[Any]:
        """Compute the results from one position up to another."""

    def ended(self) -> None:  # noqa: B027 - most leave nothing open
        """Give back what is held: no more batches are asked for."""
