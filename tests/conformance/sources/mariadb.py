"""The stage of MariaDB."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from pymysql.cursors import DictCursor

from headrace.cdc.contract import Source
from headrace.cdc.mysql.source import MySqlSource
from headrace.clock import Clock
from tests.conformance.sources.stage import Row, Stage
from tests.servers.mariadb import Database, Mariadb


class MariadbStage(Stage):
    """A database on the server that the tests share."""

    name = "mysql"
    needs = ("mariadb",)

    def __init__(self, folder: Path, database: Database) -> None:
        super().__init__(folder)
        self.schema = database.name  # type: ignore[misc] # of this test alone
        self.database = database
        self.db = database.connect()
        self._others = contextlib.ExitStack()

    def execute(self, *statements: str) -> None:
        with self.db.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def transaction(self, *statements: str, rollback: bool = False) -> None:
        self.execute("BEGIN", *statements, "ROLLBACK" if rollback else "COMMIT")

    def rows(self, table: str) -> list[Row]:
        with self.db.cursor(DictCursor) as cursor:
            cursor.execute(f"SELECT * FROM {table} ORDER BY 1")
            return list(cursor.fetchall())

    def source(self, tables: Sequence[str] | None = None, clock: Clock | None = None) -> Source:
        return MySqlSource(self.database.url, tables, clock=clock)

    def lose_changes(self) -> None:
        """Let another server take over, which has the rows and not the binlog."""
        server = self._others.enter_context(Mariadb.running("--server-id=2"))
        other = Database(server, self.schema)
        with contextlib.closing(server.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {other.name}")
        for (table,) in self.database.query("SHOW TABLES"):
            ((_, made),) = self.database.query(f"SHOW CREATE TABLE {table}")
            other.execute(made)
            rows = self.database.query(f"SELECT * FROM {table}")
            with contextlib.closing(other.connect()) as connection, connection.cursor() as cursor:
                for row in rows:
                    marks = ", ".join(["%s"] * len(row))
                    cursor.execute(f"INSERT INTO {table} VALUES ({marks})", row)
        self.db.close()
        self.database, self.db = other, other.connect()
        self.execute(
            "UPDATE items SET name = 'lost' WHERE id = 1",
            "DELETE FROM items WHERE id = 2",
            "INSERT INTO items (id, name) VALUES (99, 'new')",
        )

    def close(self) -> None:
        with self._others, contextlib.closing(self.db):
            self.log.close()
