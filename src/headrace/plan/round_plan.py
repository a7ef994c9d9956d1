"""The plan of an operator that runs in rounds: its state is in the store, and none in Spark."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from headrace.plan.batch import Shapes, Sink, StepBatch
from headrace.plan.crash_points import CrashPoint
from headrace.plan.position import Position


class RoundPlan(ABC):
    """Computes the results of a step between two positions in the log."""

    shapes: Shapes
    ahead: ClassVar[bool] = False
    """True if a batch can be computed before the one before it is stored."""
    max_rows: ClassVar[int | None] = None
    """The most rows of a topic in a round, if they are held in memory."""

    def begin(self, sink: Sink) -> None:  # noqa: B027 - most find everything in the store
        """Prepare to continue from a sink's position."""

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
        """Release resources: no more batches follow."""
