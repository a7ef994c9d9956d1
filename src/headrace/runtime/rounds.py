"""Run a step whose state is in its sink: in rounds, each up to one commit of the whole log.

A stream of Spark keeps its own state, and reads each topic up to a different commit. A table join
keeps its state beside its results, and needs all topics up to the same commit. So rounds need no
checkpoint: the position is stored with the results, and a round that was not stored is computed
again. A round that does not read the sink is computed while the one before it is stored.
"""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from headrace.clock import SECOND, Clock, SystemClock
from headrace.errors import HeadraceError, PipelineFailed
from headrace.plan.batch import Payload, Shapes, Sink, StepBatch
from headrace.plan.crash_points import CrashPoint, nothing
from headrace.plan.plans import Job, RoundPlan
from headrace.plan.position import Positions, next_cut, position_at
from headrace.plan.source_options import BatchLimits
from headrace.runtime import tracing
from headrace.runtime.streaming import Runner, failure_of
from headrace.runtime.tracing import span_of_round

_POLL = SECOND // 20


class Rounds(Runner):
    """Runs one step. Its sink holds all state."""

    def __init__(
        self,
        job: Job,
        plan: RoundPlan,
        *,
        batch_limits: BatchLimits | None = None,
        crash_point: CrashPoint = nothing,
        clock: Clock | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(job.spark, job.step.name)
        self._log = job.log
        self.step = step = job.step
        self._plan = plan
        batch_limits = batch_limits or BatchLimits()
        if plan.max_rows is not None:
            batch_limits = replace(batch_limits, max_rows=min(batch_limits.max_rows, plan.max_rows))
        self._batch_limits = batch_limits
        self._crash_point = crash_point
        self._clock = clock or SystemClock()
        self._traces = tracing.traces()
        self._group = f"headrace-{name or f'{step.app}.{step.name}'}"
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def shapes(self) -> Shapes:
        """The schemas of the step's outputs."""
        return self._plan.shapes

    def start(self, sink: Sink, *, until_caught_up: bool) -> None:
        """Start in the background, to run until stopped or until caught up with the log."""
        until = self._log.head() if until_caught_up else None
        if (gap := sink.gap()) is not None:
            raise gap
        self._sink = sink
        self._error = None
        self._stopping.clear()
        run = threading.Thread(target=self._run, args=(sink, until), name=self._group, daemon=True)
        self._thread = run
        run.start()

    def wait_for_source(self, clock: Clock) -> None:
        """Return at once: there is no source to wait for."""

    def wait(self, seconds: float) -> bool:
        assert self._thread is not None
        self._thread.join(seconds)
        if self._error is not None:
            raise self._failure(self._error) from self._error
        return not self._thread.is_alive()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None and self._thread.is_alive():
            with contextlib.suppress(PySparkException, Py4JError, OSError):
                self._spark.sparkContext.cancelJobGroup(self._group)
            self._thread.join()

    def _run(self, sink: Sink, until: int | None) -> None:
        try:
            self._spark.sparkContext.setJobGroup(self._group, self._group, interruptOnCancel=True)
            self._plan.begin(sink)
            with ThreadPoolExecutor(1, thread_name_prefix=f"{self._group}-storing") as storing:
                self._loop(sink, until, storing)
        except BaseException as error:
            # A job that was cancelled by `stop` is no failure.
            if not (self._stopping.is_set() and isinstance(error, PySparkException | Py4JError)):
                self._error = error
        finally:
            with contextlib.suppress(PySparkException, Py4JError, OSError):
                self._plan.ended()

    def _loop(self, sink: Sink, until: int | None, storing: ThreadPoolExecutor) -> None:
        stored: Future[None] = storing.submit(lambda: None)
        reached = sink.reached
        while not self._stopping.is_set():
            cut = self._cut(sink, reached, until)
            if cut is None or not self._plan.ahead:
                stored.result()
            if cut is not None:
                began = self._clock.now()
                batch = self._round(sink, reached, cut)
                computed = self._clock.now()
                stored.result()
                stored = storing.submit(self._store, sink, batch, began, computed)
                reached = batch.end
            elif until is not None:
                return
            else:
                self._clock.sleep(_POLL)
        stored.result()

    def _round(self, sink: Sink, start: Positions, cut: int) -> StepBatch[Payload]:
        self._crash_point("batch began")
        end = {topic: position_at(self._log, topic, cut) for topic in self.step.topics}
        batch = self._plan.batch(sink, start, end, self._crash_point)
        self._crash_point("set aside")
        return batch

    def _store(self, sink: Sink, batch: StepBatch[Payload], began: int, computed: int) -> None:
        storing = self._clock.now()
        sink.store(batch)
        if self._traces is not None:
            stored = storing, self._clock.now()
            self._traces.send(span_of_round(self.step, batch, (began, computed), stored))
        batch.payload.remove()
        self._crash_point("batch ended")

    def _cut(self, sink: Sink, start: Positions, until: int | None) -> int | None:
        """The last commit of the next round; None if there is nothing new."""
        head = self._log.head() if until is None else until
        head = min(head, *map(sink.limit, self.step.topics))
        reached = max(position.commit for position in start.values())
        ends = {topic: self._next(topic, reached, head) for topic in self.step.topics}
        new = [end for end in ends.values() if end > reached]
        if not new:
            return None
        # If a topic does not fit, later commits of other topics have to wait too.
        full = [
            end
            for topic, end in ends.items()
            if any(commit.number <= head for commit in self._log.commits(topic, end, 1))
        ]
        return min([*full, max(new)])

    def _next(self, topic: str, reached: int, upto: int) -> int:
        rows, commits = self._batch_limits.max_rows, self._batch_limits.max_commits
        return next_cut(self._log, topic, reached, rows=rows, commits=commits, upto=upto)

    def _gap(self) -> HeadraceError | None:
        return self._sink.gap()

    def _translated(self, error: BaseException) -> HeadraceError:
        if isinstance(error, HeadraceError | Py4JError | PySparkException):
            return failure_of(self.name, None, error, error)
        return PipelineFailed(f"Step {self.name!r} failed: {error!r}")
