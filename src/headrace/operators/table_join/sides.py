"""The current tables of a join: the newest version of each key.

A deleted key is a row as well, without values, and is kept for good: a late change must not bring
back a row that was deleted after it.
"""

from __future__ import annotations

import apsw
import pyarrow as pa

from headrace.pipeline.tables import Table
from headrace.plan import metadata
from headrace.plan.table_changes import ORDER
from headrace.store.sqlite.database import PREFIX
from headrace.store.sqlite.values import check_storable, insert, quoted, sql_type

WINS = "_wins"
_ROWS_AT_ONCE = 100_000
_SET_APART = (*ORDER, metadata.DELETED)


class Side:
    """One of the tables. The changes of a batch are in a temporary table until they are applied.

    `newest` has a row for each key in the batch: its newest version, the number of versions, and
    whether it wins over the stored version.
    """

    def __init__(self, step: str, number: int, table: Table, schema: pa.Schema) -> None:
        check_storable(schema, f"table {number + 1} of {step!r}")
        self.key = table.key
        self._table = f"{PREFIX}side{number}_{step}"
        self.name = quoted(self._table)
        self.newest = f"temp.{quoted(f'{PREFIX}newest{number}_{step}')}"
        self._came = f"temp.{quoted(f'{PREFIX}came{number}_{step}')}"
        self._typed = ", ".join(f"{quoted(f.name)} {sql_type(f.type)}" for f in schema)
        self._columns = [quoted(name) for name in schema.names]
        keep = {*table.key, *_SET_APART}
        self._values = [quoted(name) for name in schema.names if name not in keep]
        self._key = ", ".join(map(quoted, table.key))
        self._same = same("n", "s", table.key)

    def create(self, db: apsw.Connection) -> None:
        db.execute(
            f"CREATE TABLE {self.name} ({self._typed}, {metadata.ROWS} INTEGER, "
            f"PRIMARY KEY ({self._key})) WITHOUT ROWID"
        )

    def index(self, db: apsw.Connection, columns: tuple[str, ...]) -> None:
        """Create an index on columns, unless the key serves as one."""
        if columns != self.key[: len(columns)]:
            name = quoted(f"{self._table} by {' '.join(columns)}")
            listed = ", ".join(map(quoted, columns))
            db.execute(f"CREATE INDEX IF NOT EXISTS {name} ON {self.name} ({listed})")

    def take_in(self, db: apsw.Connection, versions: pa.Table) -> int:
        """Find the newest version of each key; return the stored number of versions of these."""
        self._prepare(db)
        for first in range(0, versions.num_rows, _ROWS_AT_ONCE):
            insert(db, self._came, versions.slice(first, _ROWS_AT_ONCE))
        order = ", ".join(f"{name} DESC" for name in ORDER)
        chosen = ", ".join(
            f"iif({metadata.DELETED}, NULL, {c})" if c in self._values else c for c in self._columns
        )
        mine, theirs = (", ".join(f"{side}.{name}" for name in ORDER) for side in ("n", "s"))
        db.execute(
            f"INSERT INTO {self.newest} SELECT {chosen}, _came, 1 FROM (SELECT *, "
            f"row_number() OVER (PARTITION BY {self._key} ORDER BY {order}) AS _place, "
            f"count(*) OVER (PARTITION BY {self._key}) AS _came FROM {self._came}) "
            f"WHERE _place = 1 ORDER BY {self._key}"
        )
        db.execute(f"DELETE FROM {self._came}")
        db.execute(
            f"UPDATE {self.newest} AS n SET {WINS} = 0 WHERE EXISTS "
            f"(SELECT 1 FROM {self.name} s WHERE {self._same} AND ({theirs}) > ({mine}))"
        )
        return self._counted(db)

    def apply(self, db: apsw.Connection) -> int:
        """Store the winning versions; return the new number of versions of these keys."""
        columns = ", ".join(self._columns)
        mine, theirs = (", ".join(f"{side}{name}" for name in ORDER) for side in ("excluded.", ""))
        values = ", ".join(
            f"{c} = iif(({mine}) > ({theirs}), excluded.{c}, {c})"
            for c in (*self._values, *_SET_APART)
        )
        db.execute(
            f"INSERT INTO {self.name} ({columns}, {metadata.ROWS}) "
            f"SELECT {columns}, {metadata.ROWS} FROM {self.newest} WHERE true ORDER BY {self._key} "
            f"ON CONFLICT ({self._key}) DO UPDATE SET {values}, "
            f"{metadata.ROWS} = {metadata.ROWS} + excluded.{metadata.ROWS}"
        )
        return self._counted(db)

    def _counted(self, db: apsw.Connection) -> int:
        found = db.execute(
            f"SELECT coalesce(sum(s.{metadata.ROWS}), 0) FROM {self.newest} n "
            f"CROSS JOIN {self.name} s ON {self._same}"
        ).get
        return int(found)

    def _prepare(self, db: apsw.Connection) -> None:
        db.execute(f"CREATE TABLE IF NOT EXISTS {self._came} ({self._typed})")
        db.execute(
            f"CREATE TABLE IF NOT EXISTS {self.newest} ({self._typed}, {metadata.ROWS}, {WINS}, "
            f"PRIMARY KEY ({self._key})) WITHOUT ROWID"
        )
        db.execute(f"DELETE FROM {self._came}; DELETE FROM {self.newest}")


def same(one: str, other: str, columns: tuple[str, ...]) -> str:
    """SQL for equal values in columns that are not null."""
    return " AND ".join(f"{one}.{quoted(c)} = {other}.{quoted(c)}" for c in columns)
