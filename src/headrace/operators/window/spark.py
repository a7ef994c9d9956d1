"""Windowed aggregation as a Spark plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.operators.window import sliding
from headrace.operators.window.aggregates import Aggregate
from headrace.operators.window.columns import window_columns, window_ends
from headrace.operators.window.declare import Aggregation
from headrace.operators.window.lateness import LATE_FIELDS, closing_of, late_pairs
from headrace.operators.window.partials import partial_of
from headrace.operators.window.payload import Panes, PaneShapes, Regrouped
from headrace.operators.window.session.spark import GROUP, Sessions, grouped
from headrace.operators.window.sketches import approx_top
from headrace.operators.window.windows import Session, Sliding
from headrace.pipeline.stream import Source
from headrace.pipeline.where import Where
from headrace.plan import metadata
from headrace.plan.arrow_frames import arrow_schema, frame_of
from headrace.plan.batch import Sink
from headrace.plan.compile import Compiler, checked, column
from headrace.plan.late_rows import late_columns, too_late
from headrace.plan.panes import each, evicted_by, hold
from headrace.plan.stream_plan import Job, StreamPlan
from headrace.plan.watermark import unshifted

_END = "_window_end"

Over = Callable[[Column], Column]


class WindowPlan(StreamPlan):
    """An aggregation by key and window. Spark keeps the state, but for that of sessions."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        assert isinstance(job.step.computed, Aggregation)
        self._step = step = job.step.computed
        self.windows_per_row = step.window.per_row
        self.closing = closing_of(step)
        self.clears_source = isinstance(step.input, Source) and self.windows_per_row is not None
        sketch = WindowFrames(step, job.sketch())
        self.sessions = sketch.sessions() if isinstance(step.window, Session) else None
        parts: pa.Schema | None = None
        if self.sessions is None:
            self.held = step.patience
            made = sketch.results(sketch.streamed(), 0)
        else:
            found = self.sessions.of_rows(sketch.streamed())
            parts = arrow_schema(found)
            made = self.sessions.results(found.withColumn(GROUP, F.lit(0)))
        self.shapes = PaneShapes(arrow_schema(made), self._late_schema(sketch), parts)

    @property
    def mode(self) -> str:  # type: ignore[override]
        return "update" if self.sessions is None else "append"

    def streamed(self, compiler: Compiler) -> DataFrame:
        return WindowFrames(self._step, compiler).streamed()

    def results(self, batch: DataFrame, sink: Sink, revision: int | None) -> Panes:
        if self.sessions is not None:
            return self._merged(self.sessions, batch, sink, revision)
        # A window with nothing new since the last batch may be left out.
        since = min(position.commit for position in sink.reached.values())
        made = WindowFrames(self._step, self.job.sketch()).results(batch, since)
        return Panes(metadata.revised(made.toArrow().cast(self.shapes.rows), revision))

    def late(self, compiler: Compiler) -> DataFrame:
        return WindowFrames(self._step, compiler).late()

    def late_without_spark(self, candidates: Mapping[str, pa.Table]) -> pa.Table | None:
        if not isinstance(self._step.input, Source):
            return None
        topic = self._step.input.topic
        assert topic.event_time is not None
        return late_pairs(candidates[topic.name], self._step, topic.event_time, self.shapes.late)

    def _merged(
        self, sessions: Sessions, batch: DataFrame, sink: Sink, revision: int | None
    ) -> Panes:
        """The sessions of a batch, merged with the open ones of the store that they overlap."""
        assert isinstance(self.shapes, PaneShapes)
        assert self.shapes.sessions is not None
        found = sessions.of_rows(batch).toArrow().cast(self.shapes.sessions)
        found = metadata.revised(found, revision)
        before = sink.recall(found)
        every = grouped(pa.concat_tables([before, found]), self._step.by)
        made = sessions.together(frame_of(self.job.spark, every)).toArrow()
        rows, parts = (
            made.select(schema.names).cast(schema)
            for schema in (self.shapes.rows, self.shapes.sessions)
        )
        return Panes(rows, Regrouped(parts, before))

    def _late_schema(self, sketch: WindowFrames) -> pa.Schema:
        if not isinstance(self._step.input, Source):
            return arrow_schema(sketch.late())
        assert self._step.input.topic.schema is not None
        columns = [field.with_nullable(True) for field in self._step.input.topic.schema]
        return pa.schema([*columns, *LATE_FIELDS])


plan = WindowPlan


@dataclass(frozen=True)
class WindowFrames:
    """The frames of an aggregation, made by a compiler."""

    step: Aggregation
    compiler: Compiler

    def pairs(self) -> DataFrame:
        """A row for each window of each row, late ones included."""
        counters = self.compiler.counters
        rows = self.compiler.rows(self.step.input)
        rows = rows.withColumn(_END, each(window_ends(self.step.window)))
        if self.step.window.per_row is None:
            rows = rows.where(F.col(_END) > F.unix_micros(metadata.TIME))
            if counters is not None:
                name = counters.name(counters.paired, "paired")
                rows = rows.observe(name, F.count(F.lit(1)).alias("n"))
        return rows

    def streamed(self) -> DataFrame:
        """The aggregation as far as Spark keeps state for it: what has changed, in update mode."""
        step, compiler, counted = self.step, self.compiler, self.pairs()
        if compiler.judged and (not compiler.cleared or step.window.per_row != 1):
            if compiler.counters is not None and not compiler.numbered:
                name = compiler.counters.name(compiler.counters.late, "late")
                counted = counted.observe(name, F.count_if(self._too_late()).alias("n"))
            counted = counted.where(~self._too_late())
        match step.window:
            case Sliding():
                return hold(counted.drop(_END), step.by, step.window.size, compiler.shift)
            case Session():
                return counted.drop(_END, *([metadata.FRONTIER] if compiler.judged else []))
            case _:
                return self._panes(counted)

    def results(self, streamed: DataFrame, since: int) -> DataFrame:
        """The panes of a batch; those with nothing new since a commit may be missing."""
        if not isinstance(self.step.window, Sliding):
            return streamed
        made = partial(_aggregates, self.step)
        return checked(self.step.where, sliding.slide, streamed, self.step, made, since)

    def sessions(self) -> Sessions:
        """The sessions of the rows that are streamed."""
        step, rows = self.step, self.streamed()
        taken = [F.lit(1) if made.of is None else column(made.of, step.where)
                 for _, made in step.aggregates]  # fmt: skip
        kinds = [field.dataType for field in checked(step.where, rows.select, *taken).schema]
        partials = tuple(
            partial_of(number, made, None if made.of is None else of, kind, step.where)
            for number, ((_, made), of, kind) in enumerate(
                zip(step.aggregates, taken, kinds, strict=True)
            )
        )
        types = checked(step.where, rows.groupBy().agg, *_aggregates(step)).schema
        return Sessions(step, partials, types)

    def late(self) -> DataFrame:
        """The late pairs of row and window, with the watermark and by how much."""
        step, lateness = self.step, self.step.lateness
        return (
            self.pairs()
            .where(self._too_late())
            .select(
                *(F.col(f"`{name}`") for name in step.input.columns),
                *window_columns(step.window, F.col(_END)),
                *late_columns(lateness.delay, F.col(_END), lateness.grace),
            )
        )

    def _too_late(self) -> Column:
        return too_late(self.step.patience, F.col(_END))

    def _panes(self, counted: DataFrame) -> DataFrame:
        step, numbered = self.step, self.compiler.numbered
        panes = checked(
            step.where,
            evicted_by(counted, _END, self.compiler.shift)
            .groupBy(_END, *(F.col(f"`{key}`") for key in step.by))
            .agg,
            *_aggregates(step),
            (F.max(metadata.COMMIT) if numbered else F.lit(0).cast("bigint")).alias(
                metadata.REVISION
            ),
            F.count(F.lit(1)).alias(metadata.ROWS),
        )
        return panes.select(
            *(F.col(f"`{key}`") for key in step.by),
            *window_columns(step.window, unshifted(_END, self.compiler.shift)),
            *(F.col(f"`{name}`") for name, _ in step.aggregates),
            metadata.REVISION,
            metadata.ROWS,
        )


def _as_it_is(column: Column) -> Column:
    return column


def _aggregates(step: Aggregation, over: Over = _as_it_is) -> list[Column]:
    """The aggregates of a step under their names; `over` wraps each of Spark's aggregates."""
    return [_aggregate(made, step.where, over).alias(name) for name, made in step.aggregates]


_SIMPLE: dict[str, Over] = {
    "count": F.count,
    "sum": F.sum,
    "average": F.avg,
    "min": F.min,
    "max": F.max,
}


def _aggregate(made: Aggregate, where: Where, over: Over) -> Column:
    if made.of is None:
        return over(F.count(F.lit(1)))
    of = column(made.of, where)
    if made.kind in _SIMPLE:
        return over(_SIMPLE[made.kind](of))
    match made.kind:
        case "distinct":
            return F.size(over(F.collect_set(of))).cast("bigint")
        case "approx_distinct":
            return over(F.approx_count_distinct(of, made.parameter))
        case "approx_top":
            return approx_top(made, of, over)
        case "quantile":
            return over(F.percentile_approx(of, F.lit(made.parameter), F.lit(10_000)))
        case "first":
            return over(F.min_by(of, F.struct(*metadata.ORDER)))
        case "last":
            return over(F.max_by(of, F.struct(*metadata.ORDER)))
        case _:
            return over(of)
