"""Partial aggregates that can be merged, for sessions.

A session grows, and two sessions merge. So its aggregates are stored as parts, from which Spark's
own functions make both the result and the parts of a larger session.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DecimalType,
    FractionalType,
    IntegralType,
    StringType,
)

from headrace.errors import InvalidPipeline
from headrace.operators.window.aggregates import Aggregate
from headrace.pipeline.where import Where
from headrace.plan import metadata


@dataclass(frozen=True)
class Partial:
    """One aggregate: its parts over rows, the merged parts of several, and its result.

    Merged parts and the result are expressions over the names of the parts.
    """

    names: tuple[str, ...]
    parts: tuple[Column, ...]
    merged: tuple[Column, ...]
    result: Column


def partial_of(
    number: int, made: Aggregate, of: Column | None, kind: DataType, where: Where
) -> Partial:
    """The parts of the `number`-th aggregate of a step, over a column of that type."""
    one, two = f"_{number}a", f"_{number}b"
    a, b = F.col(one), F.col(two)
    if of is None:
        return Partial((one,), (F.count(F.lit(1)),), (F.sum(a),), a)
    kept = of if _plain(kind) else of.cast("string")
    match made.kind:
        case "count":
            return Partial((one,), (F.count(of),), (F.sum(a),), a)
        case "sum":
            return Partial((one,), (F.sum(of),), (F.sum(a),), a)
        case "average":
            parts, merged = (F.sum(of), F.count(of)), (F.sum(a), F.sum(b))
            return Partial((one, two), parts, merged, F.when(b > 0, a / b))
        case "min":
            return Partial((one,), (F.min(of),), (F.min(a),), a)
        case "max":
            return Partial((one,), (F.max(of),), (F.max(a),), a)
        case "distinct":
            all_of_them = F.array_distinct(F.flatten(F.collect_list(a)))
            return Partial((one,), (F.collect_set(kept),), (all_of_them,), F.size(a))
        case "approx_distinct":
            sketch = F.hll_sketch_agg(of.cast("string"), F.lit(_precision(made)))
            return Partial((one,), (sketch,), (F.hll_union_agg(a),), F.hll_sketch_estimate(a))
        case "quantile":
            assert made.parameter is not None
            rank = F.greatest(F.lit(1), F.ceil(F.lit(made.parameter) * F.size(a))).cast("int")
            ordered = F.array_sort(a.cast(ArrayType(kind)))
            result = F.when(F.size(a) > 0, F.element_at(ordered, rank))
            return Partial((one,), (F.collect_list(kept),), (F.flatten(F.collect_list(a)),), result)
        case "first":
            return Partial(
                (one, two), (F.min_by(of, _order()), F.min(_order())), (F.min_by(a, b), F.min(b)), a
            )
        case "last":
            return Partial(
                (one, two), (F.max_by(of, _order()), F.max(_order())), (F.max_by(a, b), F.max(b)), a
            )
        case _:
            raise InvalidPipeline(
                f"{made.of!r} cannot be merged when two sessions merge",
                hint=f"Use the aggregates of headrace, such as sum() or distinct(). See {where}",
            )


def _precision(made: Aggregate) -> int:
    """Hash bits of a sketch with at most this error."""
    assert made.parameter is not None
    return min(21, max(4, math.ceil(2 * math.log2(1.04 / made.parameter))))


def _order() -> Column:
    """The order of rows, in types that can be stored."""
    time = F.unix_micros(metadata.TIME).alias("time")
    rest = (metadata.COMMIT, metadata.PARTITION, metadata.OFFSET, metadata.TOPIC)
    index = F.col(metadata.INDEX).cast("array<int>").alias("index")
    return F.struct(time, *(F.col(name) for name in rest), index)


def _plain(kind: DataType) -> bool:
    """True if the store can keep lists of this type unchanged."""
    if isinstance(kind, DecimalType):
        return False
    return isinstance(kind, StringType | IntegralType | FractionalType | BooleanType)
