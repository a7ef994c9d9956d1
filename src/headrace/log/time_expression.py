"""Event times that are expressions: their checks, and those that need no Spark to be computed.

The log says how the rows of each commit stand in time, so it computes their event times itself.
Broken values, such as malformed text, are null here and in Spark alike.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError

from headrace.errors import InvalidSchema
from headrace.schema.ddl import format_type
from headrace.schema.time_text import TIMESTAMP, parsed

POSSIBLE = (
    "a column, a path such as payload.created_at, timestamp_seconds, timestamp_millis, "
    "timestamp_micros, to_timestamp(text), CAST(... AS timestamp), || between texts, and + or - "
    "INTERVAL n SECOND, or another unit up to HOUR"
)
"""The functions that a log can compute."""

_CHANGING = {
    "currentdate", "currentdatetime", "currenttime", "currenttimestamp", "input_file_name",
    "localtimestamp", "monotonically_increasing_id", "now", "rand", "randn", "random", "shuffle",
    "spark_partition_id", "uniform", "uuid",
}  # fmt: skip
"""Functions whose result changes between reads of a record."""
_NOT_ONE_ROW = (exp.AggFunc, exp.Window, exp.Query, exp.Subquery, exp.UDTF, exp.Explode, exp.Star)
_SCALES = {"timestamp_seconds": 1_000_000, "timestamp_millis": 1_000, "timestamp_micros": 1}
_UNITS = {"MICROSECOND": 1, "MILLISECOND": 1_000, "SECOND": 1_000_000, "MINUTE": 60_000_000,
          "HOUR": 3_600_000_000}  # fmt: skip
_CASTS = (exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPLTZ)

Rows: TypeAlias = pa.RecordBatch | pa.Table
Compute = Callable[[Rows], Any]


def inputs(text: str, schema: pa.Schema) -> tuple[str, ...]:
    """The columns that an expression names. Raises `InvalidSchema` if one is not there."""
    known = {name.lower(): name for name in schema.names}
    bound = {name.name for scope in _tree(text).find_all(exp.Lambda) for name in scope.expressions}
    roots = {column.parts[0].name for column in _tree(text).find_all(exp.Column)} - bound
    for name in sorted(roots):
        if name.lower() not in known:
            raise InvalidSchema(
                f"The event time {text!r} names a column {name!r} that is not in the schema",
                hint=f"The schema has: {', '.join(schema.names)}",
            )
    return tuple(name for name in schema.names if name.lower() in {r.lower() for r in roots})


def check(text: str, schema: pa.Schema) -> None:
    """Check that an expression has one value for each record, always the same."""
    for node in _tree(text).walk():
        name = node.name.lower() if isinstance(node, exp.Anonymous) else node.key
        if name in _CHANGING:
            raise InvalidSchema(
                f"The event time {text!r} changes whenever a record is read",
                hint="An event time is computed from the record alone. For the time at which a "
                "record arrives, name a timestamp column and set missing_time=arrival",
            )
        if isinstance(node, (*_NOT_ONE_ROW, exp.Alias, exp.Block)):
            raise InvalidSchema(f"The event time {text!r} is not a value of one record")
    if not inputs(text, schema):
        raise InvalidSchema(f"The event time {text!r} names no column of the record")


def check_computed(text: str, schema: pa.Schema) -> None:
    """Check that a log can compute an expression."""
    computed(text, schema, schema.empty_table())


def computed(text: str, schema: pa.Schema, rows: Rows) -> pa.Array:
    """The timestamps that an expression has for each row."""
    found = _compiled(text, schema)(rows)
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


@lru_cache(maxsize=256)
def _tree(text: str) -> Any:
    try:
        return sqlglot.parse_one(text, dialect="spark")
    except (TokenError, ParseError):
        raise InvalidSchema(
            f"The event time {text!r} is neither a column nor an expression in Spark SQL"
        ) from None


@lru_cache(maxsize=256)
def _compiled(text: str, schema: pa.Schema) -> Compute:
    def refused(what: str) -> InvalidSchema:
        return InvalidSchema(
            f"The event time {text!r} cannot be computed without Spark: {what}",
            hint=f"A log can compute {POSSIBLE}",
        )

    def made(node: Any) -> tuple[Compute, pa.DataType]:
        node = node.unnest()
        if (path := _path(node)) is not None:
            return _field(path, schema, refused)
        match node:
            case exp.Literal(is_string=True):
                value = pa.scalar(node.name, pa.string())
                return lambda rows: pa.repeat(value, rows.num_rows), pa.string()
            case exp.DPipe() | exp.Concat():
                return _joined([_as_text(*made(part), refused) for part in _parts(node)])
            case exp.Cast() if node.to.this in _CASTS:
                return _as_timestamp(*made(node.this), refused)
            case exp.Anonymous(expressions=[only]) if node.name.lower() in _SCALES:
                scale = _SCALES[node.name.lower()]
                return _scaled(*made(only), scale, node.name, refused)
            case exp.Anonymous(expressions=[only]) if node.name.lower() == "try_to_timestamp":
                return _as_timestamp(*made(only), refused)
            case exp.Add() | exp.Sub() if (span := _span(node.expression)) is not None:
                moment = _as_timestamp(*made(node.this), refused)[0]
                return _moved(moment, span if isinstance(node, exp.Add) else -span)
        raise refused(f"{node.sql(dialect='spark')} is not supported")

    compute, kind = made(_tree(text))
    if kind != TIMESTAMP:
        raise InvalidSchema(
            f"The event time {text!r} is {format_type(kind)}, and not a timestamp",
            hint="timestamp_seconds, timestamp_millis and timestamp_micros convert numbers, and "
            "to_timestamp texts",
        )
    return compute


Refused = Callable[[str], InvalidSchema]
Made = tuple[Compute, pa.DataType]


def _path(node: Any) -> list[str] | None:
    """The names on the way to a field, if the node is only a path."""
    if isinstance(node, exp.Column):
        return [part.name for part in node.parts]
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        before = _path(node.this)
        return None if before is None else [*before, node.expression.name]
    return None


def _field(path: list[str], schema: pa.Schema, refused: Refused) -> Made:
    kind, names = pa.struct(list(schema)), []
    for part in path:
        there = list(kind) if pa.types.is_struct(kind) else []
        found = [field for field in there if field.name.lower() == part.lower()]
        if len(found) != 1:
            raise refused(f"there is no field {'.'.join(path)}")
        names.append(found[0].name)
        kind = found[0].type

    def read(rows: Rows) -> Any:
        column = rows.column(names[0])
        # Unlike a slice of the child, struct_field knows that the field of a null is null.
        return pc.struct_field(column, names[1:]) if names[1:] else column

    return read, kind


def _parts(node: Any) -> list[Any]:
    if isinstance(node, exp.Concat):
        return list(node.expressions)
    return [node.this, node.expression]


def _as_text(compute: Compute, kind: pa.DataType, refused: Refused) -> Compute:
    if pa.types.is_string(kind):
        return compute
    if pa.types.is_integer(kind) or pa.types.is_date(kind):
        return lambda rows: compute(rows).cast(pa.string())
    raise refused(f"|| takes texts, whole numbers and dates, not {format_type(kind)}")


def _joined(parts: list[Compute]) -> Made:
    def join(rows: Rows) -> Any:
        return pc.binary_join_element_wise(*(part(rows) for part in parts), "")

    return join, pa.string()


def _as_timestamp(compute: Compute, kind: pa.DataType, refused: Refused) -> Made:
    if kind == TIMESTAMP:
        return compute, TIMESTAMP
    if pa.types.is_string(kind):
        return lambda rows: parsed(compute(rows)), TIMESTAMP
    if pa.types.is_date(kind):
        return lambda rows: compute(rows).cast(pa.timestamp("us")).cast(TIMESTAMP), TIMESTAMP
    return _scaled(compute, kind, 1_000_000, "CAST", refused)


def _span(node: Any) -> int | None:
    """The microseconds of an interval of one whole number and one unit of fixed length."""
    if not isinstance(node, exp.Interval) or not isinstance(node.this, exp.Literal):
        return None
    unit, number = _UNITS.get(str(node.unit).upper().rstrip("S")), node.this.name
    return int(number) * unit if unit is not None and number.isdecimal() else None


def _moved(compute: Compute, span: int) -> Made:
    def move(rows: Rows) -> pa.Array:
        column = compute(rows)
        known = pc.is_valid(column).to_numpy(zero_copy_only=False)
        moments = pc.fill_null(column.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
        low, high = max(-(2**63), -(2**63) - span), min(2**63 - 1, 2**63 - 1 - span)
        known = known & (moments >= low) & (moments <= high)
        return pa.array(np.where(known, moments, 0) + span, pa.int64(), mask=~known).cast(TIMESTAMP)

    return move, TIMESTAMP


def _scaled(compute: Compute, kind: pa.DataType, scale: int, name: str, refused: Refused) -> Made:
    fractions = pa.types.is_float64(kind) and scale == 1_000_000
    if not fractions and not pa.types.is_integer(kind):
        raise refused(f"{name} of {format_type(kind)} is not supported")

    def convert(rows: Rows) -> pa.Array:
        column = compute(rows)
        known = pc.is_valid(column).to_numpy(zero_copy_only=False)
        numbers = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
        if fractions:
            micros = numbers * np.float64(scale)
            known = known & (np.abs(micros) < 2.0**63)  # false for NaN
            found = np.where(known, micros, 0).astype(np.int64)
        else:
            most = (2**63 - 1) // scale
            known = known & (numbers <= most) & (numbers >= -most)
            found = np.where(known, numbers, 0).astype(np.int64) * scale
        return pa.array(found, pa.int64(), mask=~known).cast(TIMESTAMP)

    return convert, TIMESTAMP
