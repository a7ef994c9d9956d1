"""Values of SQLite as Arrow, and back. A value that its column cannot hold is an error by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from headrace.cdc.contract import Row
from headrace.errors import SourceError


def to_arrow(columns: pa.Schema, rows: Sequence[Row | None]) -> pa.StructArray:
    """Rows as Arrow, a null for each None."""
    empty = (None,) * len(columns)
    missing = [row is None for row in rows]
    values = list(zip(*(empty if row is None else row for row in rows), strict=True))
    arrays = [
        _array(column, values[place] if values else ()) for place, column in enumerate(columns)
    ]
    fields = [column.with_nullable(True).remove_metadata() for column in columns]
    mask = pa.array(missing, pa.bool_())
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=mask)


def to_rows(columns: pa.Schema, values: pa.StructArray) -> list[Row | None]:
    """Arrow as rows, as SQLite has them."""
    lists = [_plain(column.type, values.field(place)) for place, column in enumerate(columns)]
    missing = values.is_null().to_pylist()
    return [
        None if gone else row for gone, row in zip(missing, zip(*lists, strict=True), strict=True)
    ]


def _array(column: pa.Field, values: Sequence[Any]) -> pa.Array:
    kind = column.type
    try:
        if pa.types.is_int64(kind) and not all(map(_WHOLE, map(type, values))):
            raise pa.ArrowInvalid("not a whole number")
        if pa.types.is_boolean(kind):
            return pa.array([_TRUTHS[value] for value in values], kind)
        if pa.types.is_string(kind) and not all(map(_TEXT, map(type, values))):
            return pa.array([_text(value) for value in values], kind)
        if pa.types.is_float64(kind):
            return pa.array([_number(value) for value in values], kind)
        return pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, KeyError, TypeError, ValueError):
        raise _misfit(column, values) from None


_WHOLE: Callable[[type], bool] = frozenset({int, type(None)}).__contains__
_TEXT: Callable[[type], bool] = frozenset({str, type(None)}).__contains__
_TRUTHS = {None: None, 0: False, 1: True}


def _text(value: Any) -> str | None:
    if isinstance(value, bytes):
        raise TypeError
    return value if value is None or isinstance(value, str) else repr(value)


def _number(value: Any) -> float | None:
    if isinstance(value, int) and int(float(value)) != value:
        raise ValueError
    if value is not None and not isinstance(value, int | float):
        raise TypeError
    return value


def _misfit(column: pa.Field, values: Sequence[Any]) -> SourceError:
    """The error for the first value that does not fit."""
    for value in values:
        try:
            _array_of(column, value)
        except (pa.ArrowInvalid, pa.ArrowTypeError, KeyError, TypeError, ValueError):
            shown = repr(value) if len(repr(value)) <= 60 else repr(value)[:57] + "..."
            declared = (column.metadata or {}).get(b"sqlite", b"?").decode()
            return SourceError(
                f"The column {column.name!r}, declared as {declared}, has the value {shown}, and "
                f"its topic has {column.type} there",
                hint="SQLite lets any column hold any value. Give the row a value of the column's "
                "type, or declare the column as TEXT",
                column=column.name,
            )
    return SourceError(f"The values of the column {column.name!r} do not fit {column.type}")


def _array_of(column: pa.Field, value: Any) -> None:
    kind = column.type
    if pa.types.is_int64(kind) and not _WHOLE(type(value)):
        raise TypeError
    if pa.types.is_boolean(kind):
        _TRUTHS[value]
    elif pa.types.is_string(kind):
        pa.array([_text(value)], kind)
    elif pa.types.is_float64(kind):
        _number(value)
    else:
        pa.array([value], kind)


def _plain(kind: pa.DataType, column: pa.Array) -> list[Any]:
    values = column.to_pylist()
    if pa.types.is_boolean(kind):
        return [None if value is None else int(value) for value in values]
    return list(values)
