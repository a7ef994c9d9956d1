"""Arrow columns as PostgreSQL's types, and rows in the format of COPY."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.csv
from pyarrow import types


def sql_type(kind: pa.DataType) -> str:
    """The type of a column, which holds every value of the Arrow type as it is."""
    if types.is_list(kind) and _is_element(kind.value_type):
        return f"{sql_type(kind.value_type)}[]"
    if types.is_nested(kind):
        return "jsonb"
    if types.is_decimal(kind):
        return f"numeric({kind.precision}, {kind.scale})"
    if types.is_timestamp(kind):
        return "timestamptz" if kind.tz else "timestamp"
    if types.is_uint64(kind):
        return "numeric(20)"
    for test, name in _TYPES:
        if test(kind):
            return name
    return "text"


_TYPES = (
    (types.is_boolean, "boolean"),
    (types.is_int8, "smallint"),
    (types.is_int16, "smallint"),
    (types.is_uint8, "smallint"),
    (types.is_int32, "integer"),
    (types.is_uint16, "integer"),
    (types.is_integer, "bigint"),
    (types.is_float32, "real"),
    (types.is_floating, "double precision"),
    (types.is_date, "date"),
    (types.is_binary, "bytea"),
)


def _is_element(kind: pa.DataType) -> bool:
    plain = types.is_string(kind) or types.is_integer(kind) or types.is_boolean(kind)
    return bool(plain or types.is_floating(kind))


def to_copy(rows: pa.Table) -> io.BytesIO:
    """Rows in COPY's CSV format: texts in quotes, and nulls as nothing at all."""
    columns = [_as_text(column) for column in rows.columns]
    # A CSV file needs names, and names may occur twice here.
    table = pa.Table.from_arrays(columns, names=[str(place) for place in range(len(columns))])
    sink = io.BytesIO()
    options = pyarrow.csv.WriteOptions(include_header=False, quoting_style="needed")
    # Of a first chunk without rows Arrow writes kilobytes of zeros.
    filled = [batch for batch in table.to_batches() if len(batch)]
    pyarrow.csv.write_csv(pa.Table.from_batches(filled, table.schema), sink, options)
    sink.seek(0)
    return sink


def _as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if types.is_binary(kind):
        texts = [None if value is None else f"\\x{value.hex()}" for value in column.to_pylist()]
    elif types.is_list(kind) and _is_element(kind.value_type):
        texts = [None if value is None else _array(value) for value in column.to_pylist()]
    elif types.is_nested(kind):
        texts = [None if value is None else _json(value) for value in column.to_pylist()]
    else:
        return column
    return pa.chunked_array([pa.array(texts, pa.string())])


def _array(values: Sequence[Any]) -> str:
    """An array as PostgreSQL reads it."""
    return "{" + ",".join(map(_element, values)) + "}"


def _element(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value)


def _json(value: Any) -> str:
    """A value as JSON, which knows no NaN and no infinity: they are texts."""
    return json.dumps(_finite(value))


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {name: _finite(inner) for name, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, list) else value


def to_batch(rows: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Rows that psycopg2 has read, with the columns of a view."""
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    made = [_column(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(made, schema=schema)


def _column(values: Iterable[Any], kind: pa.DataType) -> pa.Array:
    if types.is_binary(kind):
        return pa.array((None if v is None else bytes(v) for v in values), kind)
    if types.is_integer(kind):
        return pa.array((None if v is None else int(v) for v in values), kind)
    if types.is_nested(kind):
        return pa.array([_unfinite(value, kind) for value in values], kind)
    return pa.array(list(values), kind)


def _unfinite(value: Any, kind: pa.DataType) -> Any:
    """A value from JSON, in which NaN and infinity are texts."""
    if value is None:
        return None
    if types.is_floating(kind):
        return float(value)
    if types.is_struct(kind):
        return {field.name: _unfinite(value.get(field.name), field.type) for field in kind}
    if types.is_list(kind):
        return [_unfinite(inner, kind.value_type) for inner in value]
    return value
