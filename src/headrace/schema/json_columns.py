"""JSON objects decoded into columns by Arrow, where its result is beyond doubt.

Arrow reads JSON many times faster than a decoder that goes row by row, and is stricter in some
ways and laxer in others. Here it decodes only objects that every careful decoder reads alike:
plain numbers in range, times in their common forms, no name twice, nothing that only some parsers
accept. All others are left to the caller's own decoder, in small pieces.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from pyarrow import types

from headrace.clock import FIRST_MOMENT, LAST_MOMENT
from headrace.schema.widening import nullable

_AT_ONCE = 8_192
_LEAST = 64
"""Rows that are left to the other decoder if one of them is in doubt: a call of Arrow takes as
long as some rows."""

_LONG = 400
"""From so many bytes on, a value may be nested too deeply for other parsers."""
_LONGEST = 50_000
_DEEPEST = 400

_DOUBTFUL = (
    r"[eE][+-]?0*[1-9][0-9]{3}"  # parsers limit the exponent of a number
    r"|[:,\[][ \t\r\n]*-?(?:NaN|Inf)"  # not JSON, but read by some
)
_DIGITS = "[0-9]{300}"
"""More than some parsers accept in a number, if it has three times as many."""
_TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?"
_OFFSET = r"[+-](?:0[0-9]|1[0-7]):[0-5][0-9]"
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_BASE64 = (
    r"^(?:[A-Za-z0-9+/]{4})*"
    r"(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$"
)
_FIRST_DAY = -719_162
"""The first of January of the year 1."""


class Piece(NamedTuple):
    """Some consecutive rows, with their columns if they were decoded."""

    start: int
    end: int
    columns: list[pa.Array] | None


class _InDoubt(ValueError):
    """Other decoders may read a value in another way."""


class JsonColumns:
    """The decoder for one schema; `schema` has only types for which `fits` is true."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._read = pa.schema([(field.name, _read_as(field.type)) for field in schema])
        self._ignoring = pj.ParseOptions(self._read, unexpected_field_behavior="ignore")
        self._learning = pj.ParseOptions(self._read, unexpected_field_behavior="infer")

    @staticmethod
    def fits(schema: pa.Schema) -> bool:
        """True if Arrow can read objects with these columns."""
        return len(schema) > 0 and all(_fits(field.type) for field in schema)

    def pieces(self, values: pa.BinaryArray, odd: set[str] | None = None) -> Iterator[Piece]:
        """Decode values, of which none is null, in pieces from the first to the last.

        Adds to `odd`, if it is given, the names that decoded objects have and the schema lacks.
        """
        parse = self._ignoring if odd is None else self._learning
        start, rows = 0, _AT_ONCE
        while start < len(values):
            some = values.slice(start, rows)
            end = start + len(some)
            try:
                columns = self._decoded(some, parse, odd)
            except ValueError:
                if len(some) > _LEAST:
                    rows = max(_LEAST, len(some) // 4)
                    continue
                columns = None
            yield Piece(start, end, columns)
            start = end
            if columns is not None:
                rows = min(_AT_ONCE, 2 * rows)

    def _decoded(
        self, values: pa.Array, parse: pj.ParseOptions, odd: set[str] | None
    ) -> list[pa.Array]:
        """Decode all values, or raise `ValueError`."""
        data = _lines(values)
        whole = pj.ReadOptions(use_threads=False, block_size=data.size + 1)
        read = pj.read_json(pa.BufferReader(data), whole, parse).combine_chunks()
        # Each value holds at least one object, so none holds two.
        if read.num_rows != len(values):
            raise _InDoubt
        columns = []
        for field in self.schema:
            column = converted(_one(read.column(field.name)), field.type)
            if not field.nullable and column.null_count:
                raise _InDoubt
            columns.append(column)
        if odd is not None:
            odd.update(read.column_names[len(columns) :])
        return columns


def _lines(values: pa.Array) -> pa.Buffer:
    """The values as one text, a line each, if all may be told apart in it.

    A value that begins with a brace and ends with one cannot be continued by the next: Arrow
    accepts neither a line break in a string nor an object after another's without a comma.
    """
    values.cast(pa.string())  # raises if it is not UTF-8
    if not _all(pc.and_(pc.starts_with(values, b"{"), pc.ends_with(values, b"}"))):
        raise _InDoubt
    sizes = pc.binary_length(values)
    longest = pc.max(sizes).as_py()
    if longest > _LONGEST:
        raise _InDoubt
    if longest > _LONG:
        opened = pc.add(pc.count_substring(values, b"["), pc.count_substring(values, b"{"))
        if pc.max(opened).as_py() > _DEEPEST:
            raise _InDoubt
    lines = pc.binary_join_element_wise(values, b"\n", b"")
    _, ends, data = lines.buffers()
    offsets = np.frombuffer(ends, np.int32)
    first, last = offsets[lines.offset], offsets[lines.offset + len(lines)]
    found: pa.Buffer = data.slice(first, last - first)
    text = pa.Array.from_buffers(
        pa.binary(), 1, [None, pa.py_buffer(np.array([0, found.size], np.int32)), found]
    )
    if _has(text, _DOUBTFUL) or (longest > _LONG and _has(text, _DIGITS)):
        raise _InDoubt
    return found


def _has(text: pa.Array, pattern: str) -> bool:
    return bool(pc.match_substring_regex(text, pattern)[0].as_py())


def _one(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return found.chunk(0) if isinstance(found, pa.ChunkedArray) else found


def _fits(kind: pa.DataType) -> bool:
    if types.is_list(kind):
        return nullable(kind) == kind and _fits(kind.value_type)
    if types.is_struct(kind):
        return nullable(kind) == kind and kind.num_fields > 0 and all(_fits(f.type) for f in kind)
    return (
        types.is_integer(kind)
        or types.is_float64(kind)
        or types.is_boolean(kind)
        or types.is_string(kind)
        or types.is_decimal128(kind)
        or types.is_date32(kind)
        or types.is_binary(kind)
        or (types.is_timestamp(kind) and kind.unit == "us" and kind.tz in (None, "UTC"))
    )


def _read_as(kind: pa.DataType) -> pa.DataType:
    """The type that Arrow reads of JSON for a column of a type."""
    if types.is_list(kind):
        return pa.list_(_read_as(kind.value_type))
    if types.is_struct(kind):
        return pa.struct([(field.name, _read_as(field.type)) for field in kind])
    if types.is_temporal(kind) or types.is_binary(kind):
        return pa.string()
    return kind


def converted(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column as Arrow reads it from JSON, checked and in its own type, or `ValueError`."""
    if types.is_list(kind):
        items = converted(column.values, kind.value_type)
        mask = column.is_null() if column.null_count else None
        return pa.ListArray.from_arrays(column.offsets, items, kind, mask=mask)
    if types.is_struct(kind):
        children = [converted(column.field(field.name), field.type) for field in kind]
        mask = column.is_null() if column.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    if types.is_timestamp(kind):
        return _moments(column, kind)
    if types.is_date(kind):
        return _days(column)
    if types.is_binary(kind):
        _check(column, _BASE64)
        decoded = (None if v is None else base64.b64decode(v) for v in column.to_pylist())
        return pa.array(decoded, kind)
    if types.is_floating(kind):
        _check_floats(column)
    elif types.is_decimal(kind):
        column.validate(full=True)  # Arrow reads more digits than the type has
    return column


def _check(texts: pa.Array, pattern: str) -> None:
    if not _all(pc.match_substring_regex(texts, pattern)):
        raise _InDoubt


def _all(flags: Any) -> bool:
    """True if no flag is false; nulls do not count."""
    return bool(pc.all(flags, min_count=0).as_py())


def _check_floats(column: pa.Array) -> None:
    numbers = column.drop_null().to_numpy()
    # Of a whole number, other decoders lose the sign of zero.
    if not np.isfinite(numbers).all() or (np.signbit(numbers) & (numbers == 0)).any():
        raise _InDoubt


def _moments(texts: pa.Array, kind: Any) -> pa.Array:
    if kind.tz is None:
        _check(texts, _TIME + "$")
        return _in_range(texts.cast(kind))
    _check(texts, f"{_TIME}(?:Z|{_OFFSET})?$")
    # Without a zone, a time is in UTC.
    zoned = pc.match_substring_regex(texts, f"(?:Z|{_OFFSET})$")
    if not _all(zoned):
        texts = pc.if_else(zoned, texts, pc.binary_join_element_wise(texts, "Z", ""))
    return _in_range(texts.cast(kind))


def _in_range(moments: pa.Array) -> pa.Array:
    micros = pc.min_max(moments.cast(pa.int64())).as_py()
    if (
        micros["min"] is not None
        and not FIRST_MOMENT <= micros["min"] <= micros["max"] <= LAST_MOMENT
    ):
        raise _InDoubt
    return moments


def _days(texts: pa.Array) -> pa.Array:
    _check(texts, _DATE)
    days = texts.cast(pa.date32())
    first = pc.min(days.cast(pa.int32())).as_py()
    if first is not None and first < _FIRST_DAY:
        raise _InDoubt
    return days
