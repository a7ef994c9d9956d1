"""Event times that are expressions, computed by Spark once for each record of Kafka."""

from __future__ import annotations

from typing import Any

from pyspark import SparkContext
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn
from pyspark.sql.types import TimestampType

from headrace.errors import InvalidPipeline
from headrace.log import Topic

_KEPT = "_kept"


def with_time(rows: DataFrame, topic: Topic, row: str, time: str) -> DataFrame:
    """Add the column `time`: the topic's event time, computed from the struct `row`.

    It is null if it cannot be computed, whatever the error.
    """
    assert topic.event_time is not None
    # A record may have columns with the names of Kafka's own, such as `timestamp`.
    alone = rows.select(F.struct(*rows.columns).alias(_KEPT), f"{row}.*")
    try:
        made = alone.select(_KEPT, or_null(topic.event_time).alias(time))
    except AnalysisException as error:
        message = str(error).split("\n")[0].split(" SQLSTATE")[0].rstrip(" ;.")
        raise InvalidPipeline(
            f"Spark cannot compute the event time {topic.event_time!r} of topic {topic.name!r}: "
            f"{message}"
        ) from None
    kind = made.schema[time].dataType
    if not isinstance(kind, TimestampType):
        raise InvalidPipeline(
            f"The event time {topic.event_time!r} of topic {topic.name!r} is "
            f"{kind.simpleString()}, and not a timestamp",
            hint="timestamp_seconds, timestamp_millis and timestamp_micros convert numbers, and "
            "to_timestamp texts",
        )
    return made.select(f"{_KEPT}.*", time)


def or_null(expression: str) -> Column:
    """A SQL expression that is null where Spark would fail the query, as its own try_cast is."""
    context = SparkContext._active_spark_context
    assert context is not None
    java: Any = context._jvm
    made: Any = F.expr(expression)
    columns = java.org.apache.spark.sql.classic.ExpressionUtils
    attempt = java.org.apache.spark.sql.catalyst.expressions.TryEval
    return ClassicColumn(columns.column(attempt(columns.expression(made._jc))))
