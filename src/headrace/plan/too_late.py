"""Rows that come too late for steps without windows: later than a delay after the frontier."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.clock import micros
from headrace.plan import metadata


def too_late(delay: timedelta) -> Column:
    """Whether a row came too late, by the frontier that it met in the log."""
    return F.unix_micros(metadata.TIME) + F.lit(micros(delay)) <= F.col(metadata.FRONTIER)


def late_rows(rows: DataFrame, columns: Sequence[str], delay: timedelta) -> DataFrame:
    """The rows that came too late, with the watermark they met and by how much."""
    own = (F.col(f"`{name}`") for name in columns)
    return rows.where(too_late(delay)).select(*own, *late_columns(delay))


def late_columns(delay: timedelta) -> tuple[Column, Column]:
    """The watermark that a row met, and by how much it came too late for that."""
    watermark = F.col(metadata.FRONTIER) - F.lit(micros(delay))
    by = (watermark - F.unix_micros(metadata.TIME)) / F.lit(1_000_000.0)
    return F.timestamp_micros(watermark).alias("watermark"), by.alias("late_by")
