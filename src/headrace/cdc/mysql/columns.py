"""Columns as the server declares them, and rows as Arrow.

The same value has the same form whether a SELECT gave it or the binlog: text as the server writes
it for decimals, times and labels, numbers and bytes for the rest. So rows can be compared.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.cdc.contract import Row
from headrace.errors import SourceError, UserError

_INTEGERS: Final = {
    "tinyint": (pa.int8(), pa.int16()),
    "smallint": (pa.int16(), pa.int32()),
    "mediumint": (pa.int32(), pa.int32()),
    "int": (pa.int32(), pa.int64()),
    "bigint": (pa.int64(), pa.decimal128(20, 0)),
}
"""The types of integers, signed and unsigned."""

_OTHERS: Final = {
    "float": pa.float32(),
    "double": pa.float64(),
    "year": pa.int16(),
    "date": pa.date32(),
    "time": pa.string(),
    "datetime": pa.timestamp("us"),
    "timestamp": pa.timestamp("us", tz="UTC"),
    **dict.fromkeys(
        ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "json"), pa.string()
    ),
    **dict.fromkeys(("enum", "set", "uuid", "inet4", "inet6"), pa.string()),
    **dict.fromkeys(
        ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), pa.binary()
    ),
    **dict.fromkeys(
        (
            *("geometry", "point", "linestring", "polygon", "geometrycollection"),
            *("multipoint", "multilinestring", "multipolygon"),
        ),
        pa.binary(),
    ),
}

_LABEL: Final = re.compile(r"'((?:[^']|'')*)'")
_IMPOSSIBLE_DAY: Final = r"^0000|-00"


@dataclass(frozen=True)
class DeclaredColumn:
    """A column as `information_schema` has it."""

    name: str
    kind: str
    type: pa.DataType
    labels: tuple[str, ...] = ()

    @property
    def selected(self) -> str:
        """The expression that gives its value in the form that the binlog gives it."""
        name = quoted(self.name)
        if self.kind == "float":  # Written as a float, it has six digits.
            return f"CAST({name} AS DOUBLE)"
        if self.kind == "bit":
            return f"CAST({name} + 0 AS CHAR)" if pa.types.is_decimal(self.type) else f"{name} + 0"
        if self.kind == "bigint" and pa.types.is_decimal(self.type):
            return f"CAST({name} AS CHAR)"
        return name

    def literal(self, value: Any) -> Any:
        """A value of a key as a parameter that is compared in the order of the key."""
        if self.kind == "enum":
            return self.labels.index(value) + 1 if value else 0
        if self.kind == "set":
            return sum(1 << self.labels.index(label) for label in value.split(",") if label)
        return int(value) if self.kind in (*_INTEGERS, "bit") else value


def declared_column(table: str, description: dict[str, Any]) -> DeclaredColumn:
    """A column from its row in `information_schema.COLUMNS`."""
    name, kind, text = (description[key] for key in ("COLUMN_NAME", "DATA_TYPE", "COLUMN_TYPE"))
    if "COMPRESSED" in text:
        raise UserError(
            f"column {name!r} of {table} is compressed, and the binlog has its bytes alone",
            hint=f"Run ALTER TABLE {table} MODIFY the column without COMPRESSED, or leave the "
            "table out",
        )
    labels: tuple[str, ...] = ()
    if kind in _INTEGERS:
        found = _INTEGERS[kind]["unsigned" in text]
    elif kind == "decimal":
        found = decimal_type(description["NUMERIC_PRECISION"], description["NUMERIC_SCALE"])
    elif kind == "bit":
        found = bit_type(description["NUMERIC_PRECISION"])
    elif kind in _OTHERS:
        found = _OTHERS[kind]
        if kind in ("enum", "set"):
            labels = tuple(one.replace("''", "'") for one in _LABEL.findall(text))
    else:
        raise UserError(
            f"column {name!r} of {table} has the type {kind}, which cannot be captured",
            hint="Leave the table out",
        )
    return DeclaredColumn(name, kind, found, labels)


def decimal_type(precision: int, scale: int) -> pa.DataType:
    """The type of a decimal: text if it has more digits than Arrow and Spark can hold."""
    return pa.decimal128(precision, scale) if precision <= 38 else pa.string()


def bit_type(bits: int) -> pa.DataType:
    """The type of a bit field: a flag, a number, or one that needs all 64 bits."""
    if bits == 1:
        return pa.bool_()
    return pa.int64() if bits < 64 else pa.decimal128(20, 0)


def quoted(name: str) -> str:
    """A name in backticks."""
    return "`" + name.replace("`", "``") + "`"


def rows_to_arrow(columns: pa.Schema, rows: Sequence[Row | None]) -> pa.StructArray:
    """Rows as Arrow, column by column."""
    fields = [field.with_nullable(True) for field in columns]
    absent = (None,) * len(fields)
    values = zip(*(absent if row is None else row for row in rows), strict=True)
    arrays = [
        _column_to_arrow(field, column) for field, column in zip(fields, values, strict=bool(rows))
    ] or [pa.array([], field.type) for field in fields]
    mask = pa.array([row is None for row in rows], pa.bool_())
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=mask)


def arrow_to_rows(columns: pa.Schema, values: pa.StructArray) -> list[Row | None]:
    """Rows from Arrow, in the form that the server gives them. Days that are no days are lost."""
    present = values.is_valid().to_pylist()
    lists = [_column_to_values(values.field(place)) for place in range(len(columns))]
    rows = zip(*lists, strict=True)
    return [row if there else None for row, there in zip(rows, present, strict=True)]


def _column_to_values(column: pa.Array) -> list[Any]:
    kind = column.type
    if pa.types.is_boolean(kind):
        return list(column.cast(pa.int8()).to_pylist())
    if pa.types.is_decimal(kind):
        return [None if value is None else f"{value:f}" for value in column.to_pylist()]
    if pa.types.is_timestamp(kind):
        return list(column.cast(pa.timestamp("us")).cast(pa.string()).to_pylist())
    return list((column.cast(pa.string()) if pa.types.is_date(kind) else column).to_pylist())


def _column_to_arrow(field: pa.Field, values: Sequence[Any]) -> pa.Array:
    kind = field.type
    try:
        if pa.types.is_boolean(kind):
            return pa.array(values, pa.int8()).cast(kind)
        if pa.types.is_decimal(kind):
            return pa.array(values, pa.string()).cast(kind)
        if pa.types.is_temporal(kind):
            return _times_to_arrow(values, kind)
        return pa.array(values, kind)
    except (pa.ArrowException, TypeError, UnicodeError) as error:
        raise SourceError(
            f"a value of the column {field.name!r} is no {kind}: {error}",
            hint="The column may have been changed while it was read. Take a new snapshot of it",
        ) from None


def _times_to_arrow(values: Sequence[str | None], kind: pa.DataType) -> pa.Array:
    """Dates and times from text. A day that no calendar has, such as 0000-00-00, is null."""
    texts = pa.array(values, pa.string())
    impossible = pc.match_substring_regex(texts, _IMPOSSIBLE_DAY)
    texts = pc.if_else(impossible, None, texts)
    plain = pa.timestamp("us") if pa.types.is_timestamp(kind) else kind
    try:
        found = texts.cast(plain)
    except pa.ArrowInvalid:  # The server can be told to accept 30 February.
        found = pa.concat_arrays([_day_or_null(text, plain) for text in texts])
    return found if found.type == kind else pc.assume_timezone(found, "UTC")


def _day_or_null(text: pa.Scalar, kind: pa.DataType) -> pa.Array:
    try:
        return pa.array([text], pa.string()).cast(kind)
    except pa.ArrowInvalid:
        return pa.nulls(1, kind)
