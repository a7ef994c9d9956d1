"""Additions of a capture to a database: a table of changes, the versions of tables, and triggers.

The values of a row are in columns without a type, so SQLite stores them as they are: `b0, b1, ...`
before the change and `a0, a1, ...` after it.
"""

from __future__ import annotations

import json
from typing import Any

import apsw
import pyarrow as pa

from headrace.cdc.contract import Table
from headrace.cdc.sqlite.schema import MINE, SCHEMA, SqliteTable, Unique, arrow_type, quoted

CHANGES = f"{MINE}change"
VERSIONS = f"{MINE}table"
CAPTURE = f"{MINE}capture"

CANDIDATE = "?"
"""The operation of a row that a conflict may delete: REPLACE does so without any trigger."""

_NOW = "CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER)"

_TABLES = f"""
    CREATE TABLE IF NOT EXISTS {CHANGES} (
        id INTEGER PRIMARY KEY AUTOINCREMENT, version INTEGER, op TEXT, at INTEGER, total INTEGER
    );
    CREATE INDEX IF NOT EXISTS {CHANGES}_candidates ON {CHANGES} (version) WHERE op = '?';
    CREATE TABLE IF NOT EXISTS {VERSIONS} (
        number INTEGER PRIMARY KEY, name TEXT, columns TEXT, key TEXT, live INTEGER
    );
    CREATE TABLE IF NOT EXISTS {CAPTURE} (
        only INTEGER PRIMARY KEY CHECK (only = 1), epoch TEXT, trimmed INTEGER, at INTEGER
    );
"""


def prepare(db: apsw.Connection, epoch: str) -> None:
    """Add the tables of the capture, if they are not there. `epoch` names what is added now."""
    db.execute(_TABLES)
    db.execute(f"INSERT OR IGNORE INTO {CAPTURE} VALUES (1, ?, 0, 0)", (epoch,))


def is_prepared(db: apsw.Connection) -> bool:
    """True if the tables of the capture are there."""
    sql = "SELECT 1 FROM main.sqlite_schema WHERE name = ?"
    return bool(list(db.execute(sql, (CAPTURE,))))


def versions(db: apsw.Connection) -> dict[int, tuple[Table, bool]]:
    """Every version of a table that changes may be of, and whether its triggers are there."""
    found: Any = db.execute(f"SELECT number, name, columns, key, live FROM {VERSIONS}")
    return {
        number: (_table(name, json.loads(columns), json.loads(key)), bool(live))
        for number, name, columns, key, live in found
    }


def _table(name: str, columns: list[list[str]], key: list[str]) -> Table:
    fields = [
        pa.field(column, arrow_type(declared), metadata={"sqlite": declared})
        for column, declared in columns
    ]
    return Table(SCHEMA, name, pa.schema(fields), tuple(key))


def install(db: apsw.Connection, described: SqliteTable) -> int:
    """Capture a table as it is now. Returns the number of the version."""
    table = described.table
    columns = [[c.name, c.metadata[b"sqlite"].decode()] for c in table.columns]
    db.execute(
        f"INSERT INTO {VERSIONS} (name, columns, key, live) VALUES (?, ?, ?, 1)",
        (table.name, json.dumps(columns), json.dumps(table.key)),
    )
    number = db.last_insert_rowid()
    there = len(list(db.execute("SELECT 1 FROM pragma_table_info(?)", (CHANGES,)))) - 5
    for place in range(there // 2, len(columns)):
        db.execute(f"ALTER TABLE {CHANGES} ADD COLUMN b{place}")
        db.execute(f"ALTER TABLE {CHANGES} ADD COLUMN a{place}")
    for sql in trigger_statements(described, number):
        db.execute(sql)
    return number


def uninstall(db: apsw.Connection, number: int) -> None:
    """Remove the triggers of a version."""
    found: Any = db.execute(
        "SELECT name FROM main.sqlite_schema WHERE type = 'trigger' AND name GLOB ?",
        (f"{MINE}{number}_*",),
    )
    for (name,) in list(found):
        db.execute(f"DROP TRIGGER IF EXISTS main.{quoted(name)}")
    db.execute(f"UPDATE {VERSIONS} SET live = 0 WHERE number = ?", (number,))


def remove(db: apsw.Connection) -> None:
    """Remove everything that capturing has added."""
    found: list[Any] = list(
        db.execute(
            "SELECT type, name FROM main.sqlite_schema WHERE name GLOB ? "
            "AND type IN ('trigger', 'table') ORDER BY type = 'table'",
            (f"{MINE}*",),
        )
    )
    for kind, name in found:
        db.execute(f"DROP {kind} IF EXISTS main.{quoted(name)}")


def trigger_statements(described: SqliteTable, number: int) -> list[str]:
    """The triggers of a table.

    The row after a change is read from the table: triggers of the application may have changed it
    again already, and what they did is in the table of changes before this.
    """
    table = described.table
    name, names = quoted(table.name), table.columns.names
    places = range(len(names))
    before = ", ".join(f"b{place}" for place in places)
    after = ", ".join(f"a{place}" for place in places)
    old = ", ".join(f"OLD.{quoted(column)}" for column in names)
    own = ", ".join(f"t.{quoted(column)}" for column in names)
    keys = [
        (quoted(column), place) for column, place in zip(table.key, table.key_places, strict=True)
    ]
    is_new = " AND ".join(f"t.{column} IS NEW.{column}" for column, _ in keys)
    head = f"INSERT INTO {CHANGES} (version, op, at, total"

    def values(op: str) -> str:
        return f"{number}, '{op}', {_NOW}, total_changes()"

    made = []
    settle = ""
    if described.uniques:
        waiting = f"{CHANGES} WHERE op = '{CANDIDATE}' AND version = {number}"
        there = " AND ".join(f"t.{column} IS {CHANGES}.b{place}" for column, place in keys)
        gone = " AND ".join(f"b{place} IS OLD.{column}" for column, place in keys)
        # Also before a change: a trigger of the application may have made it while a statement
        # that has replaced rows is not over.
        settle = (
            f"UPDATE {CHANGES} SET op = 'd' WHERE op = '{CANDIDATE}' AND version = {number} "
            f"AND NOT EXISTS (SELECT 1 FROM {name} t WHERE {there}); DELETE FROM {waiting}; "
        )
        other = " OR ".join(f"t.{column} IS NOT NEW.{column}" for column, _ in keys)
        mine = " AND ".join(f"t.{column} IS OLD.{column}" for column, _ in keys)
        conflicts = " OR ".join(f"({_equal(unique)})" for unique in described.uniques)
        find = f"{head}, {before}) SELECT {values(CANDIDATE)}, {own} FROM {name} t WHERE "
        made += [
            f"CREATE TRIGGER {MINE}{number}_bi BEFORE INSERT ON {name} BEGIN {settle}"
            f"{find}({conflicts}) AND ({other}); END",
            f"CREATE TRIGGER {MINE}{number}_bu BEFORE UPDATE ON {name} BEGIN {settle}"
            f"{find}({conflicts}) AND NOT ({mine}); END",
            f"CREATE TRIGGER {MINE}{number}_bd BEFORE DELETE ON {name} BEGIN "
            f"DELETE FROM {waiting} AND {gone}; END",
        ]
    return [
        *made,
        f"CREATE TRIGGER {MINE}{number}_i AFTER INSERT ON {name} BEGIN {settle}"
        f"{head}, {after}) SELECT {values('c')}, {own} FROM {name} t WHERE {is_new}; END",
        f"CREATE TRIGGER {MINE}{number}_u AFTER UPDATE ON {name} BEGIN {settle}"
        f"{head}, {before}, {after}) SELECT {values('u')}, {old}, {own} FROM {name} t "
        f"WHERE {is_new}; END",
        f"CREATE TRIGGER {MINE}{number}_d AFTER DELETE ON {name} BEGIN "
        f"{head}, {before}) VALUES ({values('d')}, {old}); END",
    ]


def _equal(unique: Unique) -> str:
    return " AND ".join(
        f"t.{quoted(column)} = NEW.{quoted(column)} COLLATE {quoted(collation)}"
        for column, collation in unique.columns
    )
