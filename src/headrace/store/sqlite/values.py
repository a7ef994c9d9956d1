"""Conversion of Arrow columns to SQLite values and back.

Times are microseconds and dates days since 1970; decimals and nested values are text. A view's SQL
shows them in readable form.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import apsw
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from headrace.errors import InvalidPipeline

_ROWS_AT_ONCE = 50_000
_YEARS = 8_000
_YEARS_SECONDS = _YEARS // 400 * 146_097 * 86_400


def check_storable(schema: pa.Schema, what: str) -> None:
    """Check that SQLite can store such rows without loss."""
    for field in schema:
        if types.is_nested(field.type) and not _plain(field.type):
            raise InvalidPipeline(
                f"Column {field.name!r} of {what} is {field.type}, which a view cannot keep",
                hint="Cast its values to strings or numbers, or leave it out",
            )


def _plain(kind: pa.DataType) -> bool:
    if types.is_list(kind):
        return _plain(kind.value_type)
    if types.is_struct(kind):
        return all(_plain(field.type) for field in kind)
    return bool(
        types.is_string(kind) or types.is_integer(kind) or types.is_boolean(kind)
        or types.is_floating(kind)
    )  # fmt: skip


def sql_type(kind: pa.DataType) -> str:
    """The SQLite type of a column: an affinity, not a check."""
    if _counts(kind):
        return "INTEGER"
    if types.is_floating(kind):
        return "REAL"
    return "BLOB" if types.is_binary(kind) else "TEXT"


def _counts(kind: pa.DataType) -> bool:
    return bool(
        types.is_integer(kind) or types.is_boolean(kind) or types.is_timestamp(kind)
        or types.is_date(kind)
    )  # fmt: skip


def to_sqlite(column: pa.ChunkedArray) -> list[Any]:
    """Convert a column to values for SQLite."""
    kind = column.type
    if types.is_timestamp(kind):
        column = column.cast(pa.int64())
    elif types.is_date(kind):
        column = column.cast(pa.int32())
    values: list[Any] = column.to_pylist()
    if types.is_decimal(kind):
        return [None if value is None else str(value) for value in values]
    if types.is_nested(kind):
        return [None if value is None else json.dumps(value) for value in values]
    if types.is_floating(kind) and pc.any(pc.is_nan(column)).as_py():
        # SQLite has no NaN and would store null.
        return ["NaN" if value is not None and math.isnan(value) else value for value in values]
    return values


def create_table(
    db: apsw.Connection, table: str, schema: pa.Schema, key: Iterable[str], *, rowid: bool = False
) -> None:
    """Create a table for rows with these columns, by a key."""
    columns = ", ".join(f"{quoted(field.name)} {sql_type(field.type)}" for field in schema)
    made = f"CREATE TABLE {table} ({columns}, PRIMARY KEY ({', '.join(map(quoted, key))}))"
    db.execute(made if rowid else f"{made} WITHOUT ROWID")


def fill_temporary(db: apsw.Connection, table: str, rows: pa.Table) -> None:
    """Let a temporary table hold these rows and no others."""
    names = ", ".join(map(quoted, rows.column_names))
    db.execute(f"CREATE TEMP TABLE IF NOT EXISTS {table} ({names})")
    db.execute(f"DELETE FROM {table}")
    insert(db, table, rows)


def insert(db: apsw.Connection, table: str, rows: pa.Table) -> None:
    """Add rows to a table that has their columns, in their order."""
    marks = ", ".join("?" * rows.num_columns)
    values = [to_sqlite(column) for column in rows.columns]
    db.executemany(f"INSERT INTO {table} VALUES ({marks})", zip(*values, strict=True))


def from_sqlite(values: Iterable[Any], kind: pa.DataType) -> pa.Array:
    """Convert values from SQLite to a column."""
    if types.is_timestamp(kind):
        return pa.array(values, pa.int64()).cast(kind)
    if types.is_date(kind):
        return pa.array(values, pa.int32()).cast(kind)
    if types.is_boolean(kind):
        return pa.array((None if value is None else bool(value) for value in values), kind)
    if types.is_decimal(kind):
        return pa.array((None if value is None else Decimal(value) for value in values), kind)
    if types.is_nested(kind):
        return pa.array((None if value is None else json.loads(value) for value in values), kind)
    if types.is_floating(kind):
        return pa.array((None if value is None else float(value) for value in values), kind)
    return pa.array(values, kind)


def table_from(rows: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.Table:
    """Convert rows from SQLite to a table."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return pa.Table.from_arrays(
        [from_sqlite(values, f.type) for values, f in zip(columns, schema, strict=True)],
        schema=schema,
    )


def tables_from(rows: Iterable[Sequence[Any]], schema: pa.Schema) -> Iterator[pa.Table]:
    """Convert the rows of a query to tables that fit in memory."""
    found = iter(rows)
    while some := list(itertools.islice(found, _ROWS_AT_ONCE)):
        yield table_from(some, schema)


def shown(column: str, kind: pa.DataType) -> str:
    """SQL that shows a stored column in readable form."""
    if types.is_timestamp(kind):
        fraction = f"(({column} % 1000000 + 1000000) % 1000000)"
        second = f"(({column} - {fraction}) / 1000000)"
        moment = f"strftime('%Y-%m-%d %H:%M:%S', {second}, 'unixepoch')"
        # SQLite's dates end with the year 9999, and windows may end after it. The calendar repeats
        # every 400 years.
        year, rest = (
            f"strftime('{part}', {second} - {_YEARS_SECONDS}, 'unixepoch')"
            for part in ("%Y", "-%m-%d %H:%M:%S")
        )
        moment = f"coalesce({moment}, ({year} + {_YEARS}) || {rest})"
        return f"{moment} || iif({fraction}, printf('.%06d', {fraction}), '')"
    if types.is_date(kind):
        return f"date({column} * 86400, 'unixepoch')"
    return column


DECIMAL = "headrace_decimal"
"""The collation that orders decimals, which are text, as numbers."""


def compare_decimals(one: str, other: str) -> int:
    """Return a number less than, equal to or greater than 0."""
    return int(Decimal(one).compare(Decimal(other)))


def ordered(column: str, kind: pa.DataType) -> str:
    """SQL that sorts a stored column by value."""
    return f"{column} COLLATE {DECIMAL}" if types.is_decimal(kind) else column


def quoted(name: str) -> str:
    """Quote a name for SQL."""
    return '"' + name.replace('"', '""') + '"'
