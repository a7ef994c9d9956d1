"""`headrace cdc` on SQLite: attach, run, status, snapshot, heal, detach."""

from __future__ import annotations

import json
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headrace.log import open_log
from tests.integration.test_cli_running import Cli
from tests.waiting import left, wait_until


class Shop:
    """A SQLite database with two tables, and the command line."""

    def __init__(self, folder: Path) -> None:
        self.cli = Cli(folder)
        self.path = folder / "shop.db"
        self.execute(
            "CREATE TABLE orders (id INTEGER PRIMARY KEY, note TEXT)",
            "CREATE TABLE products (sku TEXT PRIMARY KEY, name TEXT)",
            "INSERT INTO orders VALUES (1, 'a'), (2, 'b')",
        )

    def execute(self, *statements: str) -> None:
        with closing(sqlite3.connect(self.path)) as db, db:
            for statement in statements:
                db.execute(statement)

    def query(self, sql: str) -> list[Any]:
        with closing(sqlite3.connect(self.path)) as db:
            return db.execute(sql).fetchall()

    def attach(self, *words: str) -> Any:
        return self.cli.json("cdc", "attach", str(self.path), *words)

    def catch_up(self) -> Any:
        return self.cli.json("cdc", "run", "--until-caught-up")

    def ops(self, topic: str = "shop.main.orders") -> list[tuple[str, Any]]:
        return [
            (record.value["op"], (record.value["after"] or record.value["before"])["id"])
            for record in self.cli.records(topic)
            if record.value is not None
        ]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_a_database_is_attached_captured_and_detached(shop: Shop) -> None:
    attached = shop.attach("--tables", "orders")
    assert attached["prefix"] == "shop"
    assert attached["topics"] == ["shop.main.orders"]
    first = shop.catch_up()
    assert [(t["snapshot"], t["read"], t["complete"]) for t in first["tables"]] == [
        ("initial", 2, True)
    ]
    shop.execute("UPDATE orders SET note = 'c' WHERE id = 1", "DELETE FROM orders WHERE id = 2")
    second = shop.catch_up()
    assert second["changes"] == 2
    assert second["lag"] == 0
    assert shop.ops() == [("r", 1), ("r", 2), ("u", 1), ("d", 2)]
    done = shop.cli.run("cdc", "detach", "shop", "--yes")
    assert "Its topics stay: shop.*" in done.stderr
    assert shop.query("SELECT name FROM sqlite_schema WHERE name LIKE '%headrace%'") == []
    assert "No database is attached" in shop.cli.run("cdc", "status").stderr
    assert len(shop.ops()) == 4


def test_the_status_has_position_lag_and_snapshots(shop: Shop) -> None:
    shop.attach("--tables", "orders")
    (before,) = shop.cli.lines("cdc", "status")
    assert (before["position"], before["tables"], before["running"]) == (None, [], False)
    shop.catch_up()
    shop.execute("INSERT INTO orders VALUES (3, 'c'), (4, 'd')")
    (after,) = shop.cli.lines("cdc", "status", "shop")
    assert (after["lag"], after["unit"], after["trouble"]) == (2, "changes", None)
    assert after["tables"][0]["read"] == 2
    text = shop.cli.run("cdc", "status").stdout
    assert "lag" in text
    assert "2 changes" in text
    assert "main.orders" in text


def test_the_status_of_a_database_that_is_gone_says_so(shop: Shop) -> None:
    shop.attach()
    shop.catch_up()
    shop.path.unlink()
    (found,) = shop.cli.lines("cdc", "status")
    assert "There is no database" in found["trouble"]
    assert "There is no database" in shop.cli.run("cdc", "detach", "--yes", code=2).stderr
    shop.cli.run("cdc", "detach", "--yes", "--forget")
    assert shop.cli.lines("cdc", "status") == []


def test_tables_can_be_added_by_attaching_again(shop: Shop) -> None:
    shop.attach("--tables", "orders")
    shop.catch_up()
    shop.execute("INSERT INTO products VALUES ('x', 'Xylophone')")
    shop.attach("--tables", "orders,products")
    assert {t["name"]: t["read"] for t in shop.catch_up()["tables"]} == {
        "main.orders": 2,
        "main.products": 1,
    }


def test_a_snapshot_can_be_asked_of_a_capture_in_another_process(shop: Shop) -> None:
    shop.attach("--tables", "orders")
    process = shop.cli.start("cdc", "run")

    def snapshots() -> list[str]:
        (found,) = shop.cli.lines("cdc", "status")
        return [t["snapshot"] for t in found["tables"] if t["complete"]]

    wait_until(lambda: snapshots() == ["initial"])
    refused = shop.cli.run("cdc", "run", code=2)
    assert "is running, as process" in refused.stderr
    assert "is running" in shop.cli.run("cdc", "detach", "--yes", code=2).stderr
    shop.cli.run("cdc", "snapshot", "shop", "orders")
    wait_until(lambda: snapshots() == ["incremental"])
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=left())
    assert process.returncode == 128 + signal.SIGTERM
    assert b"Captured 0 changes in 0 transactions, after a snapshot of 2 rows" in said


def test_a_snapshot_that_nobody_hears_waits_for_the_next_run(shop: Shop) -> None:
    shop.attach("--tables", "orders")
    shop.catch_up()
    shop.cli.run("cdc", "snapshot", "shop", "main.orders")
    assert shop.catch_up()["tables"][0]["snapshot"] == "incremental"
    assert shop.catch_up()["tables"][0]["read"] == 2  # and only once
    assert (
        "Did you mean 'orders'" in shop.cli.run("cdc", "snapshot", "shop", "order", code=2).stderr
    )


def test_a_gap_stops_the_run_and_is_healed_on_demand(shop: Shop) -> None:
    shop.attach("--tables", "orders")
    shop.catch_up()
    shop.cli.run("cdc", "detach", "--yes")
    shop.execute("UPDATE orders SET note = 'new' WHERE id = 1", "DELETE FROM orders WHERE id = 2")
    shop.attach("--tables", "orders")
    assert "--heal" in shop.cli.run("cdc", "run", "--until-caught-up", code=1).stderr
    healed = shop.cli.json("cdc", "heal")
    assert (healed["tables"][0]["written"], healed["tables"][0]["deleted"]) == (1, 1)
    (found,) = shop.cli.lines("cdc", "status")
    assert "gap" in [notice["kind"] for notice in found["notices"]]


def test_what_cannot_be_attached_is_refused_with_what_to_do(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "notes.db").write_text("This is no database, but a rather long text." * 99)
    shop.execute("CREATE TABLE keyless (a TEXT)")
    for words, reason in (
        ((str(shop.path), "--tables", "order"), "Did you mean 'orders'?"),
        ((str(shop.path), "--tables", "keyless"), "has no primary key"),
        ((str(tmp_path / "shp.db"),), "Did you mean 'shop.db'?"),
        ((str(tmp_path),), "is a folder"),
        ((str(tmp_path / "notes.db"),), "is not a SQLite database"),
        (("postgress://me@h/db",), "Did you mean postgres:?"),
        (("mysql://localhost",), "lacks a host or the name of the database"),
        ((), "Name one database"),
        ((str(shop.path), "--prefix", "a b"), "'a b' is not a valid prefix"),
        ((str(shop.path), "--slot", "x"), "PostgreSQL's"),
        ((str(shop.path), "--outbox-set", "a=b"), "Add --outbox TABLE"),
        ((str(shop.path), "--tables", "orders", "--outbox", "events"), "Add it to --tables"),
    ):
        done = shop.cli.run("cdc", "attach", *words, code=2)
        assert reason in done.stderr, done.stderr
    assert not list((tmp_path / "log" / "cdc").glob("*.json"))


def test_what_is_not_attached_is_named(shop: Shop) -> None:
    open_log(shop.cli.url).close()
    assert "headrace cdc attach" in shop.cli.run("cdc", "run", code=2).stderr
    shop.attach()
    assert "There are: shop" in shop.cli.run("cdc", "run", "shp", code=2).stderr
    shop.attach("--prefix", "other")
    assert "Name one of them: other, shop" in shop.cli.run("cdc", "run", code=2).stderr


def test_a_password_is_neither_stored_nor_shown(shop: Shop, tmp_path: Path) -> None:
    words = ("cdc", "attach", "postgresql://me:swordfish@127.0.0.1:1/shop", "--tables", "a")
    done = shop.cli.invoke(*words)
    assert done.exit_code in (1, 2)
    assert "swordfish" not in done.output
    config = {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": "127.0.0.1",
        "database.port": 1,
        "database.user": "me",
        "database.dbname": "shop",
        "database.password": "swordfish",
    }
    (tmp_path / "connector.json").write_text(json.dumps(config))
    done = shop.cli.invoke("cdc", "attach", "--config", str(tmp_path / "connector.json"))
    assert done.exit_code in (1, 2)
    assert "swordfish" not in done.output
    stored = [path for path in (tmp_path / "log").rglob("*") if path.is_file()]
    assert not [path for path in stored if b"swordfish" in path.read_bytes()]


def test_the_accidental_delete_is_undone(shop: Shop, tmp_path: Path) -> None:
    shop.execute(
        "WITH RECURSIVE n(i) AS (SELECT 3 UNION ALL SELECT i + 1 FROM n WHERE i < 10000) "
        "INSERT INTO orders SELECT i, 'it''s ' || i FROM n"
    )
    before = shop.query("SELECT * FROM orders ORDER BY id")
    shop.attach("--tables", "orders")
    shop.catch_up()
    shop.execute("DELETE FROM orders")
    shop.catch_up()
    shop.execute("INSERT INTO orders VALUES (5, 'mine')")
    words = ("cdc", "undo", "--from", "2000-01-01", "--to", "2999-01-01")
    script = shop.cli.run(*words).stdout
    with closing(sqlite3.connect(shop.path)) as db:
        db.executescript(script)
    after = shop.query("SELECT * FROM orders ORDER BY id")
    assert after == [(5, "mine") if id == 5 else (id, note) for id, note in before]
    assert shop.catch_up()["changes"] == 10_000 + 1 + 9_999
