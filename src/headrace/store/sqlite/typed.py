"""Arrow columns from the values that a view shows: times with their zone, decimals, booleans."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyarrow import types

from headrace.clock import SECOND, to_micros
from headrace.store.sqlite.values import from_sqlite

ROWS_AT_ONCE = 50_000
"""Rows that are Python objects at one time."""

_ZONED = re.compile(r"timestamp\[us, tz=(.+)\]")
_DECIMAL = re.compile(r"decimal128\((\d+), (\d+)\)")
_NESTED = re.compile(r"(list|struct)<(.*)>", re.DOTALL)
_MOMENT = re.compile(r"(-?\d+)-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{6}))?")
_CYCLE = 400
_CYCLE_DAYS = 146_097
"""The calendar repeats every 400 years."""

_UNFIT = (pa.ArrowInvalid, pa.ArrowTypeError, ValueError, TypeError, ArithmeticError)
"""Errors of a value that its column's type cannot hold."""


def schema_of(columns: Sequence[str], declared: Mapping[str, str]) -> pa.Schema:
    """The Arrow schema of a view. Only `_state`, a text, is not in its declaration."""
    kinds = (parse_arrow(declared[name]) if name in declared else pa.string() for name in columns)
    return pa.schema(list(zip(columns, kinds, strict=True)))


def parse_arrow(text: str) -> pa.DataType:
    """The Arrow type that has this name; a string if the name is ambiguous, as JSON is stored."""
    try:
        found = _parse(text)
    except (ValueError, pa.ArrowInvalid):
        return pa.string()
    return found if str(found) == text else pa.string()


def _parse(text: str) -> pa.DataType:
    if zoned := _ZONED.fullmatch(text):
        return pa.timestamp("us", zoned[1])
    if decimal := _DECIMAL.fullmatch(text):
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    if nested := _NESTED.fullmatch(text):
        fields = [_field(part) for part in _parts(nested[2])]
        return pa.struct(fields) if nested[1] == "struct" else pa.list_(*fields)
    return pa.type_for_alias(text)


def _field(text: str) -> pa.Field:
    name, _, kind = text.partition(": ")
    return pa.field(name, _parse(kind.removesuffix(" not null")), not kind.endswith(" not null"))


def _parts(text: str) -> Iterator[str]:
    """The fields of a struct: separated by commas that are not in brackets."""
    depth, first = 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "<([") - (letter in ">)]")
        if letter == "," and not depth:
            yield text[first:place]
            first = place + 2
    yield text[first:]


def batches(rows: Iterable[Sequence[Any]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows of a view as Arrow batches, read as they are needed."""
    found = iter(rows)
    while some := list(itertools.islice(found, ROWS_AT_ONCE)):
        pairs = zip(zip(*some, strict=True), schema, strict=True)
        columns = [from_shown(values, field.type) for values, field in pairs]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def table_of(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], kinds: Sequence[str | None]
) -> pa.Table:
    """The rows of a query as a table. Columns without a known type get that of their values."""
    made = []
    for place in range(len(columns)):
        kind = kinds[place] if kinds else None
        known = None if kind is None else parse_arrow(kind)
        made.append(_column([row[place] for row in rows], known))
    return pa.Table.from_arrays(made, names=list(columns))


def _column(values: Sequence[Any], kind: pa.DataType | None) -> pa.ChunkedArray:
    if kind is not None:
        try:
            return _chunked(values, kind, from_shown)
        except _UNFIT:  # such as that of another table in a UNION
            pass
    found = {type(value) for value in values} - {type(None)}
    if found <= {int}:
        return _chunked(values, pa.int64() if found else pa.null(), pa.array)
    if found <= {int, float}:
        return _chunked(values, pa.float64(), from_sqlite)
    if found == {bytes}:
        return _chunked(values, pa.binary(), pa.array)
    return _chunked([v if v is None else _text(v) for v in values], pa.string(), pa.array)


def _chunked(
    values: Sequence[Any], kind: pa.DataType, make: Callable[[Sequence[Any], pa.DataType], pa.Array]
) -> pa.ChunkedArray:
    chunks = range(0, len(values), ROWS_AT_ONCE)
    return pa.chunked_array([make(values[i : i + ROWS_AT_ONCE], kind) for i in chunks], kind)


def _text(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def from_shown(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Convert a column of a view, in which times and dates are text, to its Arrow type."""
    if types.is_date(kind):
        return pa.array(values, pa.string()).cast(kind)
    if not types.is_timestamp(kind):
        return from_sqlite(values, kind)
    try:
        return pa.array(values, pa.string()).cast(pa.timestamp("us")).cast(kind)
    except pa.ArrowInvalid:  # a year after 9999
        micros = [None if value is None else _micros(value) for value in values]
        return pa.array(micros, pa.int64()).cast(kind)


def _micros(text: str) -> int:
    """The microseconds since 1970 of a time, in any year."""
    if (found := _MOMENT.fullmatch(text)) is None:
        raise ValueError(f"{text!r} is not a time")
    year, month, day, hour, minute, second, fraction = (int(part or 0) for part in found.groups())
    cycles, rest = divmod(year - 2000, _CYCLE)
    moment = datetime(2000 + rest, month, day, hour, minute, second, fraction, tzinfo=UTC)
    return to_micros(moment) + cycles * _CYCLE_DAYS * 86_400 * SECOND
