"""Windows in Spark: which ones a row is in, and a state that Spark forgets when they are closed."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.clock import micros
from headrace.pipeline.stream import WINDOW_END, WINDOW_START
from headrace.pipeline.time import AnyWindow, Window
from headrace.plan import metadata
from headrace.plan.watermark import shifted

_WATERMARKED = "spark.watermarkDelayMs"


def window_ends(window: AnyWindow) -> list[Column]:
    """The ends of the windows that a row may be in, the latest first, in microseconds.

    Spark's own `window` computes each start and end from the time anew, and makes a struct of them,
    which its fast aggregation cannot take as a key.
    """
    time = F.unix_micros(metadata.TIME)
    if not isinstance(window, Window):
        (after,) = window.ends(0)
        return [time + F.lit(after)]
    size, every, offset = map(micros, (window.size, window.every, window.offset))
    last = time - F.pmod(time - F.lit(offset), F.lit(every))
    return [last + F.lit(size - number * every) for number in range(-(-size // every))]


def each(ends: list[Column]) -> Column:
    """A row for each of the columns."""
    return F.explode(F.array(*ends)) if ends[1:] else ends[0]


def evicted_by(rows: DataFrame, end: str, shift: int) -> DataFrame:
    """Rows whose column `end`, as a key of Spark's state, lets it forget what is closed.

    It is then a time that is shifted, as the watermark is.

    Spark knows such a key by a note on its column, which `withWatermark` makes and a sum loses. It
    has to be a column before it is grouped by, or the note is lost again.
    """
    moment = shifted(F.col(end), shift).alias(end, metadata={_WATERMARKED: 0})
    return rows.withColumn(end, moment)


def window_columns(window: AnyWindow, end: Column) -> tuple[Column, Column]:
    """The start and the end of a window, from its end in microseconds."""
    start = F.timestamp_micros(end - F.lit(micros(window.length)))
    return start.alias(WINDOW_START), F.timestamp_micros(end).alias(WINDOW_END)
