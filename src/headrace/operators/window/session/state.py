"""Open sessions in the store, in parts, beside the table of panes."""

from __future__ import annotations

import apsw
import pyarrow as pa

from headrace.operators.window.declare import Aggregation
from headrace.pipeline.time import WINDOW_END, WINDOW_START
from headrace.plan.steps import Step
from headrace.store.sqlite.database import PREFIX
from headrace.store.sqlite.values import check_storable, insert, quoted, sql_type, table_from


class OpenSessions:
    """Open sessions by key and start. What can change no more is not among them."""

    def __init__(self, step: Step, schema: pa.Schema) -> None:
        assert isinstance(step.computed, Aggregation)
        check_storable(schema, f"step {step.name!r}")
        self.schema = schema
        self._name = quoted(f"{PREFIX}open_{step.name}")
        self._index = quoted(f"{PREFIX}open_ends_{step.name}")
        self._wanted = quoted(f"{PREFIX}wanted_{step.name}")
        self._key = list(step.computed.view_key)
        self._by = " AND ".join(f"o.{quoted(k)} IS n.{quoted(k)}" for k in step.computed.by)

    def create(self, db: apsw.Connection) -> None:
        """Make the table."""
        columns = ", ".join(f"{quoted(field.name)} {sql_type(field.type)}" for field in self.schema)
        key = ", ".join(map(quoted, self._key))
        db.execute(f"CREATE TABLE {self._name} ({columns}, PRIMARY KEY ({key}))")
        db.execute(f"CREATE INDEX {self._index} ON {self._name} ({WINDOW_END})")

    def overlapping(self, db: apsw.Connection, sessions: pa.Table) -> pa.Table:
        """The open sessions that overlap any of these, of the same key."""
        self._want(db, sessions.select([*self._key, WINDOW_END]))
        rows = db.execute(
            f"SELECT * FROM {self._name} WHERE rowid IN "
            f"(SELECT o.rowid FROM {self._wanted} n JOIN {self._name} o ON {self._by} "
            f"AND o.{WINDOW_START} < n.{WINDOW_END} AND o.{WINDOW_END} > n.{WINDOW_START})"
        )
        return table_from([tuple(row) for row in rows], self.schema)

    def replace(self, db: apsw.Connection, gone: pa.Table, held: pa.Table) -> None:
        """Put sessions in the place of those that they were made of."""
        self._want(db, gone.select([*self._key, WINDOW_END]))
        same = f"{self._by} AND o.{WINDOW_START} = n.{WINDOW_START}"
        db.execute(
            f"DELETE FROM {self._name} WHERE rowid IN "
            f"(SELECT o.rowid FROM {self._wanted} n JOIN {self._name} o ON {same})"
        )
        insert(db, self._name, held)

    def forget(self, db: apsw.Connection, closed: int | None) -> None:
        """Remove the sessions that ended so long ago that nothing can join them."""
        if closed is not None:
            db.execute(f"DELETE FROM {self._name} WHERE {WINDOW_END} <= ?", (closed,))

    def _want(self, db: apsw.Connection, keys: pa.Table) -> None:
        names = ", ".join(map(quoted, keys.column_names))
        db.execute(f"CREATE TEMP TABLE IF NOT EXISTS {self._wanted} ({names})")
        db.execute(f"DELETE FROM {self._wanted}")
        insert(db, self._wanted, keys)
