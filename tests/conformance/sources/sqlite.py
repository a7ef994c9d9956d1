"""The stage of SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from headrace.cdc.contract import Source
from headrace.cdc.sqlite import SqliteSource
from headrace.clock import Clock
from tests.conformance.sources.stage import Row, Stage


class SqliteStage(Stage):
    """A database file, written through Python's own SQLite, as an application would."""

    name = "sqlite"
    schema = "main"
    truncates = False

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.path = folder / "shop.db"
        self.db = sqlite3.connect(self.path, isolation_level=None)
        self.db.row_factory = sqlite3.Row

    def execute(self, *statements: str) -> None:
        for statement in statements:
            self.db.execute(statement)

    def transaction(self, *statements: str, rollback: bool = False) -> None:
        self.execute("BEGIN", *statements, "ROLLBACK" if rollback else "COMMIT")

    def rows(self, table: str) -> list[Row]:
        return [dict(row) for row in self.db.execute(f"SELECT * FROM {table} ORDER BY 1")]

    def source(self, tables: Sequence[str] | None = None, clock: Clock | None = None) -> Source:
        return SqliteSource(self.path, tables=tables, clock=clock)

    def lose_changes(self) -> None:
        with self.source() as source:
            source.detach()
        self.execute(
            "UPDATE items SET name = 'lost' WHERE id = 1",
            "DELETE FROM items WHERE id = 2",
            "INSERT INTO items (id, name) VALUES (99, 'new')",
        )

    def drop_column(self, table: str, column: str) -> None:
        # SQLite refuses to drop a column that a trigger names.
        with self.source() as source:
            source.detach()
        super().drop_column(table, column)

    def close(self) -> None:
        self.db.close()
        self.log.close()
