"""The table behind a view: a row for each pane, by key, open ones included."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import apsw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.clock import micros
from headrace.operators.window.declare import Aggregation
from headrace.operators.window.windows import Session
from headrace.pipeline.time import WINDOW_END
from headrace.plan import metadata
from headrace.plan.steps import Step
from headrace.store.sqlite.database import PREFIX, panes_of
from headrace.store.sqlite.values import (
    check_storable,
    create_table,
    fill_temporary,
    insert,
    quoted,
    shown,
    table_from,
    tables_from,
    to_sqlite,
)

_ROWS_AT_ONCE = 100_000


@dataclass(frozen=True)
class Merged:
    """The effect of a batch: the previous row of each of its rows, and the rows counted.

    A row without a previous one has nulls.
    """

    before: pa.Table | None
    counted: int


class PaneTable:
    """Panes by key. A reader sees them through an SQL view of the view's own name."""

    def __init__(
        self,
        step: Step,
        schema: pa.Schema,
        *,
        name: str | None = None,
        key: Sequence[str] | None = None,
    ) -> None:
        assert isinstance(step.computed, Aggregation)
        check_storable(schema, f"step {step.name!r}")
        self._aggregation = step.computed
        self.schema = schema
        self._is_view = step.view is not None and step.stream is step.computed
        kept = step.view.key if step.view is not None and self._is_view else step.computed.view_key
        self.key = kept if key is None else tuple(key)
        self.name = quoted(f"{PREFIX}{name}" if name else panes_of(step.name))
        self._index = quoted(f"{PREFIX}ends_{name or step.name}")
        self._new = quoted(f"{PREFIX}new_{name or step.name}")
        self._step = step
        self._grows = isinstance(step.computed.window, Session)
        self._columns = [quoted(name) for name in schema.names]
        nested = {field.name for field in schema if pa.types.is_nested(field.type)}
        self._sortable = [name for name in self.key if name not in nested]
        self._match = " AND ".join(f"o.{quoted(k)} IS n.{quoted(k)}" for k in self.key)

    def create(self, db: apsw.Connection) -> None:
        """Create the table, and the SQL view that readers see."""
        self._create_table(db)
        if self._step.view is not None and self._is_view:
            db.execute(f"CREATE VIEW {quoted(self._step.view.name)} AS {self._select()}")

    @property
    def forgets(self) -> bool:
        """True if the published versions of a window can be dropped once the window is closed."""
        return True

    def _create_table(self, db: apsw.Connection) -> None:
        create_table(db, self.name, self.schema, self.key, rowid=True)
        db.execute(f"CREATE INDEX {self._index} ON {self.name} ({WINDOW_END})")

    def merge(self, db: apsw.Connection, rows: pa.Table, *, remember: bool) -> Merged:
        """Insert panes, or replace those with the same key."""
        counted = pc.sum(rows.column(metadata.ROWS)).as_py()
        known = self._may_be_known(db, rows)
        insert(db, self.name, rows.filter(pa.array(~known)))
        if not known.any():
            return Merged(self._no_rows(rows.num_rows) if remember else None, counted)
        some = rows.filter(pa.array(known))
        fill_temporary(db, self._new, some)
        join = f"FROM {self._new} n JOIN {self.name} o ON {self._match}"
        before = None
        if remember:
            there = [tuple(row) for row in db.execute(f"SELECT n.rowid, o.* {join}")]
            old = table_from([row[1:] for row in there], self.schema)
            counted -= pc.sum(old.column(metadata.ROWS)).as_py() or 0
            found = np.full(rows.num_rows, -1)
            found[np.flatnonzero(known)[[row[0] - 1 for row in there]]] = range(len(there))
            before = old.take(pa.array(found, mask=found < 0))
        else:
            counted -= db.execute(f"SELECT coalesce(sum(o.{metadata.ROWS}), 0) {join}").get
        self._replace(db, some)
        db.execute(f"DELETE FROM {self._new}")
        return Merged(before, counted)

    def _may_be_known(self, db: apsw.Connection, rows: pa.Table) -> np.ndarray[Any, Any]:
        """For each pane, true if its key may already be in the table.

        A pane of a window after the last stored one is new. While a pipeline catches up, most panes
        are, and only have to be inserted. A session grows, so it may be stored with any end.
        """
        if self._grows:
            return np.ones(rows.num_rows, np.bool_)
        newest = db.execute(f"SELECT max({WINDOW_END}) FROM {self.name}").get
        if newest is None:
            return np.zeros(rows.num_rows, np.bool_)
        ends = rows.column(WINDOW_END).cast(pa.int64()).to_numpy()
        known: np.ndarray[Any, Any] = ends <= newest
        return known

    def _replace(self, db: apsw.Connection, rows: pa.Table) -> None:
        # Null keys never conflict in SQL, so these rows are deleted first.
        if any(rows.column(name).null_count for name in self.key):
            nulls = " OR ".join(f"n.{quoted(k)} IS NULL" for k in self.key)
            db.execute(
                f"DELETE FROM {self.name} WHERE rowid IN (SELECT o.rowid FROM {self._new} n "
                f"JOIN {self.name} o ON {self._match} WHERE {nulls})"
            )
        key = ", ".join(map(quoted, self.key))
        settled = {*map(quoted, self.key), *([] if self._grows else [quoted(WINDOW_END)])}
        changes = ", ".join(f"{c} = excluded.{c}" for c in self._columns if c not in settled)
        db.execute(
            f"INSERT INTO {self.name} SELECT * FROM {self._new} WHERE true "
            f"ON CONFLICT ({key}) DO UPDATE SET {changes}"
        )

    def _no_rows(self, count: int) -> pa.Table:
        """Rows of nulls only."""
        nulls = [pa.nulls(count, field.type) for field in self.schema]
        return pa.Table.from_arrays(nulls, schema=self.schema)

    def remove(self, db: apsw.Connection, keys: pa.Table) -> pa.Table:
        """Remove panes by key; returns them."""
        where = " AND ".join(f"{quoted(name)} IS ?" for name in self.key)
        delete = f"DELETE FROM {self.name} WHERE {where} RETURNING *"
        found = db.executemany(delete, _keys(keys, self.key))
        return table_from(list(found), self.schema)

    def forget(self, db: apsw.Connection, closed: int | None) -> None:
        """Remove the panes that cannot change any more: those whose window ended by then."""
        if closed is not None:
            db.execute(f"DELETE FROM {self.name} WHERE {WINDOW_END} <= ?", (closed,))

    def slices(self, rows: pa.Table) -> Iterator[pa.Table]:
        """Panes by key, in slices that are small enough to be Python rows."""
        rows = rows.sort_by([(name, "ascending") for name in self._sortable])
        for first in range(0, rows.num_rows, _ROWS_AT_ONCE):
            yield rows.slice(first, _ROWS_AT_ONCE)

    def ended(self, db: apsw.Connection, after: int | None, upto: int | None) -> Iterator[pa.Table]:
        """The panes whose window ended after one moment, and at or before another."""
        if upto is None:
            return
        rows = db.execute(
            f"SELECT * FROM {self.name} WHERE {WINDOW_END} > ? AND {WINDOW_END} <= ? "
            f"ORDER BY {WINDOW_END}, {', '.join(map(quoted, self.key))}",
            (-(1 << 62) if after is None else after, upto),
        )
        yield from tables_from(rows, self.schema)

    def _select(self) -> str:
        lateness = self._aggregation.lateness
        delay = micros(lateness.delay)
        patience = micros(self._aggregation.patience) + micros(self._aggregation.window.settles)
        columns = ", ".join(
            f"{shown(quoted(field.name), field.type)} AS {quoted(field.name)}"
            for field in self.schema
            if field.name != metadata.ROWS
        )
        step = self._step.name.replace("'", "''")
        frontier = f"(SELECT frontier FROM {PREFIX}step WHERE name = '{step}')"
        state = (
            f"CASE WHEN {WINDOW_END} + {patience} <= {frontier} THEN 'final' "
            f"WHEN {WINDOW_END} + {delay} <= {frontier} THEN 'fired' ELSE 'open' END AS _state"
        )
        final = f" WHERE {WINDOW_END} + {patience} <= {frontier}"
        return f"SELECT {columns}, {state} FROM {self.name}" + (
            final if self._aggregation.emit == "final" else ""
        )


def without(rows: pa.Table, others: pa.Table, key: Sequence[str]) -> pa.Table:
    """The rows whose key none of the others has."""
    if not rows.num_rows:
        return rows
    known = set(_keys(others, key))
    return rows.filter(pa.array([found not in known for found in _keys(rows, key)]))


def _keys(rows: pa.Table, key: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    return zip(*(to_sqlite(rows.column(name)) for name in key), strict=True)
