"""The stage of PostgreSQL."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from psycopg2.extras import RealDictCursor

from headrace.cdc.contract import Source
from headrace.cdc.postgres.source import PostgresSource
from headrace.clock import Clock
from tests.conformance.sources.stage import Row, Stage
from tests.servers.postgresql import Database


class PostgresStage(Stage):
    """A database on the server that the tests share."""

    name = "postgresql"
    schema = "public"
    needs = ("postgresql",)

    def __init__(self, folder: Path, database: Database) -> None:
        super().__init__(folder)
        self.database = database
        self.db = database.connect()

    def execute(self, *statements: str) -> None:
        with self.db.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def transaction(self, *statements: str, rollback: bool = False) -> None:
        self.execute("BEGIN", *statements, "ROLLBACK" if rollback else "COMMIT")

    def rows(self, table: str) -> list[Row]:
        with self.db.cursor(cursor_factory=RealDictCursor) as cursor:
            cursor.execute(f"SELECT * FROM {table} ORDER BY 1")
            return [dict(row) for row in cursor]

    def source(self, tables: Sequence[str] | None = None, clock: Clock | None = None) -> Source:
        return PostgresSource(self.database.url, tables, clock=clock)

    def lose_changes(self) -> None:
        with self.source() as source:
            source.detach()
        self.execute(
            "UPDATE items SET name = 'lost' WHERE id = 1",
            "DELETE FROM items WHERE id = 2",
            "INSERT INTO items (id, name) VALUES (99, 'new')",
        )

    def close(self) -> None:
        with contextlib.closing(self.db):
            self.log.close()
