"""A step as a streaming query of Spark: from the log, through native operators, to a sink."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from headrace.clock import SECOND, Clock
from headrace.errors import HeadraceError, LawBroken, PipelineError
from headrace.pipeline.stream import sources
from headrace.plan.accounting import Account, law_of
from headrace.plan.batch import Shapes, Sink, StepBatch
from headrace.plan.counters import Counters
from headrace.plan.crash_points import CrashPoint, nothing
from headrace.plan.kafka.connection import Tell, group_of
from headrace.plan.law import NOT_STORED, Law
from headrace.plan.log_rows import spans
from headrace.plan.plans import Job, StreamPlan
from headrace.plan.position import (
    Positions,
    behind,
    commits_told,
    last_commit,
    lowest_frontier,
    rows_by_topic,
)
from headrace.plan.refused_rows import with_refused
from headrace.plan.source_options import BatchLimits
from headrace.plan.uncounted import Uncounted, all_uncounted, find_uncounted
from headrace.runtime.checkpoint import owner_of
from headrace.runtime.frames import frames_of
from headrace.runtime.spark_internals import dropped_rows, observed_counters
from headrace.runtime.stopwatch import Stopwatch
from headrace.runtime.streaming import Streaming

_STARTING = "Initializing"
_SOURCE_STARTS = 10 * SECOND


class Query(Streaming):
    """Runs one step. The checkpoint has Spark's position, the sink what is stored."""

    def __init__(
        self,
        job: Job,
        plan: StreamPlan,
        *,
        batch_limits: BatchLimits | None = None,
        crash_point: CrashPoint = nothing,
        name: str | None = None,
    ) -> None:
        step = job.step
        super().__init__(job.spark, step.name, name or f"{step.app}.{step.name}", job.checkpoint)
        self._log = job.log
        self.step = step
        self._batch_limits = batch_limits or BatchLimits()
        self._crash_point = crash_point
        self.frames = frames_of(job, plan)
        self._counters = Counters()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="headrace-uncounted")
        self._started = threading.Event()
        self._sink: Sink | None = None
        self._stopwatch = Stopwatch(job.log, step)
        self._tell: Tell | None = None

    @property
    def shapes(self) -> Shapes:
        """The schemas of the step's outputs."""
        return self.frames.plan.shapes

    # Running

    def start(self, sink: Sink, *, until_caught_up: bool) -> None:
        """Start in the background, to run until stopped or until caught up with the log."""
        self._sink = sink
        self._stopwatch.reset()
        if self._log.judges_rows:
            self._tell = group_of(self._log, f"{self.step.app}.{self.step.name}")
        if (gap := sink.gap()) is not None:
            raise gap
        self._claim_checkpoint(sink)
        self.frames.beside.clear()
        self._shift = self._checkpoint.shift
        self._started.clear()

        def write() -> DataStreamWriter:
            streamed, self._counters = self.frames.stream(sink, self._batch_limits, self._shift)
            writer = self._in_batches(streamed, self._batch, until_caught_up=until_caught_up)
            return writer.outputMode(self.frames.plan.mode)

        self._start(write, self.frames.settings)
        self._started.set()

    def wait_for_source(self, clock: Clock) -> None:
        """Return when the source has started, or after ten seconds.

        Each source is a Python process, which Spark gives ten seconds to start. Many that start
        at once would take longer.
        """
        query, until = self._started_query, clock.monotonic() + _SOURCE_STARTS
        with contextlib.suppress(PySparkException, Py4JError, OSError):
            while query.status["message"].startswith(_STARTING):
                if clock.monotonic() >= until:
                    return
                clock.sleep(SECOND // 50)

    def _observe(self, *, ended: bool) -> None:
        if ended:
            self._stopwatch.report(self._sink, self.progress, last=True)

    # A batch

    def _batch(self, frame: DataFrame, number: int) -> None:
        self._crash_point("batch began")
        self._started.wait()
        assert self._sink is not None
        begin, end = self._end_of(number - 1), self._end_of(number)
        self._store(self._sink, number, frame, begin, end)
        self._crash_point("batch ended")

    def _run_again(self, frame: DataFrame) -> None:
        """Compute a batch that is stored already: Spark has not written its state yet."""
        frame.write.format("noop").mode("overwrite").save()
        self._check_dropped()
        self.frames.clear()

    def _store(
        self, sink: Sink, number: int, frame: DataFrame, begin: Positions, end: Positions
    ) -> None:
        reached = sink.reached
        if not behind(reached, end):
            self._run_again(frame)
            return
        # Partitions that were added since are in one position and not in the other.
        if {t: p.commit for t, p in begin.items()} != {t: p.commit for t, p in reached.items()}:
            raise PipelineError(
                f"Step {self.step.name!r} has stored results up to {commits_told(reached)}, and "
                f"the batch from {commits_told(begin)} to {commits_told(end)} overlaps them",
                hint="A step with several topics cannot resume without its checkpoint. Remove the "
                "application's views and checkpoints, and they are computed again from the log",
            )
        self.frames.plan.check(reached, end)
        self._checkpoint.sync_plan(number)
        # Where tasks find the uncounted rows, only what they did not is left to look for.
        by_tasks = self._log.judges_rows
        looking = None if by_tasks else self._pool.submit(self._find_uncounted, reached, end)
        try:
            payload = self.frames.results(frame, sink, last_commit(end))
            self._crash_point("computed")
        finally:
            wait_for([] if looking is None else [looking])
        self._check_dropped()
        observed = self._observed()
        stream = self.step.stream
        uncounted = with_refused(
            self._log,
            self.step.name,
            stream,
            self._found_by_tasks(begin, end) if looking is None else looking.result(),
            self._counters,
            observed,
        )
        account = self._account(reached, end, uncounted)
        batch = StepBatch(
            reached,
            end,
            account.frontier,
            account.late,
            account.dead,
            self._law(account, observed),
            payload,
            taken=sum(observed[name] for name in self._counters.taken),
        )
        self._crash_point("set aside")
        with self._stopwatch.storing(number, batch):
            sink.store(batch)
        if self._tell is not None:
            self._tell(end)
        payload.remove()
        self.frames.beside.clear()

    def _law(self, account: Account, observed: Mapping[str, int]) -> Law:
        """The terms of the row law that are known before the batch is stored."""
        per_row = self.frames.plan.windows_per_row
        return law_of(self.step.computed, account, self._counters, observed, per_row)

    def _find_uncounted(self, start: Positions, end: Positions) -> dict[str, Uncounted]:
        """The uncounted rows, read from the log while Spark computes the batch."""
        self._stopwatch.report(self._sink, self.progress, last=False)
        step, closing = self.step, self.frames.plan.closing
        return all_uncounted(self._log, step.name, step.stream, start, end, closing)

    def _found_by_tasks(self, start: Positions, end: Positions) -> dict[str, Uncounted]:
        """The uncounted rows that the tasks of a batch have found, or else the log's."""
        self._stopwatch.report(self._sink, self.progress, last=False)
        found: dict[str, Uncounted] = {}
        closing = self.frames.plan.closing
        for topic in (source.topic for source in sources(self.step.stream)):
            first, last = start[topic.name], end[topic.name]
            handed = self.frames.beside.read(topic.name, spans(self._log, first, last, 1))
            if handed is None:
                handed = find_uncounted(self._log, self.step.name, topic, first, last, closing)
            found[topic.name] = handed
        return found

    def _account(
        self, start: Positions, end: Positions, uncounted: Mapping[str, Uncounted]
    ) -> Account:
        """The account of a computed batch, with the uncounted rows that were found."""
        rows = rows_by_topic(self._log, start, end)
        return Account(
            rows, uncounted, self.frames.late(uncounted), lowest_frontier(self._log, end)
        )

    # What Spark knows

    def _observed(self) -> dict[str, int]:
        """The counters of the batch that was just computed."""
        return observed_counters(self._started_query, self._counters.all)

    def _check_dropped(self) -> None:
        """Raise if Spark dropped rows of the batch as late.

        The log decides what is late. The law alone does not see every drop: a join counts its rows
        before Spark drops them.
        """
        if not (found := dropped_rows(self._started_query)):
            return
        what = f"Spark dropped {found:,} rows of step {self.step.name!r} as late that the log"
        if self._shift:
            raise LawBroken(f"{what} had accepted", hint=NOT_STORED)
        raise PipelineError(
            f"{what} had accepted: its checkpoint is of an earlier version of headrace, which "
            "cannot count times before 1970",
            hint=f"Nothing of this batch was stored. Remove {self._checkpoint.path}: Spark's state "
            "is then computed again from the log, and stored results stay",
        )

    def _end_of(self, number: int) -> Positions:
        """The end of a batch; before the first batch, the first position of the step."""
        assert self._sink is not None
        return self._checkpoint.end_of(number) if number >= 0 else self._sink.begun

    def _claim_checkpoint(self, sink: Sink) -> None:
        """Raise unless the checkpoint is this step's, and all its batches are stored."""
        self._checkpoint.claim(owner_of(self.step, sink.begun))
        self._checkpoint.check(self.step, sink.begun, sink.reached)

    def _gap(self) -> HeadraceError | None:
        assert self._sink is not None
        return self._sink.gap()
