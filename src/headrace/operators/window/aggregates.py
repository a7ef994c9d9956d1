"""Aggregates over the rows of a window.

`average`, `sum` of floating-point numbers, `quantile` and `expression` depend in their last
digits on the order in which Spark adds up, and `approx_top` does once it has to estimate. All
others are the same for any batches and partitions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from headrace.errors import InvalidPipeline
from headrace.pipeline.arguments import declaration

Kind = Literal[
    "count", "sum", "average", "min", "max", "distinct", "approx_distinct",
    "approx_top", "quantile", "first", "last", "expression",
]  # fmt: skip


_LEAST_BITS = 3


@dataclass(frozen=True)
class Aggregate:
    """One aggregate: its kind, its expression and its parameters."""

    noun: ClassVar[str] = "an aggregate"
    example: ClassVar[str] = "hr.count() or hr.sum('amount')"

    kind: Kind
    of: str | None = None
    parameter: float | None = None
    tracked: int | None = None

    @property
    def definition(self) -> list[Any]:
        """The aggregate as plain data."""
        more = [] if self.tracked is None else [self.tracked]
        return [self.kind, self.of, self.parameter, *more]

    def error(self, rows: int) -> int:
        """The largest error of a count of `approx_top` over this many values."""
        return math.floor(self.error_per_row * rows)

    @property
    def error_per_row(self) -> float:
        """The error bound of DataSketches' frequent items: 3.5 over the size of the map.

        Spark chooses a power of two so that three quarters of the map hold the tracked values.
        """
        assert self.tracked is not None
        bits = (math.ceil(self.tracked / 0.75) - 1).bit_length()
        return 3.5 / (1 << (bits if bits > _LEAST_BITS else _LEAST_BITS))


@declaration
def count(of: str | None = None) -> Aggregate:
    """The number of rows; with an expression, of those where it is not null."""
    return Aggregate("count", of)


@declaration
def sum(of: str) -> Aggregate:
    """The sum. Money is decimal: sums of doubles depend on their order."""
    return Aggregate("sum", of)


@declaration
def average(of: str) -> Aggregate:
    """The mean of the values that are not null."""
    return Aggregate("average", of)


@declaration
def min(of: str) -> Aggregate:
    """The smallest value."""
    return Aggregate("min", of)


@declaration
def max(of: str) -> Aggregate:
    """The largest value."""
    return Aggregate("max", of)


@declaration
def distinct(of: str) -> Aggregate:
    """The number of distinct values, exactly. The state holds every one of them."""
    return Aggregate("distinct", of)


@declaration
def approx_distinct(of: str, *, error: float = 0.02) -> Aggregate:
    """The number of distinct values, within a relative standard `error`, in bounded state."""
    if not 0.001 <= error <= 0.3:
        raise InvalidPipeline(f"An error of {error} is not between 0.001 and 0.3")
    return Aggregate("approx_distinct", of, error)


@declaration
def approx_top(of: str, n: int, *, tracked: int = 1_000) -> Aggregate:
    """The `n` most frequent values with their counts, in bounded state: an array of structs.

    Each has the `item`, its `count`, and the `error` by which that count may be too high. With at
    most `tracked` distinct values in a window, counts are exact.
    """
    if type(n) is not int or type(tracked) is not int or not 1 <= n <= tracked <= 1_000_000:
        raise InvalidPipeline(
            f"approx_top() cannot keep a top {n!r} with tracked={tracked!r}",
            hint="Use whole numbers: n from 1 up to tracked, and tracked up to a million",
        )
    return Aggregate("approx_top", of, n, tracked)


@declaration
def quantile(of: str, fraction: float) -> Aggregate:
    """The value that `fraction` of the values do not exceed, approximately."""
    if not 0 <= fraction <= 1:
        raise InvalidPipeline(
            f"A quantile of {fraction} is not between 0 and 1",
            hint="Use 0.95 for the 95th percentile",
        )
    return Aggregate("quantile", of, fraction)


@declaration
def first(of: str) -> Aggregate:
    """The value of the earliest row, by event time, then commit, partition and offset."""
    return Aggregate("first", of)


@declaration
def last(of: str) -> Aggregate:
    """The value of the latest row, by event time, then commit, partition and offset."""
    return Aggregate("last", of)


@declaration
def expression(sql: str) -> Aggregate:
    """Any aggregate of Spark SQL. It decides whether a replay gives the same result."""
    return Aggregate("expression", sql)
