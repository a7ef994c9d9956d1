"""Keys of rows as text: a JSON object of the primary key, as Debezium writes it."""

from __future__ import annotations

import base64
import json
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.cdc.contract import Row, Source, Table
from headrace.errors import SourceError

_ESCAPED = r'["\\\x00-\x1f]'
"""Characters that JSON writes in another way."""


def key_texts(source: Source, table: Table, keys: list[Row]) -> list[str]:
    """The keys of rows as text, all at once."""
    if not keys:
        return []
    columns = pa.schema([table.columns.field(name) for name in table.key])
    texts: list[str] = key_column(table, source.columns(columns, keys)).to_pylist()
    return texts


def key_column(table: Table, values: pa.StructArray) -> pa.Array:
    """The keys of rows as a column of text. The values have the columns of the key, or all."""
    parts: list[Any] = []
    for number, name in enumerate(table.key):
        column = values.field(name)
        if column.null_count:
            raise SourceError(
                f"A row of table {table.full_name} has no value in {name!r}, a column of its "
                "primary key, so it cannot be told from others",
                hint="Give it one, and declare the column NOT NULL",
                table=table.full_name,
            )
        label = json.dumps(name, ensure_ascii=False)
        parts += [f"{',' if number else '{'}{label}:", _json(column)]
    return pc.binary_join_element_wise(*parts, "}", "")


def _json(column: pa.Array) -> pa.Array:
    """The JSON of each value of a column."""
    if pa.types.is_integer(column.type):
        return column.cast(pa.string())
    if pa.types.is_string(column.type):
        escaped = pc.any(pc.match_substring_regex(column, _ESCAPED)).as_py()
        if not escaped:
            return pc.binary_join_element_wise('"', column, '"', "")
    texts = [json.dumps(_plain(value), ensure_ascii=False) for value in column.to_pylist()]
    return pa.array(texts, pa.string())


def _plain(value: Any) -> Any:
    """A value that JSON can hold. Decimals are text, since JSON's numbers lose digits."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime | date):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal) else value
