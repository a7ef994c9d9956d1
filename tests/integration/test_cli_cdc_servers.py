"""`headrace cdc` on PostgreSQL and MariaDB, from the JSON of a Debezium connector to the undo."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_cli_running import Cli
from tests.servers.mariadb import Database as Mariadb
from tests.servers.postgresql import Database as Postgresql


def connector(place: str, user: str, **settings: Any) -> dict[str, Any]:
    """A connector of the database at `host:port/name`."""
    server, _, _ = place.partition("/")
    host, _, port = server.partition(":")
    config = {"database.hostname": host, "database.port": port, "database.user": user, **settings}
    return {"name": "shop", "config": config | {"topic.prefix": "shop"}}


def attach(cli: Cli, folder: Path, config: dict[str, Any]) -> Any:
    (folder / "connector.json").write_text(json.dumps(config))
    return cli.json("cdc", "attach", "--config", str(folder / "connector.json"))


def check_from_attach_to_undo(cli: Cli, database: Any) -> None:
    """Capture a table, delete its rows, and bring them back by the script."""
    cli.json("cdc", "run", "--until-caught-up")
    database.execute("UPDATE orders SET note = 'c' WHERE id = 1", "DELETE FROM orders")
    assert cli.json("cdc", "run", "--until-caught-up")["changes"] == 3
    words = ("cdc", "undo", "shop", "--from", "2020-01-01", "--to", "2999-01-01")
    script = cli.run(*words).stdout
    with database.connect() as connection, connection.cursor() as cursor:
        for statement in script.split(";\n"):
            if statement.strip():
                cursor.execute(statement)
    assert database.query("SELECT id, note FROM orders ORDER BY id") == [(1, "it's a"), (2, "b")]
    (status,) = cli.lines("cdc", "status")
    assert status["trouble"] is None
    cli.run("cdc", "detach", "--yes")


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path)


ROWS = (
    "CREATE TABLE orders (id int PRIMARY KEY, note varchar(20))",
    "CREATE TABLE other (id int PRIMARY KEY)",
    "INSERT INTO orders VALUES (1, 'it''s a'), (2, 'b')",
)


def test_a_connector_of_postgresql_is_captured_and_undone(
    cli: Cli, tmp_path: Path, postgresql: Postgresql
) -> None:
    postgresql.execute(*ROWS)
    user = postgresql.url.partition("://")[2].partition("@")[0]
    config = connector(
        postgresql.place,
        user,
        **{
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.dbname": postgresql.name,
            "table.include.list": "public.ord.*",
            "slot.name": f"slot_{postgresql.name}",
            "publication.name": "dbz_publication",
            "plugin.name": "wal2json",
            "snapshot.mode": "initial",
        },
    )
    made = attach(cli, tmp_path, config)
    assert made["tables"] == ["public.orders"]
    assert [*made["not_honoured"]] == ["plugin.name"]
    slots = "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
    assert postgresql.query(slots) == [(f"slot_{postgresql.name}",)]
    assert postgresql.query("SELECT pubname FROM pg_publication") == [("dbz_publication",)]
    check_from_attach_to_undo(cli, postgresql)
    assert postgresql.query(slots) == []
    assert postgresql.query("SELECT pubname FROM pg_publication") == []


def test_a_connector_of_mysql_is_captured_and_undone(
    cli: Cli, tmp_path: Path, mariadb: Mariadb
) -> None:
    mariadb.execute(*ROWS)
    config = connector(
        mariadb.place,
        "root",
        **{
            "connector.class": "io.debezium.connector.mysql.MySqlConnector",
            "database.include.list": mariadb.name,
            "table.include.list": f"{mariadb.name}.orders",
            "schema.history.internal.kafka.topic": "history",
        },
    )
    made = attach(cli, tmp_path, config)
    assert made["tables"] == [f"{mariadb.name}.orders"]
    assert [*made["not_honoured"]] == ["schema.history.internal.kafka.topic"]
    check_from_attach_to_undo(cli, mariadb)
