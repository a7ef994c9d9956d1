"""Rows of Kafka Connect's JSON, with their types, as rows and as Arrow."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.cdc.contract import UNCHANGED, Row
from headrace.errors import SourceError

_UNSENT: Final = "__debezium_unavailable_value"
_UNSENT_BYTES: Final = base64.b64encode(_UNSENT.encode()).decode()

_PLAIN: Final = {
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "float32": pa.float32(),
    "double": pa.float64(),
    "float64": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "bytes": pa.binary(),
}

_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
_DAY: Final = {"io.debezium.time.Date", "org.apache.kafka.connect.data.Date"}
_MOMENT: Final = {
    "io.debezium.time.Timestamp": 1_000,
    "org.apache.kafka.connect.data.Timestamp": 1_000,
    "io.debezium.time.MicroTimestamp": 1,
}
"""Times without a zone, and the microseconds of their unit."""
_INSTANT: Final = "io.debezium.time.ZonedTimestamp"

Reader = Callable[[Any], Any]
"""Makes the value of a row from that of the JSON."""


def column(field: dict[str, Any]) -> tuple[pa.Field, Reader]:
    """A column from its description, and how to read its values."""
    name, kind, meaning = field["field"], field["type"], field.get("name")
    if meaning == _DECIMAL:
        found, read = _decimal(field.get("parameters", {}))
    elif meaning in _DAY:
        found, read = pa.date32(), _same
    elif meaning in _MOMENT:
        micros = _MOMENT[meaning]
        found, read = pa.timestamp("us"), lambda value: value * micros
    elif meaning == _INSTANT:
        found, read = pa.timestamp("us", tz="UTC"), _same
    elif kind == "bytes":
        found, read = pa.binary(), base64.b64decode
    elif kind in _PLAIN:
        found, read = _PLAIN[kind], _same
    else:  # Arrays, maps and structures.
        found, read = pa.string(), lambda value: json.dumps(value, separators=(",", ":"))

    def present(value: Any) -> Any:
        if value is None:
            return None
        return UNCHANGED if value in (_UNSENT, _UNSENT_BYTES) else read(value)

    return pa.field(name, found), present


def _same(value: Any) -> Any:
    return value


def _decimal(parameters: dict[str, str]) -> tuple[pa.DataType, Reader]:
    scale = int(parameters.get("scale", 0))
    precision = int(parameters.get("connect.decimal.precision", 38))

    def read(value: str) -> str:
        number = int.from_bytes(base64.b64decode(value), "big", signed=True)
        digits = str(abs(number)).rjust(scale + 1, "0")
        point = f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits
        return f"-{point}" if number < 0 else point

    fits = 0 <= scale <= precision <= 38
    return (pa.decimal128(precision, scale) if fits else pa.string()), read


def to_arrow(columns: pa.Schema, rows: Sequence[Row | None]) -> pa.StructArray:
    """Rows as Arrow, column by column."""
    fields = [field.with_nullable(True) for field in columns]
    absent = (None,) * len(fields)
    values = list(zip(*(absent if row is None else row for row in rows), strict=True))
    arrays = [_array(field, values[place] if rows else ()) for place, field in enumerate(fields)]
    mask = pa.array([row is None for row in rows], pa.bool_())
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=mask)


def _array(field: pa.Field, values: Sequence[Any]) -> pa.Array:
    kind = field.type
    try:
        if pa.types.is_date(kind):
            return pa.array(values, pa.int32()).cast(kind)
        if pa.types.is_decimal(kind) or (pa.types.is_timestamp(kind) and kind.tz):
            return pa.array(values, pa.string()).cast(kind)
        if pa.types.is_timestamp(kind):
            return pa.array(values, pa.int64()).cast(kind)
        return pa.array(values, kind)
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise SourceError(
            f"a value of the column {field.name!r} is no {kind}: {error}",
            hint="Report it with the type of the column in the database",
        ) from None


def to_rows(columns: pa.Schema, values: pa.StructArray) -> list[Row | None]:
    """Rows from Arrow, in the form that the engine gives them."""
    present = values.is_valid().to_pylist()
    lists = [_values(values.field(place)) for place in range(len(columns))]
    rows = zip(*lists, strict=True)
    return [row if there else None for row, there in zip(rows, present, strict=True)]


def _values(column: pa.Array) -> list[Any]:
    kind = column.type
    if pa.types.is_date(kind):
        column = column.cast(pa.int32())
    elif pa.types.is_decimal(kind):
        return [None if value is None else f"{value:f}" for value in column.to_pylist()]
    elif pa.types.is_timestamp(kind) and kind.tz:
        column = pc.strftime(column, "%Y-%m-%dT%H:%M:%SZ")
    elif pa.types.is_timestamp(kind):
        column = column.cast(pa.int64())
    return list(column.to_pylist())
