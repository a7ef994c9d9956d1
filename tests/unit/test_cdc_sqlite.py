"""Changes of SQLite: triggers see every change, and leave the database as it was."""

from __future__ import annotations

import math
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from headrace import open_log
from headrace.cdc import run
from headrace.cdc.contract import Change, SourceTransaction
from headrace.cdc.sqlite import SqliteSource
from headrace.errors import InvalidSetting, SourceError, SourceUnavailable, UserError


class Shop:
    """A database that an application writes, and the changes that a source reads of it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "shop.db"
        self.db = sqlite3.connect(self.path, isolation_level=None)

    def __call__(self, *statements: str) -> None:
        for statement in statements:
            self.db.execute(statement)

    def attach(self, *tables: str) -> SqliteSource:
        self.source = SqliteSource(self.path, tables=tables)
        self.source.attach()
        self.source.begin(None)
        self.source.read(0)
        return self.source

    def read(self) -> list[SourceTransaction]:
        found: list[SourceTransaction] = []
        while read := self.source.read(0):
            found += read
        return found

    def changes(self) -> list[Change]:
        return [change for transaction in self.read() for change in transaction.changes]

    def said(self) -> list[tuple[Any, ...]]:
        """The changes in short: operation and row."""
        return [(c.op, c.after if c.after is not None else c.before) for c in self.changes()]

    def schema(self) -> list[Any]:
        return self.db.execute("SELECT * FROM sqlite_schema ORDER BY name").fetchall()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    yield made
    made.db.close()


UNIQUE = "CREATE TABLE users (id INTEGER PRIMARY KEY, email TEXT UNIQUE COLLATE NOCASE, n INT)"


def test_every_kind_of_value_arrives_as_it_was_written(shop: Shop) -> None:
    shop("CREATE TABLE things (id INTEGER PRIMARY KEY, r REAL, t TEXT, b BLOB, big INTEGER)")
    source = shop.attach()
    rows = [
        (1, 1.0, "text 'quoted' \x00 ü", b"\x00\xff", 2**63 - 1),
        (2, math.inf, "", b"", -(2**63)),
        (3, None, None, None, None),
        (4, 0.1 + 0.2, "1", b"1", 0),
    ]
    shop.db.executemany("INSERT INTO things VALUES (?, ?, ?, ?, ?)", rows)
    changes = shop.changes()
    assert [change.after for change in changes] == rows
    assert [tuple(map(type, change.after or ())) for change in changes] == [
        tuple(map(type, row)) for row in rows
    ]
    (table,) = source.tables()
    columns = source.columns(table.columns, [*rows, None])
    assert source.rows(table.columns, columns) == [*rows, None]


def test_a_value_that_its_column_cannot_hold_is_named(shop: Shop) -> None:
    shop(
        "CREATE TABLE things (id INTEGER PRIMARY KEY, n INTEGER)",
        "INSERT INTO things VALUES (1, 'x')",
    )
    source = shop.attach()
    (table,) = source.tables()
    with pytest.raises(SourceError, match=r"'n', declared as INTEGER, has the value 'x'"):
        source.columns(table.columns, [(1, "x")])


@pytest.mark.parametrize("recursive", [0, 1])
def test_rows_that_a_conflict_replaces_are_deleted(shop: Shop, recursive: int) -> None:
    shop(UNIQUE, f"PRAGMA recursive_triggers = {recursive}")
    shop.attach()
    shop(
        "INSERT INTO users VALUES (1, 'a', 1), (2, 'b', 2)", "REPLACE INTO users VALUES (3, 'A', 3)"
    )
    assert shop.said()[2:] == [("d", (1, "a", 1)), ("c", (3, "A", 3))]
    shop("UPDATE OR REPLACE users SET email = 'B' WHERE id = 3")
    assert shop.said() == [("d", (2, "b", 2)), ("u", (3, "B", 3))]


@pytest.mark.parametrize("recursive", [0, 1])
def test_rows_that_a_conflict_keeps_are_not_deleted(shop: Shop, recursive: int) -> None:
    shop(UNIQUE, f"PRAGMA recursive_triggers = {recursive}", "INSERT INTO users VALUES (1, 'a', 1)")
    shop.attach()
    shop(
        "INSERT OR IGNORE INTO users VALUES (2, 'a', 2)",
        "INSERT INTO users VALUES (3, 'A', 3) ON CONFLICT (email) DO UPDATE SET n = excluded.n",
        "INSERT INTO users VALUES (4, 'a', 4) ON CONFLICT (email) DO NOTHING",
    )
    with pytest.raises(sqlite3.IntegrityError):
        shop("INSERT INTO users VALUES (5, 'a', 5)")
    assert shop.said() == [("u", (1, "a", 3))]


@pytest.mark.parametrize("first", ["application", "capture"])
@pytest.mark.parametrize("recursive", [0, 1])
def test_a_replaced_row_is_deleted_though_a_trigger_writes_to_the_table_at_once(
    shop: Shop, first: str, recursive: int
) -> None:
    trigger = (
        "CREATE TRIGGER copy AFTER INSERT ON users WHEN NEW.id < 100 BEGIN"
        " INSERT INTO users VALUES (NEW.id + 100, NEW.email || '+', NEW.n); END"
    )
    shop(UNIQUE, f"PRAGMA recursive_triggers = {recursive}", "INSERT INTO users VALUES (1, 'a', 1)")
    if first == "application":
        shop(trigger)
    shop.attach()
    if first == "capture":
        shop(trigger)
    shop("INSERT OR REPLACE INTO users VALUES (2, 'a', 2)")
    assert sorted(shop.said()) == [
        ("c", (2, "a", 2)),
        ("c", (102, "a+", 2)),
        ("d", (1, "a", 1)),
    ]


@pytest.mark.parametrize("first", ["application", "capture"])
def test_a_row_that_was_in_conflict_before_is_deleted_once(shop: Shop, first: str) -> None:
    trigger = (
        "CREATE TRIGGER moved AFTER DELETE ON users WHEN OLD.id < 100 BEGIN"
        " INSERT INTO users VALUES (OLD.id + 100, OLD.email || '+', OLD.n); END"
    )
    shop(UNIQUE, "INSERT INTO users VALUES (1, 'a', 1)")
    if first == "application":
        shop(trigger)
    shop.attach()
    if first == "capture":
        shop(trigger)
    shop("INSERT OR IGNORE INTO users VALUES (2, 'a', 2)", "DELETE FROM users WHERE id = 1")
    assert sorted(shop.said()) == [("c", (101, "a+", 1)), ("d", (1, "a", 1))]


def test_a_row_without_a_key_stops_the_capture_by_name(shop: Shop, tmp_path: Path) -> None:
    shop("CREATE TABLE items (sku TEXT PRIMARY KEY, name TEXT)")
    with open_log(f"file:{tmp_path / 'log'}") as log, SqliteSource(shop.path) as source:
        run(source, log, "shop", until_caught_up=True)
        shop("INSERT INTO items VALUES (NULL, 'lost')")
        with pytest.raises(SourceError, match=r"items has no value in 'sku'"):
            run(source, log, "shop", until_caught_up=True)


def test_triggers_that_another_version_has_made_are_made_anew(shop: Shop) -> None:
    inserts = "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' AND name GLOB '*_i'"
    shop(UNIQUE)
    shop.attach().close()
    ((name, sql),) = shop.db.execute(inserts)
    shop(f"DROP TRIGGER {name}", sql.replace("total_changes()", "0"))
    with SqliteSource(shop.path) as source:
        source.tables()
    ((again, made),) = shop.db.execute(inserts)
    assert made.replace(again, name).replace("SELECT 2", "SELECT 1").replace("= 2", "= 1") == sql


def test_a_replaced_row_of_the_same_key_is_an_update(shop: Shop, tmp_path: Path) -> None:
    shop(
        "CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT)",
        "INSERT INTO items VALUES (1, 'a')",
    )
    with open_log(f"file:{tmp_path / 'log'}") as log, SqliteSource(shop.path) as source:
        run(source, log, "shop", until_caught_up=True)
        shop("REPLACE INTO items VALUES (1, 'b')", "REPLACE INTO items VALUES (2, 'c')")
        run(source, log, "shop", until_caught_up=True)
        found = [r.value for batch in log.read("shop.main.items") for r in batch.records()]
    assert [(change["op"], change["before"] and change["before"]["name"]) for change in found] == [
        ("r", None),
        ("u", "a"),
        ("c", None),
    ]


def test_cascades_and_triggers_of_the_application_are_captured(shop: Shop) -> None:
    shop(
        "PRAGMA foreign_keys = ON",
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, total INT)",
        "CREATE TABLE lines (id INTEGER PRIMARY KEY, price INT,"
        " 'order' INT REFERENCES orders ON DELETE CASCADE)",
        "CREATE TRIGGER sum AFTER INSERT ON lines BEGIN"
        ' UPDATE orders SET total = total + NEW.price WHERE id = NEW."order"; END',
    )
    shop.attach()
    shop("INSERT INTO orders VALUES (1, 0)", "INSERT INTO lines VALUES (1, 5, 1)")
    assert sorted(shop.said()) == [("c", (1, 0)), ("c", (1, 5, 1)), ("u", (1, 5))]
    shop("DELETE FROM orders")
    assert sorted(shop.said()) == [("d", (1, 5)), ("d", (1, 5, 1))]


@pytest.mark.parametrize("first", ["application", "capture"])
def test_a_row_that_a_trigger_changes_again_ends_as_it_is(shop: Shop, first: str) -> None:
    trigger = (
        "CREATE TRIGGER stamp AFTER INSERT ON items BEGIN"
        " UPDATE items SET name = upper(NEW.name) WHERE id = NEW.id; END"
    )
    shop("CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT)")
    if first == "application":
        shop(trigger)
    shop.attach()
    if first == "capture":
        shop(trigger)
    shop("INSERT INTO items VALUES (1, 'a')")
    assert shop.said()[-1][1] == (1, "A")


def test_names_keys_and_generated_columns_of_any_kind_work(shop: Shop) -> None:
    shop(
        'CREATE TABLE "odd ""table"".1" ("a b" TEXT, "select" INT, "é" AS ("a b" || 1) STORED,'
        ' PRIMARY KEY ("select", "a b")) WITHOUT ROWID'
    )
    source = shop.attach()
    shop("""INSERT INTO "odd ""table"".1" VALUES ('x', 1), ('y', 1), ('x', 0)""")
    assert [c.key for c in shop.changes()] == [(1, "x"), (1, "y"), (0, "x")]
    (table,) = source.tables()
    assert table.columns.names == ["a b", "select", "é"]
    chunk = source.chunk(table, None, 2)
    assert chunk.rows == [("x", 0, "x1"), ("x", 1, "x1")]
    assert source.chunk(table, chunk.last, 2).rows == [("y", 1, "y1")]


def test_detaching_leaves_nothing_behind(shop: Shop) -> None:
    shop(UNIQUE, "INSERT INTO users VALUES (1, 'a', 1)")
    before = shop.schema()
    source = shop.attach()
    shop("UPDATE users SET n = 2")
    source.detach()
    source.detach()
    # SQLite keeps its own table of sequences.
    assert [row for row in shop.schema() if row[1] != "sqlite_sequence"] == before


def test_attaching_again_changes_nothing(shop: Shop) -> None:
    shop(UNIQUE)
    source = shop.attach()
    before = shop.schema()
    shop("INSERT INTO users VALUES (1, 'a', 1)")
    source.attach()
    assert shop.schema() == before
    assert len(shop.changes()) == 1


def test_what_is_in_the_log_is_removed_from_the_database(shop: Shop) -> None:
    shop("CREATE TABLE items (id INTEGER PRIMARY KEY)")
    source = shop.attach()
    shop("INSERT INTO items VALUES (1), (2)")
    (done,) = shop.read()
    shop("INSERT INTO items VALUES (3)")
    source.acknowledge(done.position)
    assert shop.db.execute("SELECT a0 FROM _headrace_change").fetchall() == [(3,)]
    with SqliteSource(shop.path) as again:
        assert again.begin(done.position) is None
        assert [change.key for change in again.read(0)[0].changes] == [(3,)]


def test_a_restored_backup_is_a_gap(shop: Shop) -> None:
    shop("CREATE TABLE items (id INTEGER PRIMARY KEY)")
    source = shop.attach()
    shop("INSERT INTO items VALUES (1)")
    shutil.copy(shop.path, shop.path.with_suffix(".backup"))
    shop("INSERT INTO items VALUES (2)")
    position = shop.read()[-1].position
    source.close()
    shop.db.close()
    shutil.copy(shop.path.with_suffix(".backup"), shop.path)
    for values in ((), (7,)):  # also when it has had as many changes since
        with sqlite3.connect(shop.path) as db:
            db.executemany("INSERT INTO items VALUES (?)", [(value,) for value in values])
        with SqliteSource(shop.path) as restored:
            gap = restored.begin(position)
        assert gap is not None
        assert "went back" in gap.reason


def test_tables_that_cannot_be_captured_are_refused_by_name(shop: Shop) -> None:
    shop("CREATE TABLE loose (a INT)", "CREATE TABLE nulls (a TEXT PRIMARY KEY)")
    shop("INSERT INTO nulls VALUES (NULL)")
    with pytest.raises(UserError, match="'loose' has no primary key"):
        shop.attach("loose")
    with pytest.raises(UserError, match="'nulls' has rows with NULL in their primary key"):
        shop.attach("nulls")
    with pytest.raises(InvalidSetting, match="'nuls'"):
        shop.attach("nuls")
    with pytest.raises(UserError, match="There is no database"):
        SqliteSource(shop.path.with_name("other.db"))
    assert [row[1] for row in shop.schema() if "_headrace_" in row[1]] == []


def test_a_locked_database_is_waited_for(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.cdc.sqlite.source._PATIENCE", 0.05)
    shop("CREATE TABLE items (id INTEGER PRIMARY KEY)")
    # Locks of two SQLite libraries in one process do not exclude each other.
    busy = apsw.Connection(str(shop.path))
    busy.execute("BEGIN IMMEDIATE")
    with SqliteSource(shop.path) as source, pytest.raises(SourceUnavailable, match="lock"):
        source.attach()
    busy.close(True)
    shop.attach()


def test_transactions_of_two_connections_are_told_apart(shop: Shop) -> None:
    shop("CREATE TABLE items (id INTEGER PRIMARY KEY)")
    shop.attach()
    shop("INSERT INTO items VALUES (1), (2), (3)", "INSERT INTO items VALUES (4)")
    with sqlite3.connect(shop.path) as other:
        other.execute("INSERT INTO items VALUES (5)")
    assert [[c.key for c in t.changes] for t in shop.read()] == [
        [(1,), (2,), (3,), (4,)],
        [(5,)],
    ]


def test_a_large_transaction_comes_in_parts_of_one_id(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.cdc.sqlite.source._PAGE", 4)
    shop("CREATE TABLE items (id INTEGER PRIMARY KEY)")
    source = shop.attach()
    shop("BEGIN", *(f"INSERT INTO items VALUES ({n})" for n in range(10)), "COMMIT")
    first = source.read(0)
    shop("INSERT INTO items VALUES (99)")
    rest = shop.read()
    parts = [*first, *rest]
    assert [len(part.changes) for part in parts] == [4, 4, 2, 1]
    assert [part.whole for part in parts] == [False, False, True, True]
    assert len({part.id for part in parts[:3]}) == 1


def test_a_renamed_table_is_another_one(shop: Shop, tmp_path: Path) -> None:
    shop("CREATE TABLE items (id INTEGER PRIMARY KEY)", "INSERT INTO items VALUES (1)")
    with open_log(f"file:{tmp_path / 'log'}") as log, SqliteSource(shop.path) as source:
        run(source, log, "shop", until_caught_up=True)
        shop("INSERT INTO items VALUES (2)", "ALTER TABLE items RENAME TO goods")
        shop("INSERT INTO goods VALUES (3)")
        run(source, log, "shop", until_caught_up=True)
        shop("INSERT INTO goods VALUES (4)")
        run(source, log, "shop", until_caught_up=True)
        names = [topic.name for topic in log.topics() if topic.name.startswith("shop.")]
        assert names == ["shop.main.goods", "shop.main.items"]
        keys = [r.key for batch in log.read("shop.main.goods") for r in batch.records()]
        assert sorted(set(keys)) == [f'{{"id":{n}}}' for n in (1, 2, 3, 4)]
