"""Rows as JSON, which Spark's `from_json` with the same schema reads as the same values.

Times are ISO 8601, in UTC with a `Z` where the column has a zone; decimals are texts with all their
digits; binary is base64; numbers that JSON lacks are "NaN", "Infinity" and "-Infinity".
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa

from headrace.log.kafka.rows_bytes import Garbage, HeadersOf, no_headers
from headrace.log.rows import check_of
from headrace.schema import json_text
from headrace.schema.json_columns import JsonColumns, converted

_ROWS_AT_ONCE = 10_000
_ODD = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_UNFIT = (TypeError, ValueError, ArithmeticError)

Convert = Callable[[Any], Any]

NOT_ROW = "it is not JSON with the declared columns"

_MOST_MICROS = 2**63


class JsonRows:
    """The codec of one schema's rows as JSON objects."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._names = frozenset(schema.names)
        self._read = [(field, _reader(field.type)) for field in schema]
        self._columns = JsonColumns(schema) if JsonColumns.fits(schema) else None

    def encode(self, batch: pa.RecordBatch) -> list[bytes]:
        written: list[bytes] = []
        for first in range(0, batch.num_rows, _ROWS_AT_ONCE):
            some = batch.slice(first, _ROWS_AT_ONCE)
            texts = json_text.objects(some.columns, some.schema.names, _written)
            written += texts.cast(pa.binary()).to_pylist()
        return written

    def decode(
        self, values: Sequence[bytes], odd: set[str], headers: HeadersOf = no_headers
    ) -> list[pa.Array]:
        if self._columns is None or not values:
            return self._by_row(values, odd)
        pieces = []
        for start, end, columns in self._columns.pieces(pa.array(values, pa.binary()), odd):
            try:
                pieces.append(columns or self._by_row(values[start:end], odd))
            except Garbage as garbage:
                garbage.index += start
                raise
        return [pa.concat_arrays(parts) for parts in zip(*pieces, strict=True)]

    def _by_row(self, values: Sequence[bytes], odd: set[str]) -> list[pa.Array]:
        try:
            rows = [orjson.loads(value) for value in values]
            for row in rows:
                if not row.keys() <= self._names:
                    odd |= row.keys() - self._names
            return [_column(field, [row.get(field.name) for row in rows]) for field in self._schema]
        except (*_UNFIT, AttributeError, pa.ArrowException):
            return self._slowly(values, odd)

    def _slowly(self, values: Sequence[bytes], odd: set[str]) -> list[pa.Array]:
        """Decode value by value, to find the bad one or to accept other programs' notation."""
        columns: list[list[Any]] = [[] for _ in self._read]
        for index, value in enumerate(values):
            try:
                row = json.loads(value, parse_float=Decimal)
            except (*_UNFIT, RecursionError) as error:
                raise Garbage(index, NOT_ROW, f"it is not JSON: {error}") from None
            if not isinstance(row, dict):
                what = f"it is not a JSON object but {type(row).__name__}"
                raise Garbage(index, NOT_ROW, what)
            odd |= row.keys() - self._names
            for column, (field, read) in zip(columns, self._read, strict=True):
                found = row.get(field.name)
                try:
                    column.append(None if found is None else read(found))
                except _UNFIT as error:
                    what = f"its column {field.name!r}: {error}"
                    raise Garbage(index, NOT_ROW, what, column=field.name) from None
                if found is None and not field.nullable:
                    what = f"it has no {field.name!r}, which must not be null"
                    raise Garbage(index, NOT_ROW, what, column=field.name)
        return [
            pa.array(column, field.type)
            for column, (field, _) in zip(columns, self._read, strict=True)
        ]


def _plain(value: Any) -> str:
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def _written(column: pa.Array) -> list[str]:
    """A column's values as JSON, one by one."""
    values = column.to_pylist()
    if (write := _writer(column.type)) is not None:
        values = [_or_none(write, value) for value in values]
    return [orjson.dumps(value, _plain, orjson.OPT_UTC_Z).decode() for value in values]


def _writer(kind: pa.DataType) -> Convert | None:
    """The conversion of a value before it is written, or None if there is none."""
    if pa.types.is_floating(kind):
        return json_text.finite
    if pa.types.is_list(kind):
        item = _writer(kind.value_type) or _same
        return lambda value: [_or_none(item, x) for x in value]
    if pa.types.is_map(kind):
        item = _writer(kind.item_type) or _same
        return lambda value: {k: _or_none(item, v) for k, v in value}
    if pa.types.is_struct(kind):
        fields = {field.name: _writer(field.type) or _same for field in kind}
        return lambda value: {name: _or_none(fields[name], v) for name, v in value.items()}
    return None


def _same(value: Any) -> Any:
    return value


def _or_none(convert: Convert, value: Any) -> Any:
    return None if value is None else convert(value)


def _column(field: pa.Field, values: list[Any]) -> pa.Array:
    """Convert a whole column at once; raise if any value needs the slow path."""
    kind = field.type
    if not field.nullable and None in values:
        raise ValueError
    if pa.types.is_nested(kind):
        if "decimal" in str(kind):
            raise TypeError  # a float has lost digits
        read = _reader(kind)
        return pa.array([_or_none(read, value) for value in values], kind)
    if pa.types.is_decimal(kind):
        return pa.array(values, pa.string()).cast(kind)
    if pa.types.is_temporal(kind) or pa.types.is_binary(kind):
        return converted(pa.array(values, pa.string()), kind)
    if pa.types.is_integer(kind) and not {int, type(None)}.issuperset(map(type, values)):
        raise TypeError  # Arrow cuts 1.5 to 1
    if pa.types.is_floating(kind):
        return pa.array([_ODD.get(v, v) if isinstance(v, str) else v for v in values], kind)
    return pa.array(values, kind)


def _reader(kind: pa.DataType) -> Convert:
    """The conversion of a JSON value to this type."""
    if pa.types.is_floating(kind):
        check = check_of(kind)
        return lambda value: check(
            _ODD.get(value, value) if isinstance(value, str) else _number(value)
        )
    if pa.types.is_list(kind):
        item = _reader(kind.value_type)
        return lambda value: [_or_none(item, x) for x in _must_be(list, value)]
    if pa.types.is_map(kind):
        item = _reader(kind.item_type)
        return lambda value: [(k, _or_none(item, v)) for k, v in _must_be(dict, value).items()]
    if pa.types.is_struct(kind):
        fields = {field.name: _reader(field.type) for field in kind}
        return lambda value: {
            name: _or_none(read, _must_be(dict, value).get(name)) for name, read in fields.items()
        }
    check = check_of(kind)
    if pa.types.is_timestamp(kind):
        return lambda value: _seconds(value) if type(value) is int else check(value)
    return lambda value: check(_number(value) if pa.types.is_integer(kind) else value)


def _seconds(value: int) -> int:
    """A number in place of a time is seconds since 1970. As microseconds, it may be any."""
    if not -_MOST_MICROS <= value * 1_000_000 < _MOST_MICROS:
        raise ValueError(f"{value} seconds are out of range")
    return value * 1_000_000


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else value


def _must_be(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"it is {type(value).__name__} and not {kind.__name__}")
    return value
