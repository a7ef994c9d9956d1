"""The data frames of one step: its stream from the log, and its late rows by themselves."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.clock import FIRST_MOMENT
from headrace.log import Log
from headrace.operators.alerts.declare import Alerts
from headrace.operators.alerts.spark import Alerting
from headrace.operators.stateful.declare import Stateful
from headrace.operators.stateful.outcome import Outcome
from headrace.operators.stateful.spark import SETTINGS, Keyed
from headrace.operators.stream_join.spark import Joining, held_for
from headrace.operators.window.session.spark import GROUP, Sessions, grouped
from headrace.pipeline.stream import Explode, Source
from headrace.pipeline.time import Session
from headrace.plan import metadata
from headrace.plan.arrow_frames import arrow_schema, frame_of
from headrace.plan.batch import Regrouped, Shapes, Sink
from headrace.plan.compile import Compiler, Load, needs_order, windows_per_row
from headrace.plan.counters import Counters
from headrace.plan.lateness import Closing
from headrace.plan.latest_table import Newest
from headrace.plan.reads import contains, needed_columns
from headrace.plan.source_options import FORMAT, Wish
from headrace.plan.staging import Staged, stage
from headrace.plan.steps import Step
from headrace.plan.uncounted import LATE_FIELDS, Aside, closing_of, late_pairs
from headrace.plan.watermark import milliseconds, watermarked


@dataclass(frozen=True)
class Portions:
    """How much of the log goes into a batch: whole commits, until either is reached."""

    max_rows: int = Wish.max_rows
    max_commits: int = Wish.max_commits


@dataclass(frozen=True)
class Results:
    """What a batch comes to."""

    rows: pa.Table
    sessions: Regrouped | None = None
    staged: Staged | None = None
    outcome: Outcome | None = None
    delivered: int | None = None


class Frames:
    """Makes the frames of a step. Making them tells what its results look like."""

    def __init__(
        self, spark: SparkSession, log: Log, step: Step, checkpoint: Path, staging: Path
    ) -> None:
        self._spark = spark
        self._log = log
        self._step = step
        self._checkpoint = checkpoint
        self._staging = staging
        self._needed = needed_columns(step.computed)
        self._ordered = needs_order(step.computed)
        self._shift = 0
        self._closing = _closing_at_source(step)
        self._by_frontier = any(
            log.topic(topic).topic.settings.frontier != "events" for topic in step.topics
        )
        """Whether Spark has to be told how far time is, because it is not the newest event's."""
        known = step.alerts.known if step.alerts is not None else None
        self._newest = Newest(spark, log, known.table) if known is not None else None
        compiler = Compiler(self._empty, self._ordered)
        self._sessions = _sessions_of(step, compiler)
        self.session_schema: pa.Schema | None = None
        """The columns of sessions in parts, of a step that has any."""
        self._staged_schema: pa.Schema | None = None
        if step.join is not None:
            self._staged_schema = arrow_schema(self._streamed(compiler))
            self.schema = pa.schema([self._staged_schema.field(n) for n in step.join.columns])
        elif step.stateful is not None:
            self.schema = self._keyed(step.stateful, compiler).schema()
        elif step.alerts is not None:
            found = Alerting(step.alerts, compiler).results(
                self._streamed(compiler), 0, self._known()
            )
            self.schema = arrow_schema(found)
        elif self._sessions is None:
            self.schema = arrow_schema(self._results(self._streamed(compiler), 0))
            """The columns of the results, in Arrow's types."""
            if step.aggregation is None and contains(step.stream, Explode):
                self._staged_schema = self.schema
        else:
            parts = self._sessions.of_rows(self._streamed(compiler))
            self.session_schema = arrow_schema(parts)
            self.schema = arrow_schema(self._sessions.results(parts.withColumn(GROUP, F.lit(0))))
        self.late_schema = self._late_schema()
        """The columns of late rows, of a step that can have any."""
        self.shapes = Shapes(self.schema, self.late_schema, self.session_schema)

    @property
    def mode(self) -> str:
        """What Spark gives of a batch: what its state has of it now, or the rows themselves."""
        counts = self._step.aggregation is not None and self._sessions is None
        return "update" if counts or self._step.alerts is not None else "append"

    def stream(self, sink: Sink, portions: Portions, shift: int) -> tuple[DataFrame, Counters]:
        """The step as a stream that begins where its sink did, and the counters in it.

        Its times are moved on by `shift` where Spark compares them with its watermark.
        """
        self._shift = shift
        loaded: dict[str, DataFrame] = {}

        def load(source: Source) -> DataFrame:
            # A topic that is read on two ways is one source, and so has one position.
            name = source.topic.name
            if name not in loaded:
                loaded[name] = self._load_stream(source, sink, portions)
            return loaded[name]

        counters = Counters()
        return self._streamed(self._compiler(load, counters)), counters

    def _compiler(self, load: Load, counters: Counters) -> Compiler:
        cleared = self._closing is not None
        return Compiler(load, self._ordered, cleared, counters, shift=self._shift)

    def results(self, batch: DataFrame, sink: Sink, revision: int | None = None) -> Results:
        """The results of a batch of the stream, of which a sink has what came before.

        Rows that have no commits of their own give all results the same `revision`.
        """
        if self._step.stateful is not None:
            outcome = self._keyed(self._step.stateful, Compiler(self._empty)).outcome(batch)
            return Results(self.schema.empty_table(), outcome=outcome)
        if self._staged_schema is not None:
            staged = stage(batch, self._staging, self._staged_schema)
            return Results(self.schema.empty_table(), staged=staged)
        if self._step.alerts is not None:
            return self._alerts(self._step.alerts, batch, sink)
        if self._sessions is None:
            since = min(position.commit for position in sink.reached.values())
            made = self._results(batch, since).toArrow().cast(self.schema)
            return Results(metadata.revised(made, revision))
        assert self.session_schema is not None
        found = self._sessions.of_rows(batch).toArrow().cast(self.session_schema)
        found = metadata.revised(found, revision)
        before = sink.overlapping(found)
        every = grouped(pa.concat_tables([before, found]), self._sessions.step.by)
        made = self._sessions.together(frame_of(self._spark, every)).toArrow()
        rows, parts = (
            made.select(schema.names).cast(schema) for schema in (self.schema, self.session_schema)
        )
        return Results(rows, Regrouped(parts, before))

    def _alerts(self, step: Alerts, batch: DataFrame, sink: Sink) -> Results:
        (reached,) = sink.reached.values()
        alerting = Alerting(step, Compiler(self._empty, self._ordered))
        found = alerting.results(batch, reached.commit, self._known())
        return Results(found.toArrow().cast(self.schema))

    def _known(self) -> DataFrame | None:
        """What the table that rules look things up in says by now."""
        return self._newest.frame() if self._newest is not None else None

    def clear(self) -> None:
        """Remove what workers have left of results that nobody asked for."""
        shutil.rmtree(self._staging, ignore_errors=True)

    def _results(self, streamed: DataFrame, since: int) -> DataFrame:
        """What has nothing new since a commit may lack."""
        step = self._step.aggregation
        if step is None:
            return streamed
        return Compiler(self._empty, self._ordered).results(step, streamed, since)

    def late(self, aside: Mapping[str, Aside]) -> pa.Table | None:
        """The late pairs among the rows that were set aside; None if there can be none."""
        step = self._step.aggregation
        if not any(found.candidates for found in aside.values()):
            return None
        if step is not None and isinstance(step.input, Source):
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
            return self._placed(frame_of(self._spark, table), source)

        compiler = Compiler(load, self._ordered)
        made = self._made_by(compiler)
        if made is not None:
            assert self.late_schema is not None
            return made.late().toArrow().cast(self.late_schema)
        assert step is not None
        return compiler.late(step).toArrow()

    def _streamed(self, compiler: Compiler) -> DataFrame:
        step = self._step.aggregation
        if step is not None:
            return compiler.streamed(step)
        made = self._made_by(compiler)
        if made is not None:
            return made.streamed()
        rows = compiler.rows(self._step.computed)
        return rows.select(*(F.col(f"`{name}`") for name in self._step.computed.columns))

    def _made_by(self, compiler: Compiler) -> Joining | Keyed | Alerting | None:
        """What makes the frames of a step that has a way of its own."""
        if self._step.join is not None:
            return Joining(self._step.join, compiler)
        if self._step.stateful is not None:
            return self._keyed(self._step.stateful, compiler)
        if self._step.alerts is not None:
            return Alerting(self._step.alerts, compiler)
        return None

    @property
    def settings(self) -> Mapping[str, str]:
        """What the step needs of Spark beside what all have."""
        return SETTINGS if self._step.stateful is not None else {}

    def _keyed(self, step: Stateful, compiler: Compiler) -> Keyed:
        return Keyed(
            step, compiler, self._step.name, self._log.url, self._checkpoint, self._staging
        )

    def _load_stream(self, source: Source, sink: Sink, portions: Portions) -> DataFrame:
        topic = source.topic.name
        needed, columns = self._needed[topic], None
        if needed is not None:
            wanted = {*needed, source.topic.event_time}
            columns = tuple(name for name in source.columns if name in wanted)
        wish = Wish(
            self._log.url,
            topic,
            columns,
            self._places(),
            clean=True,
            start=sink.begun[topic],
            max_rows=portions.max_rows,
            max_commits=portions.max_commits,
            tasks=self._spark.sparkContext.defaultParallelism,
            closing=self._closing,
            seam=sink.reached[topic].commit,
            until=sink.limit(topic),
            ticks=self._step.stateful is not None,
        )
        rows = self._spark.readStream.format(FORMAT).options(**wish.options()).load()
        rows = self._placed(rows, source)
        step, join, alerts = self._step.aggregation, self._step.join, self._step.alerts
        if join is not None:
            held = held_for(join)
        elif step is not None and self._sessions is None:
            held = step.patience
        elif alerts is not None:
            held = alerts.delay
        else:
            return rows  # there is no state for Spark to forget
        moment = F.unix_micros(metadata.TIME)
        if self._by_frontier:
            # Before there is one, it is lower than any time, and Spark has nothing to forget.
            moment = F.greatest(F.col(metadata.FRONTIER), F.lit(FIRST_MOMENT))
        return watermarked(rows, moment, milliseconds(held), self._shift)

    def _places(self) -> tuple[str, ...]:
        """Which places the plan makes use of."""
        if self._ordered:
            return tuple(metadata.TYPES)
        if self._closing is not None and self._closing.windows == 1 and not self._by_frontier:
            return (metadata.COMMIT,)
        return (metadata.COMMIT, metadata.FRONTIER)

    def _placed(self, rows: DataFrame, source: Source) -> DataFrame:
        rows = rows.withColumn(metadata.TIME, F.col(f"`{source.topic.event_time}`"))
        if self._ordered:
            rows = rows.withColumn(metadata.TOPIC, F.lit(source.topic.name))
        return rows

    def _empty(self, source: Source) -> DataFrame:
        """No rows, in the columns of a topic: enough to learn what a step makes of them."""
        empty = _with_places(source).empty_table()
        return self._placed(frame_of(self._spark, empty), source)

    def _late_schema(self) -> pa.Schema | None:
        step = self._step.aggregation
        made = self._made_by(Compiler(self._empty, self._ordered))
        if made is not None:
            return arrow_schema(made.late())
        if step is None:
            return None
        if isinstance(step.input, Source):
            assert step.input.topic.schema is not None
            columns = [field.with_nullable(True) for field in step.input.topic.schema]
            return pa.schema([*columns, *LATE_FIELDS])
        return arrow_schema(Compiler(self._empty, self._ordered).late(step))


def _sessions_of(step: Step, compiler: Compiler) -> Sessions | None:
    aggregation = step.aggregation
    if aggregation is None or not isinstance(aggregation.window, Session):
        return None
    return compiler.sessions(aggregation)


def _closing_at_source(step: Step) -> Closing | None:
    """When rows are so late that they need not come to Spark, if the source can tell.

    It can where nothing stands between a topic and the windows, unless it is Spark that counts how
    many windows a row is in.
    """
    aggregation = step.aggregation
    if aggregation is None or not isinstance(aggregation.input, Source):
        return None
    return closing_of(aggregation) if windows_per_row(aggregation) is not None else None


def _with_places(source: Source) -> pa.Schema:
    """The columns of a topic, and after them the places that the log tells."""
    assert source.topic.schema is not None
    columns = [field.with_nullable(True) for field in source.topic.schema]
    return pa.schema([*columns, *metadata.TYPES.items()])
