"""The versions of a table that rows are looked up in."""

from __future__ import annotations

from collections.abc import Mapping

import apsw
import pyarrow as pa

from headrace.plan.table_changes import ORDER
from headrace.store.sqlite.database import PREFIX
from headrace.store.sqlite.values import check_storable, insert, quoted, sql_type, table_from


class VersionTable:
    """The versions of each key, in order."""

    def __init__(self, name: str, key: tuple[str, ...], schema: pa.Schema) -> None:
        check_storable(schema, f"table {name!r}")
        self.schema = schema
        self.name = quoted(f"{PREFIX}versions_{name}")
        self._key = key

    def create(self, db: apsw.Connection) -> None:
        columns = ", ".join(f"{quoted(f.name)} {sql_type(f.type)}" for f in self.schema)
        key = ", ".join(map(quoted, (*self._key, *ORDER)))
        db.execute(f"CREATE TABLE {self.name} ({columns}, PRIMARY KEY ({key})) WITHOUT ROWID")

    def add(self, db: apsw.Connection, versions: pa.Table) -> int:
        """Add versions; returns how many there are more."""
        before = db.total_changes()
        insert(db, self.name, versions)
        return db.total_changes() - before

    def all(self, db: apsw.Connection) -> pa.Table:
        """Every version."""
        rows = [tuple(row) for row in db.execute(f"SELECT * FROM {self.name}")]
        return table_from(rows, self.schema)


class FrontierTable:
    """Frontiers of topics that go with the stored results of a step, for retention forgets them."""

    def __init__(self, step: str) -> None:
        self._table = f"{PREFIX}frontiers_{step}"
        self._name = quoted(self._table)

    def keep(self, db: apsw.Connection, frontiers: Mapping[str, int]) -> None:
        """Keep these, in the place of others. Steps of an earlier headrace have no such table."""
        if not frontiers:
            return
        db.execute(
            f"CREATE TABLE IF NOT EXISTS {self._name} "
            "(topic TEXT PRIMARY KEY, frontier INTEGER NOT NULL)"
        )
        db.executemany(f"INSERT OR REPLACE INTO {self._name} VALUES (?, ?)", frontiers.items())

    def all(self, db: apsw.Connection) -> dict[str, int]:
        """The frontiers that are kept, by topic."""
        there = "SELECT count(*) FROM sqlite_schema WHERE name = ?"
        if not db.execute(there, (self._table,)).get:
            return {}
        return {str(t): int(f) for t, f in db.execute(f"SELECT * FROM {self._name}")}
