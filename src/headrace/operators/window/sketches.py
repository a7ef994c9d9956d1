"""Aggregates that Spark keeps as sketches, and shows as what they come to."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F

from headrace.operators.window.aggregates import Aggregate


def approx_top(made: Aggregate, of: Column, over: Callable[[Column], Column]) -> Column:
    """All that is tracked, put in order, so that what is exact is the same every time."""
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
