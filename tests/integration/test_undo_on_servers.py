"""Scripts that take back changes, run on PostgreSQL and MariaDB: every value and its guard."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
from headrace.cdc.undo.changes import Range, chosen_topics, read_changes
from headrace.cdc.undo.script import write_script
from headrace.log import EARLIEST, LATEST, Log
from tests.servers.mariadb import Database as Mariadb
from tests.servers.postgresql import Database as Postgresql
from tests.unit.captured_rows import Captured

EVIL = 'it\'s "a" \\ b\n-- c; /* ü€😀'
MOMENT = datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=UTC)

MONEY = Decimal("1234567890123456789012345678.0000000001")

Column = tuple[str, str, pa.DataType, Any]
"""A column's name, its type in the database and in the topic, and a value."""

POSTGRESQL: list[Column] = [
    ("id", "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY", pa.int64(), -(2**62)),
    ("a text", "text", pa.string(), EVIL),
    ("padded", "char(9)", pa.string(), "ab       "),
    ("json", "json", pa.string(), '{"b": 1,  "a": "\\u00e4"}'),
    ("jsonb", "jsonb", pa.string(), '{"a": [1, null]}'),
    ("uuid", "uuid", pa.string(), "4d47e190-0402-4048-bc2c-89dd54343cdc"),
    ("net", "inet", pa.string(), "10.0.0.1/8"),
    ("point", "point", pa.string(), "(1.5,2)"),
    ("span", "interval", pa.string(), "1 mon 2 days 03:04:05.678"),
    ("nothing", "text", pa.string(), None),
    ("yes", "boolean", pa.bool_(), True),
    ("single", "real", pa.float32(), 0.1),
    ("nan", "double precision", pa.float64(), float("nan")),
    ("infinite", "double precision", pa.float64(), float("-inf")),
    ("double", "double precision", pa.float64(), 0.1 + 0.2),
    ("money", "numeric(38,10)", pa.decimal128(38, 10), MONEY),
    ("raw", "bytea", pa.binary(), b"\0\x01'\\\xff"),
    ("day", "date", pa.date32(), date(2026, 2, 28)),
    ("moment", "timestamptz", pa.timestamp("us", tz="UTC"), MOMENT),
    ("wall", "timestamp", pa.timestamp("us"), MOMENT.replace(tzinfo=None)),
    ("numbers", "int[]", pa.list_(pa.int64()), [1, None, -3]),
    ("texts", "text[]", pa.list_(pa.string()), ["a", None, 'b"\\,{}', "NULL", ""]),
]  # fmt: skip

MARIADB: list[Column] = [
    ("id", "bigint PRIMARY KEY", pa.int64(), -(2**62)),
    ("a text", "text", pa.string(), EVIL),
    ("nul", "text", pa.string(), "a\0b\x1ac\r\n"),
    ("choice", "enum('a', 'it''s')", pa.string(), "it's"),
    ("json", "json", pa.string(), '{"b": 1,  "a": "\\u00e4"}'),
    ("nothing", "text", pa.string(), None),
    ("yes", "boolean", pa.bool_(), True),
    ("single", "float", pa.float32(), 0.1),
    ("double", "double", pa.float64(), 0.1 + 0.2),
    ("money", "decimal(38,10)", pa.decimal128(38, 10), MONEY),
    ("raw", "blob", pa.binary(), b"\0\x01'\\\xff"),
    ("day", "date", pa.date32(), date(2026, 2, 28)),
    ("moment", "timestamp(6) NULL", pa.timestamp("us", tz="UTC"), MOMENT),
    ("wall", "datetime(6)", pa.timestamp("us"), MOMENT.replace(tzinfo=None)),
]  # fmt: skip


class Runner:
    """A database with a table `values`, and the topic of its changes."""

    def __init__(self, log: Log, columns: list[Column], captured: Captured, quote: str) -> None:
        self.log = log
        self.columns = columns
        self.captured = captured
        self.quote = quote

    @property
    def ddl(self) -> str:
        q = self.quote
        columns = ", ".join(f"{q}{name}{q} {kind}" for name, kind, _, _ in self.columns)
        return f"CREATE TABLE {q}values{q} ({columns})"

    def row(self, **values: Any) -> dict[str, Any]:
        return {name: values.get(name, value) for name, _, _, value in self.columns}

    def undo(self, connection: Any) -> list[Any]:
        """Run the script of all changes; return what it left alone."""
        self.captured.write()
        changes = read_changes(
            self.log, chosen_topics(self.log, "shop", ()), Range(EARLIEST, LATEST), partial=False
        )
        left: list[Any] = []
        with connection.cursor() as cursor:
            for statement in "\n".join(write_script(changes, "all")).split(";\n"):
                cursor.execute(statement)
                if "SELECT number" in statement:
                    left += cursor.fetchall()
        return left


def columns_of(columns: list[Column]) -> pa.Schema:
    return pa.schema([(name, kind) for name, _, kind, _ in columns])


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with hr.open_log(f"file:{tmp_path}") as opened:
        yield opened


@contextlib.contextmanager
def on_postgresql(log: Log, database: Postgresql) -> Iterator[tuple[Runner, Any]]:
    captured = Captured(
        log, columns_of(POSTGRESQL), "values", connector="postgresql", schema="public"
    )
    runner = Runner(log, POSTGRESQL, captured, '"')
    with contextlib.closing(database.connect()) as connection:
        database.execute(runner.ddl)
        yield runner, connection


@contextlib.contextmanager
def on_mariadb(log: Log, database: Mariadb) -> Iterator[tuple[Runner, Any]]:
    captured = Captured(log, columns_of(MARIADB), "values", connector="mysql", schema=database.name)
    runner = Runner(log, MARIADB, captured, "`")
    with contextlib.closing(database.connect()) as connection:
        database.execute(runner.ddl)
        yield runner, connection


def shown(rows: Any) -> list[list[str]]:
    """Rows as text, in which NaN is equal to itself."""
    return [[repr(bytes(v) if isinstance(v, memoryview) else v) for v in row] for row in rows]


def check_every_value(runner: Runner, connection: Any) -> None:
    """Check that a deleted row comes back, and that the guards of its values let it go again.

    The client of the database writes the same row to another table, to compare with.
    """
    q = runner.quote
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE other AS SELECT * FROM {q}values{q}")
        whole, empty = runner.row(), dict.fromkeys(runner.row()) | {"id": 2}
        for row in (whole, empty):
            runner.captured.change(row, None)
            places = ", ".join(["%s"] * len(row))
            cursor.execute(f"INSERT INTO other VALUES ({places})", tuple(row.values()))
        assert runner.undo(connection) == []
        cursor.execute("SELECT * FROM other ORDER BY id")
        wanted = shown(cursor.fetchall())
        cursor.execute(f"SELECT * FROM {q}values{q} ORDER BY id")
        assert shown(cursor.fetchall()) == wanted
        runner.log.delete_topic(runner.captured.topic)
        runner.captured.__post_init__()
        for row in (whole, empty):
            runner.captured.change(None, row)
        assert runner.undo(connection) == []
        cursor.execute(f"SELECT id FROM {q}values{q}")
        assert not cursor.fetchall()


def test_every_value_of_postgresql_comes_back_and_is_known_again(
    log: Log, postgresql: Postgresql
) -> None:
    with on_postgresql(log, postgresql) as (runner, connection):
        check_every_value(runner, connection)


def test_every_value_of_mariadb_comes_back_and_is_known_again(log: Log, mariadb: Mariadb) -> None:
    with on_mariadb(log, mariadb) as (runner, connection):
        check_every_value(runner, connection)


def test_text_that_differs_only_by_case_or_blanks_is_another_text_on_mariadb(
    log: Log, mariadb: Mariadb
) -> None:
    with on_mariadb(log, mariadb) as (runner, connection):
        mariadb.execute("INSERT INTO `values` (id, `a text`) VALUES (1, 'B'), (2, 'b ')")
        empty = dict.fromkeys(runner.row())
        for id in (1, 2):
            row = empty | {"id": id}
            runner.captured.change(row | {"a text": "a"}, row | {"a text": "b"})
        assert len(runner.undo(connection)) == 2


def test_a_row_that_changed_since_is_left_alone_on_postgresql(
    log: Log, postgresql: Postgresql
) -> None:
    with on_postgresql(log, postgresql) as (runner, connection):
        row = runner.row()
        runner.captured.change(row | {"id": 1, "json": None}, row | {"id": 1})
        runner.captured.change(row | {"id": 2}, None)
        runner.captured.change(row | {"id": 3, "a text": "a"}, row | {"id": 3, "a text": "b"})
        postgresql.execute(
            """INSERT INTO "values" (id, json) OVERRIDING SYSTEM VALUE
            VALUES (1, '{"b":1}'), (2, '1')""",
            """INSERT INTO "values" (id, "a text") OVERRIDING SYSTEM VALUE VALUES (3, 'b')""",
        )
        assert [left[1] for left in runner.undo(connection)] == [
            'public.values {"id": 2}',
            'public.values {"id": 1}',
        ]
        found = postgresql.query('SELECT id, "a text", json::text FROM "values" ORDER BY id')
        assert found == [(1, None, '{"b":1}'), (2, None, "1"), (3, "a", None)]
