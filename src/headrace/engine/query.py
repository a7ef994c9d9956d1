"""One step as a streaming query of Spark: from the log, through native operators, to a sink."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.clock import SECOND, Clock
from headrace.engine.aside import Aside, closing_of, set_aside
from headrace.engine.checkpoint import Checkpoint, owner_of
from headrace.engine.compile import windows_per_row
from headrace.engine.counters import Counters
from headrace.engine.crash import Reach, nothing
from headrace.engine.crowds import Crowds
from headrace.engine.failures import failure_of, java_is_gone
from headrace.engine.frames import Frames, Portions, Results
from headrace.engine.law import Law
from headrace.engine.position import Position, behind, commits_told, lowest_frontier
from headrace.engine.reads import branches
from headrace.engine.sink import Joined, Portion, Sink
from headrace.engine.staging import staging_of
from headrace.engine.steps import Step
from headrace.engine.stopwatch import Stopwatch
from headrace.errors import HeadraceError, LawBroken, PipelineError, PipelineFailed
from headrace.log import Log
from headrace.streams.stream import sources

_STARTING = "Initializing"
_SOURCE_STARTS = 10 * SECOND


class Query:
    """Runs one step. Its checkpoint remembers where Spark is, its sink what has been stored."""

    def __init__(
        self,
        spark: SparkSession,
        log: Log,
        step: Step,
        checkpoint: Path,
        *,
        portions: Portions | None = None,
        reach: Reach = nothing,
        name: str | None = None,
    ) -> None:
        self._spark = spark
        self._log = log
        self.step = step
        self._name = name or f"{step.app}.{step.name}"
        self._checkpoint = Checkpoint(checkpoint)
        self._portions = portions or Portions()
        self._reach = reach
        self.frames = Frames(spark, log, step, checkpoint, staging_of(checkpoint))
        self._counters = Counters()
        self._query: StreamingQuery | None = None
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="headrace-aside")
        self._started = threading.Event()
        self._sink: Sink | None = None
        self._error: BaseException | None = None
        self._stopwatch = Stopwatch(log)
        self._crowds = Crowds(spark, log, step.name, step.join) if step.join is not None else None

    # Running

    def start(self, sink: Sink, *, until_caught_up: bool) -> None:
        """Start in the background, to go on and on, or until what is in the log now is done."""
        self._sink = sink
        self._error = None
        self._stopwatch.reset()
        self._claim_checkpoint(sink)
        self._started.clear()
        try:
            streamed, self._counters = self.frames.stream(sink, self._portions)
            writer = (
                streamed.writeStream.outputMode(self.frames.mode)
                .queryName(self._name)
                .option("checkpointLocation", str(self._checkpoint.path))
                .foreachBatch(self._batch)
            )
            if until_caught_up:
                writer = writer.trigger(availableNow=True)
            with _set(self._spark, self.frames.settings):
                self._query = writer.start()
        except (Py4JError, PySparkException) as error:
            raise self._failure(error) from None
        self._started.set()

    def wait_for_source(self, clock: Clock) -> None:
        """Return when its source has answered, or soon after.

        Each source is a process of its own, which Spark gives ten seconds to start. Many at once
        would not make it.
        """
        assert self._query is not None
        until = clock.monotonic() + _SOURCE_STARTS
        with contextlib.suppress(PySparkException, Py4JError, OSError):
            while self._query.status["message"].startswith(_STARTING):
                if clock.monotonic() >= until:
                    return
                clock.sleep(SECOND // 50)

    def wait(self, seconds: float) -> bool:
        """Whether it has ended by itself within so many seconds; its failure is raised."""
        assert self._query is not None
        try:
            ended = bool(self._query._jsq.awaitTermination(int(seconds * 1000)))
        except StreamingQueryException as error:
            raise self._failure(error) from self._error
        except (Py4JError, OSError) as error:
            raise java_is_gone(self.step.name) from error
        if ended:
            self._look_back(last=True)
        return ended

    def stop(self) -> None:
        """Stop, once the batch under way is done or given up."""
        if self._query is not None:
            with contextlib.suppress(PySparkException, Py4JError, OSError):
                self._query.stop()
                self._stopwatch.tell(self._sink, self.progress, last=True)

    @property
    def progress(self) -> Mapping[str, Any]:
        """What Spark says of its last batch."""
        last = self._query.lastProgress if self._query is not None else None
        return json.loads(last.json) if last is not None else {}

    # A batch

    def _batch(self, frame: DataFrame, number: int) -> None:
        try:
            self._reach("batch began")
            self._started.wait()
            assert self._sink is not None
            begin, end = self._end_of(number - 1), self._end_of(number)
            self._store(self._sink, number, frame, begin, end)
            self._reach("batch ended")
        except Exception as error:
            self._error = error
            raise
        except BaseException as error:
            # Spark waits for an answer, and only an ordinary error is one.
            self._error = error
            raise PipelineFailed(f"The batch was given up: {error!r}") from error

    def _run_again(self, frame: DataFrame) -> None:
        """The sink has it, and yet Spark has to compute it: its own state is not written yet."""
        frame.write.format("noop").mode("overwrite").save()
        self.frames.clear()

    def _store(
        self,
        sink: Sink,
        number: int,
        frame: DataFrame,
        begin: Mapping[str, Position],
        end: Mapping[str, Position],
    ) -> None:
        reached = sink.reached
        if not behind(reached, end):
            self._run_again(frame)
            return
        if begin != reached:
            raise PipelineError(
                f"Step {self.step.name!r} has stored results up to {commits_told(reached)}, and "
                f"the batch from {commits_told(begin)} to {commits_told(end)} lies before and "
                "after that",
                hint="A step with several topics cannot go on without its checkpoint. Remove the "
                "application's views and checkpoints, and they are computed again from the log",
            )
        if self._crowds is not None:
            self._crowds.check(reached, end)
        looking = self._beside.submit(self._set_aside, reached, end)
        try:
            results = self.frames.results(frame, sink)
            self._reach("computed")
        finally:
            wait_for([looking])
        aside = looking.result()
        late = self.frames.late(aside)
        dead = [batch for found in aside.values() for batch in found.dead]
        portion = Portion(
            reached,
            end,
            lowest_frontier(self._log, end),
            results.rows,
            late,
            pa.Table.from_batches(dead) if dead else None,
            self._law(reached, end, aside, late),
            results.sessions,
            self._joined(results),
            results.staged if self.step.join is None else None,
            outcome=results.outcome,
        )
        self._reach("set aside")
        with self._stopwatch.storing(number, portion):
            sink.store(portion)
        if results.staged is not None:
            results.staged.remove()
        if results.outcome is not None:
            results.outcome.remove()

    def _joined(self, results: Results) -> Joined | None:
        if self.step.join is None or results.staged is None:
            return None
        observed = self._observed()
        return Joined(results.staged, sum(observed[name] for name in self._counters.taken))

    def _set_aside(
        self, start: Mapping[str, Position], end: Mapping[str, Position]
    ) -> dict[str, Aside]:
        """What is not counted, read from the log while Spark counts the rest."""
        self._look_back(last=False)
        judge = self.step.aggregation or self.step.join or self.step.stateful
        closing = closing_of(judge) if judge is not None else None
        return {
            topic.name: set_aside(
                self._log,
                self.step.name,
                topic,
                start[topic.name],
                end[topic.name],
                closing,
            )
            for topic in (source.topic for source in sources(self.step.stream))
        }

    def _law(
        self,
        start: Mapping[str, Position],
        end: Mapping[str, Position],
        aside: Mapping[str, Aside],
        late: pa.Table | None,
    ) -> Law:
        """What is known of the rows before the sink has them."""
        observed = self._observed()
        ways = branches(self.step.computed)
        rows = {topic: end[topic].rows_after(start[topic]) for topic in end}
        living = {t: n - aside[t].dead_rows - aside[t].tombstones for t, n in rows.items()}
        law = Law(
            rows=sum(rows.values()),
            tombstones=sum(found.tombstones for found in aside.values()),
            dead=sum(found.dead_rows for found in aside.values()),
            filtered=sum(observed[name] for name in self._counters.filtered),
            exploded=sum(observed[name] for name in self._counters.exploded)
            + sum(n * (ways[topic] - 1) for topic, n in living.items()),
            late=late.num_rows if late is not None else 0,
        )
        step = self.step.aggregation
        per_row = windows_per_row(step) if step is not None else 1
        if per_row is None:
            pairs = sum(observed[name] for name in self._counters.paired)
        else:
            pairs = law.passed * per_row
        return law + Law(pairs=pairs)

    # What Spark knows

    def _observed(self) -> dict[str, int]:
        """The counters of the batch that was just computed, which Spark reports only later."""
        if not self._counters:
            return {}
        assert self._query is not None
        metrics = self._query._jsq.streamingQuery().lastExecution().observedMetrics()
        found = {}
        for name in self._counters.all:
            row = metrics.get(name)
            value = row.get().get(0) if row.isDefined() else None
            found[name] = int(value) if value is not None else 0
        return found

    def _look_back(self, *, last: bool) -> None:
        """Look at what Spark says of the batch before, and have the sink take note of its time.

        Spark's own watermark must not have dropped anything that the log lets pass.
        """
        told = self.progress
        for operator in told.get("stateOperators", ()):
            if dropped := operator["numRowsDroppedByWatermark"]:
                raise LawBroken(
                    f"Spark dropped {dropped:,} rows of step {self.step.name!r} as late, which "
                    "the log had let pass",
                    hint="This is a fault of headrace: please report it, with the pipeline",
                )
        self._stopwatch.tell(self._sink, told, last=last)

    def _end_of(self, number: int) -> Mapping[str, Position]:
        """Up to where a batch goes; before the first, where the step began."""
        assert self._sink is not None
        return self._checkpoint.end_of(number) if number >= 0 else self._sink.begun

    def _claim_checkpoint(self, sink: Sink) -> None:
        """Return if the checkpoint is this step's, and the sink has all that was done with it."""
        self._checkpoint.claim(owner_of(self.step, sink.begun))
        self._checkpoint.check(self.step, sink.begun, sink.reached)

    def _failure(self, error: Exception) -> HeadraceError:
        if self._error is not None and not isinstance(self._error, Exception):
            raise self._error
        return failure_of(self.step.name, self._checkpoint.path, self._error, error)


@contextlib.contextmanager
def _set(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Let a query that is started meanwhile have settings of its own, which it then keeps."""
    before = {name: str(spark.conf.get(name)) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
