"""State of the table-table join: the tables, the joined view and its changelog."""

from __future__ import annotations

import apsw
import pyarrow as pa

from headrace.operators.table_join.declare import TableJoin
from headrace.operators.table_join.joined import joined_of
from headrace.operators.table_join.payload import TableChanges, TableShapes
from headrace.operators.table_join.sides import Side
from headrace.plan import metadata
from headrace.plan.batch import StepBatch
from headrace.plan.law import Law
from headrace.plan.position import last_commit
from headrace.store import changelog
from headrace.store.keeper import Keeper, Passage, Stored
from headrace.store.outbox import put
from headrace.store.sqlite.database import PREFIX, rows_of
from headrace.store.sqlite.values import quoted, shown, tables_from


class TableJoinKeeper(Keeper):
    """Keeps the current tables. Their rows are joined when somebody reads the view.

    So a change writes only rows of its own table, however many joined rows it touches. For a
    changelog, these are read before and after the change.
    """

    def __init__(self, stored: Stored) -> None:
        step, shapes = stored.step, stored.shapes
        join = step.stream
        assert isinstance(join, TableJoin)
        assert isinstance(shapes, TableShapes)
        assert step.view is not None
        self.schema = shapes.rows
        self._step = step
        self._view = step.view
        self._log = stored.log
        self._changelog = stored.changelog
        self._crash_point = stored.crash_point
        pairs = zip(join.tables, shapes.tables, strict=True)
        self._sides = [Side(step.name, n, table, s) for n, (table, s) in enumerate(pairs)]
        self._joined = joined_of(step.name, join, self._sides)
        self._before, self._after = (
            f"temp.{quoted(f'{PREFIX}{when}_{step.name}')}" for when in ("before", "after")
        )

    def create(self, db: apsw.Connection) -> None:
        for side in self._sides:
            side.create(db)
        self._joined.create(db)
        rows = quoted(rows_of(self._step.name))
        db.execute(f"CREATE VIEW {rows} AS {self._joined.all_rows()}")
        columns = ", ".join(
            f"{shown(quoted(f.name), f.type)} AS {quoted(f.name)}" for f in self.schema
        )
        # A row may change at any time, so it is never final.
        db.execute(
            f"CREATE VIEW {quoted(self._view.name)} AS "
            f"SELECT {columns}, 'open' AS _state FROM {rows}"
        )

    def store(self, db: apsw.Connection, batch: StepBatch[TableChanges], passage: Passage) -> Law:
        pairs = zip(self._sides, batch.payload.tables, strict=True)
        before = sum(side.take_in(db, versions) for side, versions in pairs)
        if self._changelog is not None:
            self._joined.touch(db)
            self._remember(db, self._before)
        after = sum(side.apply(db) for side in self._sides)
        self._crash_point("stored panes")
        if self._changelog is not None:
            self._remember(db, self._after)
            moment = self._log.commit_time(last_commit(batch.end)) // 1_000
            self._publish(db, self._changelog, moment)
        return Law(counted=after - before)

    def _remember(self, db: apsw.Connection, table: str) -> None:
        """Copy the touched rows in their current state."""
        columns = ", ".join(map(quoted, self.schema.names))
        key = ", ".join(map(quoted, self._view.key))
        schema, name = table.split(".", 1)
        db.execute(
            f"CREATE TABLE IF NOT EXISTS {table} ({columns}); DELETE FROM {table}; "
            f"DROP INDEX IF EXISTS {schema}.{_index(name)}"
        )
        db.execute(f"INSERT INTO {table} ({columns}) {self._joined.touched_rows()}")
        db.execute(f"CREATE INDEX {schema}.{_index(name)} ON {name} ({key})")

    def _publish(self, db: apsw.Connection, topic: str, moment: int) -> None:
        """Put the changes of these rows into the outbox: first deletions, then upserts."""
        who, key = (self._step.app, self._view.name), self._view.key
        match = " AND ".join(f"a.{quoted(k)} IS b.{quoted(k)}" for k in key)
        order = ", ".join(map(quoted, key))
        gone = (
            f"SELECT {self._listed('b')} FROM {self._before} b "
            f"WHERE NOT EXISTS (SELECT 1 FROM {self._after} a WHERE {match}) ORDER BY {order}"
        )
        for rows in tables_from(db.execute(gone), self.schema):
            put(db, topic, changelog.deletions(*who, key, rows, moment))
        names = self.schema.names
        both = pa.schema([*self.schema, *(f.with_name(f"{f.name} before") for f in self.schema)])
        # A row with the same revision has the same values.
        changed = (
            f"SELECT {self._listed('a')}, {self._listed('b')} FROM {self._after} a "
            f"LEFT JOIN {self._before} b ON {match} "
            f"WHERE a.{metadata.REVISION} IS NOT b.{metadata.REVISION} "
            f"ORDER BY {', '.join(f'a.{quoted(k)}' for k in key)}"
        )
        for rows in tables_from(db.execute(changed), both):
            was = rows.select(both.names[len(names) :]).rename_columns(names)
            put(db, topic, changelog.changes(*who, key, rows.select(names), was, moment))

    def _listed(self, side: str) -> str:
        return ", ".join(f"{side}.{quoted(name)}" for name in self.schema.names)


keeper = TableJoinKeeper


def _index(table: str) -> str:
    return quoted(f"{table[1:-1]} by key")
