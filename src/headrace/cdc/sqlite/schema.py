"""The tables of a SQLite database: columns with their types, keys and unique indexes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import apsw
import pyarrow as pa

from headrace.cdc.contract import Table
from headrace.errors import UserError

MINE = "_headrace_"
"""The prefix of everything that capturing adds to a database."""

SCHEMA = "main"


@dataclass(frozen=True)
class Unique:
    """A unique index apart from the primary key: its columns, each with its collation."""

    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class SqliteTable:
    """A table that can be captured."""

    table: Table
    uniques: tuple[Unique, ...]


def quoted(name: str) -> str:
    """A name in SQL, whatever it has in it."""
    return '"' + name.replace('"', '""') + '"'


def table_names(db: apsw.Connection) -> list[str]:
    """The ordinary tables of an application, by name."""
    found: Any = db.execute(
        "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' ORDER BY name"
    )
    return [name for (name,) in found if not name.startswith(("sqlite_", MINE))]


def describe(db: apsw.Connection, name: str) -> SqliteTable:
    """A table as it is now. Raises `UserError` if it cannot be captured."""
    columns: list[Any] = list(
        db.execute("SELECT name, type, pk, hidden FROM pragma_table_xinfo(?)", (name,))
    )
    key = sorted((place, column) for column, _, place, _ in columns if place)
    if not key:
        raise UserError(
            f"The table {name!r} has no primary key, so its rows cannot be told from each other",
            hint=f"Give it one, or leave it out: SQLite may renumber the rowids of {name!r} at any "
            "VACUUM",
            table=name,
        )
    fields = [
        pa.field(column, arrow_type(declared), metadata={"sqlite": declared or "ANY"})
        for column, declared, _, hidden in columns
        if hidden != 1
    ]
    table = Table(SCHEMA, name, pa.schema(fields), tuple(column for _, column in key))
    return SqliteTable(table, tuple(_uniques(db, name)))


def check_keys(db: apsw.Connection, table: Table) -> None:
    """Check that no row has a NULL in its key, which SQLite allows."""
    null = " OR ".join(f"{quoted(column)} IS NULL" for column in table.key)
    if list(db.execute(f"SELECT 1 FROM main.{quoted(table.name)} WHERE {null} LIMIT 1")):
        raise UserError(
            f"The table {table.name!r} has rows with NULL in their primary key "
            f"({', '.join(table.key)}), so they cannot be told from each other",
            hint="Give them a key, and declare its columns NOT NULL",
            table=table.name,
        )


def arrow_type(declared: str | None) -> pa.DataType:
    """The type of a column in the topic, by SQLite's rules for the names of types.

    What is declared as a date, a time or JSON is text, as SQLite's own functions write it.
    """
    name = (declared or "").upper()
    if "INT" in name:
        return pa.int64()
    if any(word in name for word in ("CHAR", "CLOB", "TEXT", "DATE", "TIME", "JSON", "UUID")):
        return pa.string()
    if "BLOB" in name:
        return pa.binary()
    if "BOOL" in name:
        return pa.bool_()
    if any(word in name for word in ("REAL", "FLOA", "DOUB", "NUM", "DEC")):
        return pa.float64()
    return pa.string()


def _uniques(db: apsw.Connection, name: str) -> Sequence[Unique]:
    found = []
    indexes: list[Any] = list(
        db.execute('SELECT name, origin FROM pragma_index_list(?) WHERE "unique"', (name,))
    )
    for index, origin in indexes:
        if origin == "pk":
            continue
        parts: list[Any] = list(
            db.execute("SELECT name, coll FROM pragma_index_xinfo(?) WHERE key", (index,))
        )
        if all(column is not None for column, _ in parts):  # an expression has no name
            found.append(Unique(tuple(parts)))
    return found
