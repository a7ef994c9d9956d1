"""Windowed aggregation as a Spark plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.operators.window.aggregates import Aggregate
from headrace.operators.window.columns import slide, window_columns, window_ends
from headrace.operators.window.declare import Aggregation
from headrace.operators.window.lateness import LATE_FIELDS, closing_of, late_pairs
from headrace.operators.window.partials import partial_of
from headrace.operators.window.payload import Panes, PaneShapes, Regrouped
from headrace.operators.window.sessions import GROUP, Sessions, grouped
from headrace.operators.window.windows import Session, Sliding
from headrace.pipeline.stream import Source
from headrace.pipeline.where import Where
from headrace.plan import metadata
from headrace.plan.arrow_frames import arrow_schema, frame_of
from headrace.plan.batch import Sink
from headrace.plan.compile import Compiler, checked, column
from headrace.plan.counters import counted
from headrace.plan.late_rows import late_columns, too_late
from headrace.plan.plans import Job, StreamPlan
from headrace.plan.watermark import each, evicted_by, hold, unshifted

_END = "_window_end"

Over = Callable[[Column], Column]


class WindowPlan(StreamPlan):
    """An aggregation by key and window. Spark keeps the state, except for sessions."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        assert isinstance(job.step.computed, Aggregation)
        self._step = step = job.step.computed
        self.windows_per_row = step.window.per_row
        self.closing = closing_of(step.window, step.patience)
        self.clears_source = isinstance(step.input, Source) and self.windows_per_row is not None
        sketch = job.sketch()
        self.sessions = self._sessions(sketch) if isinstance(step.window, Session) else None
        parts: pa.Schema | None = None
        if self.sessions is None:
            self.held = step.patience
            made = self._panes_since(self.streamed(sketch), 0)
        else:
            found = self.sessions.of_rows(self.streamed(sketch))
            parts = arrow_schema(found)
            made = self.sessions.results(found.withColumn(GROUP, F.lit(0)))
        self.shapes = PaneShapes(arrow_schema(made), self._late_schema(sketch), parts)

    @property
    def mode(self) -> str:  # type: ignore[override]
        return "update" if self.sessions is None else "append"

    def streamed(self, compiler: Compiler) -> DataFrame:
        """The part of the aggregation with state in Spark: changed panes, in update mode."""
        step, pairs = self._step, self._pairs(compiler)
        if not compiler.cleared or step.window.per_row != 1:
            pairs = pairs.where(~self._too_late())
        match step.window:
            case Sliding():
                return hold(pairs.drop(_END), step.by, step.window.size, compiler.shift)
            case Session():
                return pairs.drop(_END, metadata.FRONTIER)
            case _:
                return self._panes(pairs, compiler)

    def results(self, batch: DataFrame, sink: Sink) -> Panes:
        if self.sessions is not None:
            return self._merged(self.sessions, batch, sink)
        # A window without new rows since the last batch may be left out.
        since = min(position.commit for position in sink.reached.values())
        made = self._panes_since(batch, since)
        return Panes(made.toArrow().cast(self.shapes.rows))

    def late(self, compiler: Compiler) -> DataFrame:
        """The late pairs of row and window, with the watermark and the seconds of lateness."""
        step, lateness = self._step, self._step.lateness
        return (
            self._pairs(compiler)
            .where(self._too_late())
            .select(
                *(F.col(f"`{name}`") for name in step.input.columns),
                *window_columns(step.window, F.col(_END)),
                *late_columns(lateness.delay, F.col(_END), lateness.grace),
            )
        )

    def late_without_spark(self, candidates: Mapping[str, pa.Table]) -> pa.Table | None:
        if not isinstance(self._step.input, Source):
            return None
        topic = self._step.input.topic
        time = metadata.time_of(topic)
        return late_pairs(candidates[topic.name], self._step, time, self.shapes.late)

    def _merged(self, sessions: Sessions, batch: DataFrame, sink: Sink) -> Panes:
        """The sessions of a batch, merged with the open sessions of the store that they overlap."""
        assert isinstance(self.shapes, PaneShapes)
        assert self.shapes.sessions is not None
        found = sessions.of_rows(batch).toArrow().cast(self.shapes.sessions)
        before = sink.recall(found)
        every = grouped(pa.concat_tables([before, found]), self._step.by)
        made = sessions.together(frame_of(self.job.spark, every)).toArrow()
        rows, parts = (
            made.select(schema.names).cast(schema)
            for schema in (self.shapes.rows, self.shapes.sessions)
        )
        return Panes(rows, Regrouped(parts, before))

    def _late_schema(self, sketch: Compiler) -> pa.Schema:
        if not isinstance(self._step.input, Source):
            return arrow_schema(self.late(sketch))
        assert self._step.input.topic.schema is not None
        columns = [field.with_nullable(True) for field in self._step.input.topic.schema]
        return pa.schema([*columns, *LATE_FIELDS])

    def _pairs(self, compiler: Compiler) -> DataFrame:
        """A row for each window of each row, late ones included."""
        rows = compiler.rows(self._step.input)
        rows = rows.withColumn(_END, each(window_ends(self._step.window)))
        if self._step.window.per_row is None:
            rows = rows.where(F.col(_END) > F.unix_micros(metadata.TIME))
            rows = counted(rows, compiler.counters, "paired")
        return rows

    def _panes(self, pairs: DataFrame, compiler: Compiler) -> DataFrame:
        step = self._step
        panes = checked(
            step.where,
            evicted_by(pairs, _END, compiler.shift)
            .groupBy(_END, *(F.col(f"`{key}`") for key in step.by))
            .agg,
            *_aggregates(step),
            F.max(metadata.COMMIT).alias(metadata.REVISION),
            F.count(F.lit(1)).alias(metadata.ROWS),
        )
        return panes.select(
            *(F.col(f"`{key}`") for key in step.by),
            *window_columns(step.window, unshifted(_END, compiler.shift)),
            *(F.col(f"`{name}`") for name, _ in step.aggregates),
            metadata.REVISION,
            metadata.ROWS,
        )

    def _panes_since(self, streamed: DataFrame, since: int) -> DataFrame:
        """The panes of a batch; those without new rows since a commit may be missing."""
        if not isinstance(self._step.window, Sliding):
            return streamed
        made = partial(_aggregates, self._step)
        return checked(self._step.where, slide, streamed, self._step, made, since)

    def _sessions(self, compiler: Compiler) -> Sessions:
        """The sessions of the streamed rows."""
        step, rows = self._step, self.streamed(compiler)
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

    def _too_late(self) -> Column:
        return too_late(self._step.patience, F.col(_END))


plan = WindowPlan


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


def approx_top(made: Aggregate, of: Column, over: Callable[[Column], Column]) -> Column:
    """All tracked values in a fixed order, so that exact counts are the same every time."""
    tracked = F.lit(made.tracked)
    found = over(F.call_function("approx_top_k", of, tracked, tracked))
    there = F.filter(found, lambda one: one["item"].isNotNull())
    by_count = F.sort_array(
        F.transform(there, lambda one: F.struct((-one["count"]).alias("less"), one["item"]))
    )
    error = F.floor(over(F.count(of)) * F.lit(made.error_per_row))
    return F.transform(
        F.slice(by_count, 1, int(made.parameter or 0)),
        lambda one: F.struct(
            one["item"].alias("item"), (-one["less"]).alias("count"), error.alias("error")
        ),
    )
