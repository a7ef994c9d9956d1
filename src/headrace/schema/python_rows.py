"""Arrow rows as Python objects, with text for values that Python cannot represent."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import types

UNREADABLE = (ValueError, OverflowError, NotImplementedError)
"""The errors of Arrow and `datetime` for years past 9999, nanoseconds and invalid UTF-8."""


def unreadable_column(data: pa.RecordBatch) -> str | None:
    """The first column with a value that Python cannot represent."""
    for name, column in zip(data.schema.names, data.columns, strict=True):
        try:
            column.to_pylist()
        except UNREADABLE:
            return str(name)
    return None


def to_rows(data: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """The rows. If Python cannot represent a value, its column's times and dates are text."""
    columns = [to_values(column) for column in data.columns]
    names = data.schema.names
    if not names:
        return [{} for _ in range(data.num_rows)]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def to_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """A column's values. If Python cannot represent one of them, times and dates are text."""
    try:
        values: list[Any] = column.to_pylist()
    except UNREADABLE:
        values = column.cast(_text(column.type)).to_pylist()
        if types.is_string(column.type):
            values = [None if v is None else v.decode(errors="backslashreplace") for v in values]
    return values


def _text(kind: pa.DataType) -> pa.DataType:
    """The type with text in place of times and dates, and bytes in place of text."""
    if types.is_temporal(kind):
        return pa.string()
    if types.is_string(kind):
        return pa.binary()
    if types.is_struct(kind):
        return pa.struct([field.with_type(_text_inside(field.type)) for field in kind])
    if types.is_list(kind):
        return pa.list_(_text_inside(kind.value_type))
    if types.is_map(kind):
        return pa.map_(_text_inside(kind.key_type), _text_inside(kind.item_type))
    return kind


def _text_inside(kind: pa.DataType) -> pa.DataType:
    return kind if types.is_string(kind) else _text(kind)
