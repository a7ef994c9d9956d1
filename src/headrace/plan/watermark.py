"""Spark's watermark: its delay, the times compared with it, and the panes of state it evicts.

Spark's watermark starts at 1970, so Spark would drop every earlier row as late. So Spark gets event
times shifted by a constant wherever it decides what is late or what to evict: the column of the
watermark, the ends of windows as keys of its state, and the times of a join. Users see true times.

A checkpoint stores its constant. One from before shifts existed has none, and continues without.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.clock import micros
from headrace.plan import metadata

_MILLISECOND = timedelta(milliseconds=1)


def shifted(moment: Column, shift: int) -> Column:
    """Microseconds since the epoch as a time that Spark compares with its watermark."""
    return F.timestamp_micros(moment + F.lit(shift))


def unshifted(moment: Column | str, shift: int) -> Column:
    """A shifted time as microseconds since the epoch."""
    return F.unix_micros(moment) - F.lit(shift)


def watermarked(rows: DataFrame, moment: Column, behind: str, shift: int) -> DataFrame:
    """Rows that set Spark's watermark: a moment in microseconds, less a delay."""
    return rows.withColumn(metadata.MET, shifted(moment, shift)).withWatermark(metadata.MET, behind)


def milliseconds(delay: timedelta) -> str:
    """A delay in Spark's syntax, rounded up to milliseconds."""
    return f"{-(-delay // _MILLISECOND)} milliseconds"


PANE = "_pane"
"""The end of a pane, as a time."""

HELD = "_held"
"""The rows of a pane, as an array."""

_WATERMARKED = "spark.watermarkDelayMs"


def grid_ends(size: timedelta, every: timedelta, offset: timedelta = timedelta(0)) -> list[Column]:
    """The ends of the windows on a grid that a row may be in, the latest first, in microseconds."""
    time = F.unix_micros(metadata.TIME)
    length, step = micros(size), micros(every)
    last = time - F.pmod(time - F.lit(micros(offset)), F.lit(step))
    return [last + F.lit(length - number * step) for number in range(-(-length // step))]


def each(ends: list[Column]) -> Column:
    """Explode each row into one for each of the columns."""
    return F.explode(F.array(*ends)) if ends[1:] else ends[0]


def evicted_by(rows: DataFrame, end: str, shift: int) -> DataFrame:
    """Mark the column `end` as a key by which Spark evicts state; it becomes a shifted time.

    Spark recognizes such a key by metadata of its column, which `withWatermark` adds and arithmetic
    loses. It has to be a column before the grouping, or the metadata is lost again.
    """
    return rows.withColumn(end, _marked(shifted(F.col(end), shift), end))


def driven(rows: DataFrame, frontier: Column, behind: str, shift: int) -> DataFrame:
    """Rows whose watermark a frontier drives, and not their event time.

    Spark compares the event time, in the column `MET`, with that watermark.
    """
    rows = watermarked(rows, frontier, behind, shift)
    return rows.withColumn(
        metadata.MET, _marked(shifted(F.unix_micros(metadata.TIME), shift), metadata.MET)
    )


def _marked(column: Column, name: str) -> Column:
    """A column that Spark takes for one with a watermark."""
    return column.alias(name, metadata={_WATERMARKED: 0})


def hold(rows: DataFrame, by: Sequence[str], size: timedelta, shift: int) -> DataFrame:
    """Hold the rows of each key in panes; Spark's update mode emits the panes that changed."""
    kept = [name for name in rows.columns if name not in (*by, metadata.FRONTIER, metadata.MET)]
    keys = [F.col(f"`{key}`") for key in by]
    row = F.struct(*(F.col(f"`{name}`") for name in kept))
    held = rows.select(*keys, row.alias(HELD), each(grid_ends(2 * size, size)).alias(PANE))
    panes_of = evicted_by(held, PANE, shift).groupBy(PANE, *keys)
    made = panes_of.agg(F.collect_list(HELD).alias(HELD))
    return made.withColumn(PANE, F.timestamp_micros(unshifted(PANE, shift)))
