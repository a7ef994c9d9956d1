"""Spark's watermark: its delay, and the shifted times that Spark compares with it.

Spark's watermark starts at 1970, so Spark would drop every earlier row as late. So Spark gets event
times shifted by a constant wherever it decides what is late or what to evict: the column of the
watermark, the ends of windows as keys of its state, and the times of a join. Users see true times.

A checkpoint stores its constant. One from before shifts existed has none, and continues without.
"""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

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
