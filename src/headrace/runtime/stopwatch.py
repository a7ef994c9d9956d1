"""Measure the time of each batch, for the sink to keep.

Half of it is known when the results are stored. The rest is in Spark's progress report, which comes
after the batch: when the next one begins, or the query has ended.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.errors import HeadraceError
from headrace.log import Log
from headrace.plan.batch import Payload, Sink, StepBatch, Timing
from headrace.plan.position import lag_of


@dataclass(frozen=True)
class _Stored:
    """A stored batch. `took` is the milliseconds of storing it."""

    batch: int
    rows: int
    lag: int
    results: int
    took: int
    state: tuple[int, int] | None
    """The rows and bytes of state, if it is not in Spark."""


class Stopwatch:
    """The stopwatch of one query."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._stored: _Stored | None = None

    def reset(self) -> None:
        """Forget the current batch."""
        self._stored = None

    @contextlib.contextmanager
    def storing(self, number: int, batch: StepBatch[Payload]) -> Iterator[None]:
        """Measure the block, which stores the results of a batch."""
        began = time.perf_counter()
        yield
        took = int((time.perf_counter() - began) * 1_000)
        rows, lag, made = batch.law.rows, lag_of(self._log, batch.end), batch.payload
        self._stored = _Stored(number, rows, lag, made.results, took, made.state)

    def report(self, sink: Sink | None, progress: Mapping[str, Any], *, last: bool) -> None:
        """Report the last batch to the sink, if `progress` is Spark's report on it."""
        stored = self._stored
        if stored is None or sink is None or progress.get("batchId") != stored.batch:
            return
        self._stored = None
        # A missing measurement must not fail the query.
        with contextlib.suppress(HeadraceError):
            sink.timed(_timing(stored, progress), last=last)


def _timing(stored: _Stored, progress: Mapping[str, Any]) -> Timing:
    took, operators = progress.get("durationMs", {}), progress.get("stateOperators", [])
    held = stored.state or (
        sum(int(operator.get("numRowsTotal", 0)) for operator in operators),
        sum(int(operator.get("memoryUsedBytes", 0)) for operator in operators),
    )
    return Timing(
        stored.batch,
        stored.rows,
        stored.lag,
        stored.results,
        int(took.get("triggerExecution", 0)),
        int(took.get("walCommit", 0)) + int(took.get("commitOffsets", 0)),
        sum(_state_time(operator) for operator in operators),
        stored.took,
        *held,
    )


def _state_time(operator: Mapping[str, Any]) -> int:
    """Milliseconds of a task to update and commit its part of the state."""
    tasks = max(1, int(operator.get("numShufflePartitions", 1)))
    parts = ("allUpdatesTimeMs", "allRemovalsTimeMs", "commitTimeMs")
    return sum(int(operator.get(part, 0)) for part in parts) // tasks  # Spark sums over all tasks
