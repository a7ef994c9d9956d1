"""Measure the time of each batch, for the sink to keep and for traces.

Half of it is known when the results are stored. The rest is in Spark's progress report, which comes
after the batch: when the next one begins, or the query has ended.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.clock import MILLISECOND, Clock, SystemClock
from headrace.errors import HeadraceError
from headrace.log import Log
from headrace.plan.batch import Payload, Sink, StepBatch, Timing
from headrace.plan.law import Law
from headrace.plan.position import lag_of, last_commit
from headrace.plan.steps import Step
from headrace.runtime import tracing
from headrace.runtime.tracing import Traces, span_of_batch


@dataclass(frozen=True)
class _Stored:
    """A stored batch. `began` and `ended` are the microseconds of storing it."""

    batch: int
    law: Law
    commit: int
    lag: int
    results: int
    began: int
    ended: int
    state: tuple[int, int] | None
    """The rows and bytes of state, if it is not in Spark."""


class Stopwatch:
    """The stopwatch of one query."""

    def __init__(
        self, log: Log, step: Step, *, traces: Traces | None = None, clock: Clock | None = None
    ) -> None:
        self._log = log
        self._step = step
        self._traces = traces or tracing.traces()
        self._clock = clock or SystemClock()
        self._stored: _Stored | None = None

    def reset(self) -> None:
        """Forget the current batch."""
        self._stored = None

    @contextlib.contextmanager
    def storing(self, number: int, batch: StepBatch[Payload]) -> Iterator[None]:
        """Measure the block, which stores the results of a batch."""
        began, monotonic = self._clock.now(), self._clock.monotonic()
        yield
        ended = began + self._clock.monotonic() - monotonic
        lag, made, commit = lag_of(self._log, batch.end), batch.payload, last_commit(batch.end)
        self._stored = _Stored(
            number, batch.law, commit, lag, made.results, began, ended, made.state
        )

    def report(self, sink: Sink | None, progress: Mapping[str, Any], *, last: bool) -> None:
        """Report the last batch to the sink, if `progress` is Spark's report on it."""
        stored = self._stored
        if stored is None or sink is None or progress.get("batchId") != stored.batch:
            return
        self._stored = None
        timing = _timing(stored, progress)
        # A missing measurement must not fail the query.
        with contextlib.suppress(HeadraceError):
            sink.timed(timing, last=last)
        if self._traces is not None:
            found = self._attributes(stored, timing)
            self._traces.send(span_of_batch(found, progress, (stored.began, stored.ended)))

    def _attributes(self, stored: _Stored, timing: Timing) -> dict[str, str | int]:
        return {
            "headrace.app": self._step.app,
            "headrace.step": self._step.name,
            "headrace.batch": stored.batch,
            "headrace.commit": stored.commit,
            "headrace.rows": timing.rows,
            "headrace.late": stored.law.late,
            "headrace.dead": stored.law.dead,
            "headrace.results": timing.results,
            "headrace.lag": timing.lag,
            "headrace.state.rows": timing.state_rows,
            "headrace.state.bytes": timing.state_bytes,
        }


def _timing(stored: _Stored, progress: Mapping[str, Any]) -> Timing:
    took, operators = progress.get("durationMs", {}), progress.get("stateOperators", [])
    held = stored.state or (
        sum(int(operator.get("numRowsTotal", 0)) for operator in operators),
        sum(int(operator.get("memoryUsedBytes", 0)) for operator in operators),
    )
    return Timing(
        stored.batch,
        stored.law.rows,
        stored.lag,
        stored.results,
        int(took.get("triggerExecution", 0)),
        int(took.get("walCommit", 0)) + int(took.get("commitOffsets", 0)),
        sum(_state_time(operator) for operator in operators),
        (stored.ended - stored.began) // MILLISECOND,
        *held,
    )


def _state_time(operator: Mapping[str, Any]) -> int:
    """Milliseconds of a task to update and commit its part of the state."""
    tasks = max(1, int(operator.get("numShufflePartitions", 1)))
    parts = ("allUpdatesTimeMs", "allRemovalsTimeMs", "commitTimeMs")
    return sum(int(operator.get(part, 0)) for part in parts) // tasks  # Spark sums over all tasks
