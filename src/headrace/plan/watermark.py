"""Spark's watermark: times as Spark compares them with it, and how far it stays behind.

Spark's watermark begins with 1970 and never goes below it, so Spark would drop every row from
before as late. It cannot be told otherwise. So Spark is given event times that are moved on by a
constant wherever it decides what is late or what it may forget: the column of the watermark, the
ends of windows as keys of its state, and the times of a join. What a user sees has its true times.

A checkpoint remembers its constant. One from before this was done has none, and goes on without.
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
    """Such a time as microseconds since the epoch."""
    return F.unix_micros(moment) - F.lit(shift)


def watermarked(rows: DataFrame, moment: Column, behind: str, shift: int) -> DataFrame:
    """Rows that tell Spark how far time is: by a moment in microseconds, less a delay."""
    return rows.withColumn(metadata.MET, shifted(moment, shift)).withWatermark(metadata.MET, behind)


def milliseconds(delay: timedelta) -> str:
    """A delay as Spark takes it: it knows only milliseconds, and is rather too patient."""
    return f"{-(-delay // _MILLISECOND)} milliseconds"
