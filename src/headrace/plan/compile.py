"""Steps that change rows one by one, as Spark's own operators.

Each keeps the columns of `plan.metadata`, so a row's event time, commit and place in the log stay
with it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.errors import InvalidPipeline
from headrace.pipeline.expressions import Expression, columns_in
from headrace.pipeline.row_steps import Explode, Filter, Merge, Project
from headrace.pipeline.stream import RowStep, Source, Stream
from headrace.pipeline.where import Where
from headrace.plan import metadata
from headrace.plan.counters import Counters, counted

Load = Callable[[Source], DataFrame]
"""Loads the rows of a topic, with their metadata."""


@dataclass
class Compiler:
    """Compiles one step.

    `ordered` adds the columns that order rows. `cleared` says that rows too late for all of their
    windows were not loaded. With `beside`, some rows do not count (`metadata.BESIDE`), and steps
    let them pass. `shift` is added to the times that Spark compares (see `plan.watermark`).
    """

    load: Load
    ordered: bool = False
    cleared: bool = False
    counters: Counters | None = None
    beside: bool = False
    shift: int = 0

    def rows(self, stream: Stream) -> DataFrame:
        """Compile a stream without aggregation: its columns and metadata."""
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
            case RowStep():
                spark = importlib.import_module(f"{stream.package}.spark")
                changed: DataFrame = spark.rows(stream, self.rows(stream.input), self.counters)
                return changed
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
        """The rows of one input of a merge, which may share rows with the others."""
        rows = self.rows(stream)
        if self.ordered:
            # In front, so that all rows of one branch come before those of the next.
            rows = rows.withColumn(metadata.INDEX, F.concat(F.array(F.lit(number)), metadata.INDEX))
        return rows

    def _filter(self, stream: Filter) -> DataFrame:
        rows = self.rows(stream.input)
        condition = column(stream.condition, stream.where)
        if self.beside:
            condition = F.col(metadata.BESIDE).isNotNull() | condition
        refused = F.count_if(~F.coalesce(condition, F.lit(False)))
        rows = checked(stream.where, counted, rows, self.counters, "filtered", refused)
        return checked(stream.where, rows.where, condition)

    def _explode(self, stream: Explode) -> DataFrame:
        rows = self.rows(stream.input)
        array = column(stream.array, stream.where)
        if self.beside:
            one = checked(stream.where, rows.select, array).schema[0].dataType
            passing = F.array(F.lit(None)).cast(one)
            array = F.when(F.col(metadata.BESIDE).isNotNull(), passing).otherwise(array)
        added = F.sum(F.coalesce(F.size(array), F.lit(0)) - F.lit(1))
        rows = checked(stream.where, counted, rows, self.counters, "exploded", added)
        kept = [F.col(f"`{name}`") for name in rows.columns if name != stream.into]
        items = F.posexplode(array).alias("_at", "_item")
        rows = checked(stream.where, rows.select, *kept, items)
        if self.ordered:
            index = F.concat(metadata.INDEX, F.array("_at"))
            rows = rows.withColumn(metadata.INDEX, index)
        return rows.withColumnRenamed("_item", stream.into).drop("_at")


def _readable(expression: Expression, rows: DataFrame, where: Where) -> bool:
    """True if the columns of an expression were read. Those that no later step uses were not."""
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
        raise InvalidPipeline(f"{expression!r} returns {made!r}, not a Column", hint=f"See {where}")
    return made


def placed(rows: DataFrame, source: Source, *, ordered: bool) -> DataFrame:
    """Add the event time and, if order matters, the topic's name to rows of a topic."""
    time = metadata.time_of(source.topic)
    rows = rows if time == metadata.TIME else rows.withColumn(metadata.TIME, F.col(f"`{time}`"))
    return rows.withColumn(metadata.TOPIC, F.lit(source.topic.name)) if ordered else rows


def row_place() -> Column:
    """The topic, partition and offset of a row, and its index in that record, as text."""
    index = F.concat_ws(",", F.col(metadata.INDEX).cast("array<string>"))
    return F.concat_ws("/", metadata.TOPIC, metadata.PARTITION, metadata.OFFSET, index)


def checked(where: Where, make: Callable[..., DataFrame], *parts: Any) -> DataFrame:
    """Make a DataFrame, and show Spark's errors at the user's own line."""
    try:
        return make(*parts)
    except AnalysisException as error:
        message = str(error).split("\n")[0].split(" SQLSTATE")[0].rstrip(" ;.")
        raise InvalidPipeline(f"Spark cannot do this: {message}", hint=f"See {where}") from None
