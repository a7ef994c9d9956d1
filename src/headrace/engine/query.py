"""One step as a streaming query of Spark: from the log, through native operators, to a sink."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery

from headrace import errors
from headrace.clock import micros
from headrace.engine import places
from headrace.engine.aside import Aside, late_pairs, set_aside
from headrace.engine.checkpoint import Checkpoint
from headrace.engine.compile import (
    Compiler,
    Counters,
    branches,
    needed_columns,
    needs_order,
    windows_per_row,
)
from headrace.engine.crash import Reach, nothing
from headrace.engine.lateness import Closing
from headrace.engine.law import Law
from headrace.engine.position import Position
from headrace.engine.sink import Portion, Sink
from headrace.engine.source import FORMAT, Wish
from headrace.engine.steps import Step, fingerprint
from headrace.errors import (
    HeadraceError,
    LawBroken,
    PipelineError,
    PipelineFailed,
)
from headrace.log import Log
from headrace.streams.stream import Source, sources

_DEATHS = (
    "Python worker exited unexpectedly",
    "Python worker failed to connect back",
    "crashed",
    "Connection reset",
    "EOFException",
    "Stream closed",
    "Broken pipe",
)
"""How Spark tells that a Python worker has died."""


@dataclass(frozen=True)
class Portions:
    """How much of the log goes into a batch: whole commits, until either is reached."""

    max_rows: int = Wish.max_rows
    max_commits: int = Wish.max_commits


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
    ) -> None:
        self._spark = spark
        self._log = log
        self.step = step
        self._checkpoint = Checkpoint(checkpoint)
        self._portions = portions or Portions()
        self._reach = reach
        self._counters = Counters()
        self._sources = {source.topic.name: source for source in sources(step.stream)}
        self._needed = needed_columns(step.stream)
        self._ordered = needs_order(step.stream)
        # Where nothing stands between a topic and the windows, late rows need not come to Spark,
        # unless it is Spark that counts how many windows they are in.
        self._clears = (
            step.aggregation is not None
            and isinstance(step.aggregation.input, Source)
            and windows_per_row(step.aggregation) is not None
        )
        self._loaded: dict[str, DataFrame] = {}
        self._query: StreamingQuery | None = None
        self._started = threading.Event()
        self._sink: Sink | None = None
        self._error: BaseException | None = None
        self.schema = self._schema()
        """The columns of the results, in Arrow's types."""
        self.late_schema = self._late_schema()

    # Running

    def start(self, sink: Sink, *, until_caught_up: bool) -> None:
        """Start in the background, to go on and on, or until what is in the log now is done."""
        self._sink = sink
        self._error = None
        self._claim_checkpoint(sink)
        self._counters = Counters()
        self._loaded = {}
        self._started.clear()
        compiler = Compiler(self._load_stream, self._ordered, self._clears, self._counters)
        try:
            writer = (
                self._results(compiler)
                .writeStream.outputMode("update" if self.step.aggregation else "append")
                .queryName(f"{self.step.app}.{self.step.name}")
                .option("checkpointLocation", str(self._checkpoint.path))
                .foreachBatch(self._batch)
            )
            if until_caught_up:
                writer = writer.trigger(availableNow=True)
            self._query = writer.start()
        except (Py4JError, PySparkException) as error:
            raise self._failure(error) from None
        self._started.set()

    @property
    def active(self) -> bool:
        return self._query is not None and self._query.isActive

    def wait(self, seconds: float) -> bool:
        """Whether it has ended by itself within so many seconds; its failure is raised."""
        assert self._query is not None
        try:
            ended = bool(self._query._jsq.awaitTermination(int(seconds * 1000)))
        except StreamingQueryException as error:
            raise self._failure(error) from self._error
        except (Py4JError, OSError) as error:
            raise PipelineFailed(
                f"Step {self.step.name!r} failed: the Java process that Spark runs in is gone",
                hint="Was it killed, or short of memory? Run it again to go on from where it was",
            ) from error
        if ended:
            self._check_dropped()
        return ended

    def stop(self) -> None:
        """Stop, once the batch under way is done or given up."""
        if self._query is not None:
            with contextlib.suppress(PySparkException, Py4JError, OSError):
                self._query.stop()

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
            self._check_dropped()
            end = self._end_of(number)
            self._store(self._sink, frame, self._end_of(number - 1), end)
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

    def _store(
        self,
        sink: Sink,
        frame: DataFrame,
        begin: Mapping[str, Position],
        end: Mapping[str, Position],
    ) -> None:
        reached = sink.reached
        if not self._behind(reached, end):
            self._run_again(frame)
            return
        if begin != reached:
            raise PipelineError(
                f"Step {self.step.name!r} has stored results up to {_commits(reached)}, and the "
                f"batch from {_commits(begin)} to {_commits(end)} lies before and after that",
                hint="A step with several topics cannot go on without its checkpoint. Remove the "
                "application's views and checkpoints, and they are computed again from the log",
            )
        with ThreadPoolExecutor(1) as beside:
            looking = beside.submit(self._set_aside, reached, end)
            rows = frame.toArrow().cast(self.schema)
            self._reach("computed")
            aside = looking.result()
        late = self._late(aside)
        dead = [batch for found in aside.values() for batch in found.dead]
        portion = Portion(
            reached,
            end,
            self._frontier(end),
            rows,
            late,
            pa.Table.from_batches(dead) if dead else None,
            self._law(reached, end, aside, late),
        )
        self._reach("set aside")
        sink.store(portion)

    def _set_aside(
        self, start: Mapping[str, Position], end: Mapping[str, Position]
    ) -> dict[str, Aside]:
        """What is not counted, read from the log while Spark counts the rest."""
        return {
            topic: set_aside(
                self._log,
                self.step.name,
                source.topic,
                start[topic],
                end[topic],
                self.step.aggregation,
            )
            for topic, source in self._sources.items()
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
        ways = branches(self.step.stream)
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

    def _late(self, aside: Mapping[str, Aside]) -> pa.Table | None:
        step = self.step.aggregation
        if step is None or not any(found.candidates for found in aside.values()):
            return None
        if isinstance(step.input, Source):
            topic = step.input.topic
            assert topic.event_time is not None
            assert self.late_schema is not None
            candidates = pa.Table.from_batches(aside[topic.name].candidates)
            return late_pairs(candidates, step, topic.event_time, self.late_schema)

        def load(source: Source) -> DataFrame:
            found = aside[source.topic.name].candidates
            if not found:
                return self._empty(source)
            table = pa.Table.from_batches(found, _with_places(source))
            return self._placed(self._spark.createDataFrame(table), source)

        return Compiler(load, self._ordered).late(step).toArrow()

    def _frontier(self, end: Mapping[str, Position]) -> int | None:
        """The lowest of the frontiers of all topics; none before each of them has one."""
        found = [self._log.frontier(topic, position.commit) for topic, position in end.items()]
        return min((f for f in found if f is not None), default=None) if None not in found else None

    # What Spark knows

    def _observed(self) -> dict[str, int]:
        """The counters of the batch that was just computed, which Spark reports only later."""
        if not self._counters:
            return {}
        assert self._query is not None
        metrics = self._query._jsq.streamingQuery().lastExecution().observedMetrics()
        found = {}
        for name in (*self._counters.filtered, *self._counters.exploded, *self._counters.paired):
            row = metrics.get(name)
            value = row.get().get(0) if row.isDefined() else None
            found[name] = int(value) if value is not None else 0
        return found

    def _check_dropped(self) -> None:
        """Spark's own watermark must not have dropped anything that the log lets pass."""
        last = self.progress
        for operator in last.get("stateOperators", ()):
            if dropped := operator["numRowsDroppedByWatermark"]:
                raise LawBroken(
                    f"Spark dropped {dropped:,} rows of step {self.step.name!r} as late, which "
                    "the log had let pass",
                    hint="This is a fault of headrace: please report it, with the pipeline",
                )

    def _end_of(self, number: int) -> Mapping[str, Position]:
        """Up to where a batch goes; before the first, where the step began."""
        assert self._sink is not None
        return self._checkpoint.end_of(number) if number >= 0 else self._sink.begun

    @staticmethod
    def _behind(one: Mapping[str, Position], other: Mapping[str, Position]) -> bool:
        return any(one[topic].commit < other[topic].commit for topic in one)

    # Building

    def _results(self, compiler: Compiler) -> DataFrame:
        step = self.step.aggregation
        if step is not None:
            return compiler.panes(step)
        rows = compiler.rows(self.step.stream)
        return rows.select(*(F.col(f"`{name}`") for name in self.step.stream.columns))

    def _load_stream(self, source: Source) -> DataFrame:
        topic = source.topic.name
        if topic not in self._loaded:
            needed = self._needed[topic]
            columns = None
            if needed is not None:
                wanted = {*needed, source.topic.event_time}
                columns = tuple(name for name in source.columns if name in wanted)
            assert self._sink is not None
            step = self.step.aggregation
            told: tuple[str, ...] = (places.COMMIT, places.FRONTIER)
            if self._ordered:
                told = tuple(places.TYPES)
            elif self._clears and step is not None and step.window.size == step.window.every:
                told = (places.COMMIT,)
            wish = Wish(
                self._log.url,
                topic,
                columns,
                told,
                clean=True,
                start=self._sink.begun[topic],
                max_rows=self._portions.max_rows,
                max_commits=self._portions.max_commits,
                tasks=self._spark.sparkContext.defaultParallelism,
                closing=Closing.of(step) if self._clears and step is not None else None,
                seam=self._sink.reached[topic].commit,
            )
            rows = self._spark.readStream.format(FORMAT).options(**wish.options()).load()
            rows = self._placed(rows, source)
            if step is not None:
                patience = micros(step.lateness.delay) + micros(step.lateness.grace)
                rows = rows.withWatermark(places.TIME, f"{patience} microseconds")
            self._loaded[topic] = rows
        return self._loaded[topic]

    def _placed(self, rows: DataFrame, source: Source) -> DataFrame:
        rows = rows.withColumn(places.TIME, F.col(f"`{source.topic.event_time}`"))
        if self._ordered:
            rows = rows.withColumn(places.TOPIC, F.lit(source.topic.name))
        return rows

    def _empty(self, source: Source) -> DataFrame:
        """No rows, in the columns of a topic: enough to learn what a step makes of them."""
        empty = _with_places(source).empty_table()
        return self._placed(self._spark.createDataFrame(empty), source)

    def _schema(self) -> pa.Schema:
        return _arrow(self._results(Compiler(self._empty, self._ordered)))

    def _late_schema(self) -> pa.Schema | None:
        step = self.step.aggregation
        if step is None:
            return None
        return _arrow(Compiler(self._empty, self._ordered).late(step))

    def _claim_checkpoint(self, sink: Sink) -> None:
        """Return if the checkpoint is this step's, and the sink has all that was done with it."""
        self._checkpoint.claim(
            {
                "app": self.step.app,
                "step": self.step.name,
                "fingerprint": fingerprint(self.step),
                "begun": {topic: position.to_json() for topic, position in sink.begun.items()},
            }
        )
        if self._behind(sink.reached, begin := self._end_of(self._checkpoint.last_done())):
            raise PipelineError(
                f"Step {self.step.name!r} has stored results up to {_commits(sink.reached)}, and "
                f"its checkpoint goes on from {_commits(begin)}",
                hint=f"Remove {self._checkpoint.path}; what is missing is then computed again",
            )

    def _failure(self, error: Exception) -> HeadraceError:
        if isinstance(self._error, HeadraceError):
            return self._error
        if self._error is not None and not isinstance(self._error, Exception):
            raise self._error
        text = str(self._error or error)
        if (told := _told_by_worker(text)) is not None:
            return told
        return PipelineFailed(
            f"Step {self.step.name!r} failed: {_first_line(text)}",
            hint="What was stored before is as it was; run it again to go on from there. If it "
            f"fails in the same way at once, {self._checkpoint.path} may be damaged: without it, "
            "everything is computed again from the log",
            trace=text,
            # What a batch of ours did not raise, or a worker's end, may not happen again.
            by_chance=self._error is None or any(death in text for death in _DEATHS),
        )


def _with_places(source: Source) -> pa.Schema:
    """The columns of a topic, and after them the places that the log tells."""
    assert source.topic.schema is not None
    columns = [field.with_nullable(True) for field in source.topic.schema]
    return pa.schema([*columns, *places.TYPES.items()])


def _arrow(frame: DataFrame) -> pa.Schema:
    """A frame's columns in Arrow's types. Spark knows that a count is never null; a topic of
    changes cannot, for there may be no row before."""
    schema = to_arrow_schema(frame.schema, timezone="UTC")
    return pa.schema([field.with_nullable(True) for field in schema])


def _told_by_worker(text: str) -> HeadraceError | None:
    """Our own error, where a worker raised it and Spark has only its text."""
    found = re.search(r"headrace\.errors\.(\w+): (.+)", text)
    kind = getattr(errors, found[1], None) if found else None
    if found is None or not (isinstance(kind, type) and issubclass(kind, HeadraceError)):
        return None
    return kind(found[2].rstrip("."))


def _commits(positions: Mapping[str, Position]) -> str:
    return ", ".join(f"commit {position.commit} of {t}" for t, position in positions.items())


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    chosen = next((line for line in lines if line.startswith("[") or "Error" in line), "")
    return (chosen or (lines[0] if lines else "unknown")).split(" SQLSTATE")[0][:500]
