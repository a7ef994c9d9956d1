"""Streams as Spark's own operators.

Every stateless step keeps the columns of `headrace.plan.metadata`, so that whatever a user makes of
a row, its event time, its commit and its place in the log stay with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.clock import micros
from headrace.errors import InvalidPipeline
from headrace.operators.alerts.declare import Alerts
from headrace.operators.remote_lookup.declare import Fetched
from headrace.operators.remote_lookup.spark import fetched
from headrace.operators.stateful.declare import Stateful
from headrace.operators.stream_join.declare import Join
from headrace.operators.window import sliding
from headrace.operators.window.aggregates import Aggregate
from headrace.operators.window.columns import each, evicted_by, window_columns, window_ends
from headrace.operators.window.partials import partial_of
from headrace.operators.window.session.spark import Sessions
from headrace.operators.window.sketches import approx_top
from headrace.pipeline.expressions import Expression, columns_in
from headrace.pipeline.stream import (
    Aggregation,
    Explode,
    Filter,
    Merge,
    Project,
    Source,
    Stream,
)
from headrace.pipeline.time import Session, Sliding, Window
from headrace.pipeline.where import Where
from headrace.plan import metadata
from headrace.plan.counters import Counters
from headrace.plan.watermark import unshifted

_END = "_window_end"
_ORDER = (
    metadata.TIME,
    metadata.COMMIT,
    metadata.PARTITION,
    metadata.OFFSET,
    metadata.TOPIC,
    metadata.INDEX,
)
"""What tells earlier rows from later ones."""

Over = Callable[[Column], Column]


def _as_it_is(column: Column) -> Column:
    return column


Load = Callable[[Source], DataFrame]
"""The rows of a topic, with their places."""


@dataclass
class Compiler:
    """Compiles one step.

    `ordered` carries along what tells earlier rows from later ones. `cleared` says that rows too
    late for all of their windows were not loaded, and `judged` that it is the frontier they met
    which tells that: else Spark's own watermark does. Rows that are not `numbered` have no commit.
    With `beside`, rows may be among the others that do not count, and steps let them pass. `shift`
    is what Spark is given of times beyond what they are (see `headrace.plan.watermark`).
    """

    load: Load
    ordered: bool = False
    cleared: bool = False
    counters: Counters | None = None
    judged: bool = True
    numbered: bool = True
    beside: bool = False
    shift: int = 0

    def rows(self, stream: Stream) -> DataFrame:
        """A stream without aggregation: its columns, and the places."""
        match stream:
            case Source():
                rows = self.load(stream)
                return rows.withColumn(metadata.INDEX, F.expr("array()")) if self.ordered else rows
            case Filter():
                return self._filter(stream)
            case Project():
                rows = self.rows(stream.input)
                made = [
                    column(made, stream.where).alias(name)
                    for name, made in stream.expressions
                    if _readable(made, rows, stream.where)
                ]
                with_places = [F.col(name) for name in rows.columns if name.startswith("_")]
                return checked(stream.where, rows.select, *made, *with_places)
            case Explode():
                return self._explode(stream)
            case Fetched():
                return fetched(self.rows(stream.input), stream, self.counters)
            case Merge():
                parts = [self._branch(n, part) for n, part in enumerate(stream.inputs)]
                common = set.intersection(*(set(part.columns) for part in parts))
                kept = [F.col(f"`{name}`") for name in parts[0].columns if name in common]
                rows = parts[0].select(*kept)
                for part in parts[1:]:
                    rows = checked(stream.where, rows.unionByName, part.select(*kept))
                return rows
            case _:
                raise TypeError(f"not a stateless step: {stream}")

    def _branch(self, number: int, stream: Stream) -> DataFrame:
        """The rows of a stream that is merged with others, of which it may share some rows."""
        rows = self.rows(stream)
        if self.ordered:
            # In front, so that all rows of one branch come before those of the next.
            rows = rows.withColumn(metadata.INDEX, F.concat(F.array(F.lit(number)), metadata.INDEX))
        return rows

    def pairs(self, step: Aggregation) -> DataFrame:
        """A row for each window that a row is in, before lateness is looked at."""
        rows = self.rows(step.input)
        rows = rows.withColumn(_END, each(window_ends(step.window)))
        if windows_per_row(step) is None:
            rows = rows.where(F.col(_END) > F.unix_micros(metadata.TIME))
            if self.counters is not None:
                name = self.counters.name(self.counters.paired, "paired")
                rows = rows.observe(name, F.count(F.lit(1)).alias("n"))
        return rows

    def streamed(self, step: Aggregation) -> DataFrame:
        """The aggregation as far as Spark keeps state for it: what has changed, in update mode."""
        counted = self.pairs(step)
        if self.judged and (not self.cleared or windows_per_row(step) != 1):
            if self.counters is not None and not self.numbered:
                name = self.counters.name(self.counters.late, "late")
                counted = counted.observe(name, F.count_if(too_late(step)).alias("n"))
            counted = counted.where(~too_late(step))
        match step.window:
            case Sliding():
                return sliding.hold(counted.drop(_END), step.by, step.window.size, self.shift)
            case Session():
                return counted.drop(_END, *([metadata.FRONTIER] if self.judged else []))
            case _:
                return self._panes(counted, step)

    def results(self, step: Aggregation, streamed: DataFrame, since: int) -> DataFrame:
        """The panes of a batch, from what was streamed; what is as it was at a commit may lack."""
        match step.window:
            case Sliding():
                made = partial(self._aggregates, step)
                return checked(step.where, sliding.slide, streamed, step, made, since)
            case _:
                return streamed

    def sessions(self, step: Aggregation) -> Sessions:
        """What makes sessions of the rows that are streamed."""
        rows = self.streamed(step)
        taken = [F.lit(1) if made.of is None else column(made.of, step.where)
                 for _, made in step.aggregates]  # fmt: skip
        kinds = [field.dataType for field in checked(step.where, rows.select, *taken).schema]
        partials = tuple(
            partial_of(number, made, None if made.of is None else of, kind, step.where)
            for number, ((_, made), of, kind) in enumerate(
                zip(step.aggregates, taken, kinds, strict=True)
            )
        )
        types = checked(step.where, rows.groupBy().agg, *self._aggregates(step)).schema
        return Sessions(step, partials, types)

    def _panes(self, counted: DataFrame, step: Aggregation) -> DataFrame:
        panes = checked(
            step.where,
            evicted_by(counted, _END, self.shift)
            .groupBy(_END, *(F.col(f"`{key}`") for key in step.by))
            .agg,
            *self._aggregates(step),
            (F.max(metadata.COMMIT) if self.numbered else F.lit(0).cast("bigint")).alias(
                metadata.REVISION
            ),
            F.count(F.lit(1)).alias(metadata.ROWS),
        )
        return panes.select(
            *(F.col(f"`{key}`") for key in step.by),
            *window_columns(step.window, unshifted(_END, self.shift)),
            *(F.col(f"`{name}`") for name, _ in step.aggregates),
            metadata.REVISION,
            metadata.ROWS,
        )

    def late(self, step: Aggregation) -> DataFrame:
        """The pairs that came too late, with their window, watermark and by how much."""
        delay, grace = micros(step.lateness.delay), micros(step.lateness.grace)
        watermark = F.col(metadata.FRONTIER) - F.lit(delay)
        closed = F.col(_END) + F.lit(grace)
        return (
            self.pairs(step)
            .where(too_late(step))
            .select(
                *(F.col(f"`{name}`") for name in step.input.columns),
                *window_columns(step.window, F.col(_END)),
                F.timestamp_micros(watermark).alias("watermark"),
                ((watermark - closed) / F.lit(1_000_000.0)).alias("late_by"),
            )
        )

    def _filter(self, stream: Filter) -> DataFrame:
        rows = self.rows(stream.input)
        condition = column(stream.condition, stream.where)
        if self.beside:
            condition = F.col(metadata.BESIDE).isNotNull() | condition
        if self.counters is not None:
            name = self.counters.name(self.counters.filtered, "filtered")
            refused = F.count_if(~F.coalesce(condition, F.lit(False))).alias("n")
            rows = checked(stream.where, rows.observe, name, refused)
        return checked(stream.where, rows.where, condition)

    def _explode(self, stream: Explode) -> DataFrame:
        rows = self.rows(stream.input)
        array = column(stream.array, stream.where)
        if self.beside:
            one = checked(stream.where, rows.select, array).schema[0].dataType
            passing = F.array(F.lit(None)).cast(one)
            array = F.when(F.col(metadata.BESIDE).isNotNull(), passing).otherwise(array)
        if self.counters is not None:
            name = self.counters.name(self.counters.exploded, "exploded")
            added = F.sum(F.coalesce(F.size(array), F.lit(0)) - F.lit(1)).alias("n")
            rows = checked(stream.where, rows.observe, name, added)
        kept = [F.col(f"`{name}`") for name in rows.columns if name != stream.into]
        items = F.posexplode(array).alias("_at", "_item")
        rows = checked(stream.where, rows.select, *kept, items)
        if self.ordered:
            index = F.concat(metadata.INDEX, F.array("_at"))
            rows = rows.withColumn(metadata.INDEX, index)
        return rows.withColumnRenamed("_item", stream.into).drop("_at")

    def _aggregates(self, step: Aggregation, over: Over = _as_it_is) -> list[Column]:
        """The aggregates of a step under their names; `over` what Spark aggregates of each."""
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
            return over(F.min_by(of, F.struct(*_ORDER)))
        case "last":
            return over(F.max_by(of, F.struct(*_ORDER)))
        case _:
            return over(of)


def too_late(step: Aggregation) -> Column:
    """Whether a pair's window can change no more, by the frontier that the row met in the log."""
    return F.col(_END) + F.lit(micros(step.patience)) <= F.col(metadata.FRONTIER)


def windows_per_row(step: Aggregation) -> int | None:
    """In how many windows each row is, if in the same number wherever it falls."""
    window = step.window
    if not isinstance(window, Window):
        return 1
    return None if window.size % window.every else window.size // window.every


def needs_order(step: Stream) -> bool:
    """Whether it matters which row it is: for the first of some, or to wait for another."""
    if isinstance(step, Stateful | Alerts):
        return True
    if isinstance(step, Join):
        return step.how != "inner"
    return isinstance(step, Aggregation) and any(
        made.kind in ("first", "last") for _, made in step.aggregates
    )


def _readable(expression: Expression, rows: DataFrame, where: Where) -> bool:
    """Whether what an expression names was read. What no later step makes use of is not."""
    if not isinstance(expression, str):
        return True
    there = {name.lower() for name in rows.columns}
    return {name.lower() for name in columns_in(expression, where)} <= there


def column(expression: Expression, where: Where) -> Column:
    """An expression as a Column: text is Spark SQL, a callable makes the Column itself."""
    if isinstance(expression, str):
        return F.expr(expression)
    made = expression() if not isinstance(expression, Column) else expression
    if not isinstance(made, Column):
        raise InvalidPipeline(
            f"{expression!r} makes {made!r}, which is no Column", hint=f"See {where}"
        )
    return made


def checked(where: Where, make: Callable[..., DataFrame], *parts: Any) -> DataFrame:
    """What Spark refuses, told at the user's own line."""
    try:
        return make(*parts)
    except AnalysisException as error:
        message = str(error).split("\n")[0].split(" SQLSTATE")[0].rstrip(" ;.")
        raise InvalidPipeline(f"Spark cannot do this: {message}", hint=f"See {where}") from None
