"""The lateness rule as Spark columns: a row is late if the frontier it met had passed its end.

The end of a row is that of its window, or without windows its own event time. `plan.lateness` has
the same rule for NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.clock import micros
from headrace.plan import metadata

_NO_GRACE = timedelta(0)


def too_late(patience: timedelta, end: Column | None = None) -> Column:
    """True for a row whose end is `patience` or more behind the frontier that it met in the log."""
    return _end(end) + F.lit(micros(patience)) <= F.col(metadata.FRONTIER)


def late_columns(
    delay: timedelta, end: Column | None = None, grace: timedelta = _NO_GRACE
) -> tuple[Column, Column]:
    """The watermark that a row met, and the seconds by which it was late."""
    watermark = F.col(metadata.FRONTIER) - F.lit(micros(delay))
    by = (watermark - (_end(end) + F.lit(micros(grace)))) / F.lit(1_000_000.0)
    return F.timestamp_micros(watermark).alias("watermark"), by.alias("late_by")


def late_rows(rows: DataFrame, columns: Sequence[str], delay: timedelta) -> DataFrame:
    """The rows without windows that are too late, with the watermark they met."""
    own = (F.col(f"`{name}`") for name in columns)
    return rows.where(too_late(delay)).select(*own, *late_columns(delay))


def _end(end: Column | None) -> Column:
    return F.unix_micros(metadata.TIME) if end is None else end
