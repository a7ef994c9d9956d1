"""The table behind a view: a row for each pane, by key, open ones included."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import apsw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.clock import micros
from headrace.engine import places
from headrace.engine.steps import Step
from headrace.streams.stream import WINDOW_END
from headrace.views.database import PREFIX
from headrace.views.values import check_storable, quoted, shown, sql_type, table_from, to_sqlite

_ROWS_AT_ONCE = 100_000


@dataclass(frozen=True)
class Merged:
    """What a batch did to the table: for each of its rows the one before, and the rows counted.

    Where there was none before, all of its columns are null.
    """

    before: pa.Table | None
    counted: int


class PaneTable:
    """Panes by key. A reader sees them through an SQL view of the view's own name."""

    def __init__(self, step: Step, schema: pa.Schema) -> None:
        assert step.aggregation is not None
        check_storable(schema, f"step {step.name!r}")
        self._aggregation = step.aggregation
        self.schema = schema
        self.key = step.view.key if step.view else (*step.aggregation.by, "window_start")
        self.name = quoted(f"{PREFIX}panes_{step.name}")
        self._index = quoted(f"{PREFIX}ends_{step.name}")
        self._step = step
        self._columns = [quoted(name) for name in schema.names]
        nested = {field.name for field in schema if pa.types.is_nested(field.type)}
        self._sortable = [name for name in self.key if name not in nested]
        self._match = " AND ".join(f"o.{quoted(k)} IS n.{quoted(k)}" for k in self.key)

    def create(self, db: apsw.Connection) -> None:
        """Make the table, and what a reader sees of it."""
        columns = ", ".join(f"{quoted(field.name)} {sql_type(field.type)}" for field in self.schema)
        key = ", ".join(map(quoted, self.key))
        db.execute(f"CREATE TABLE {self.name} ({columns}, PRIMARY KEY ({key}))")
        db.execute(f"CREATE INDEX {self._index} ON {self.name} ({WINDOW_END})")
        if self._step.view is not None:
            db.execute(f"CREATE VIEW {quoted(self._step.view.name)} AS {self._select()}")

    def merge(self, db: apsw.Connection, rows: pa.Table, *, remember: bool) -> Merged:
        """Put panes in the place of those with the same key."""
        names = ", ".join(self._columns)
        db.execute(f"CREATE TEMP TABLE IF NOT EXISTS {self._new} ({names})")
        db.execute(f"DELETE FROM {self._new}")
        marks = ", ".join("?" * len(self._columns))
        values = [to_sqlite(column) for column in rows.columns]
        db.executemany(f"INSERT INTO {self._new} VALUES ({marks})", zip(*values, strict=True))
        join = f"FROM {self._new} n JOIN {self.name} o ON {self._match}"
        counted = pc.sum(rows.column(places.ROWS)).as_py()
        before = None
        if remember:
            there = [tuple(row) for row in db.execute(f"SELECT n.rowid, o.* {join}")]
            places_of = np.full(rows.num_rows, -1)
            places_of[[row[0] - 1 for row in there]] = range(len(there))
            old = table_from([row[1:] for row in there], self.schema)
            counted -= pc.sum(old.column(places.ROWS)).as_py() or 0
            before = old.take(pa.array(places_of, mask=places_of < 0))
        else:
            counted -= db.execute(f"SELECT coalesce(sum(o.{places.ROWS}), 0) {join}").get
        # No key is equal to null, so those rows are replaced by hand.
        if any(rows.column(name).null_count for name in self.key):
            nulls = " OR ".join(f"n.{quoted(k)} IS NULL" for k in self.key)
            db.execute(
                f"DELETE FROM {self.name} WHERE rowid IN (SELECT o.rowid FROM {self._new} n "
                f"JOIN {self.name} o ON {self._match} WHERE {nulls})"
            )
        key = ", ".join(map(quoted, self.key))
        settled = {*map(quoted, self.key), quoted(WINDOW_END)}
        changes = ", ".join(f"{c} = excluded.{c}" for c in self._columns if c not in settled)
        db.execute(
            f"INSERT INTO {self.name} SELECT * FROM {self._new} WHERE true "
            f"ON CONFLICT ({key}) DO UPDATE SET {changes}"
        )
        db.execute(f"DELETE FROM {self._new}")
        return Merged(before, counted)

    def slices(self, rows: pa.Table) -> Iterator[pa.Table]:
        """Panes in portions that Python can hold as rows, and by key, as the table has them."""
        rows = rows.sort_by([(name, "ascending") for name in self._sortable])
        for first in range(0, rows.num_rows, _ROWS_AT_ONCE):
            yield rows.slice(first, _ROWS_AT_ONCE)

    def ended(self, db: apsw.Connection, after: int | None, upto: int | None) -> Iterator[pa.Table]:
        """The panes whose window ended after one moment and up to another."""
        if upto is None:
            return
        rows = db.execute(
            f"SELECT * FROM {self.name} WHERE {WINDOW_END} > ? AND {WINDOW_END} <= ? "
            f"ORDER BY {WINDOW_END}, {', '.join(map(quoted, self.key))}",
            (-(1 << 62) if after is None else after, upto),
        )
        while some := [tuple(row) for row in itertools.islice(rows, _ROWS_AT_ONCE)]:
            yield table_from(some, self.schema)

    @property
    def _new(self) -> str:
        return quoted(f"{PREFIX}new_{self._step.name}")

    def _select(self) -> str:
        lateness = self._aggregation.lateness
        delay, patience = micros(lateness.delay), micros(lateness.delay) + micros(lateness.grace)
        columns = ", ".join(
            f"{shown(quoted(field.name), field.type)} AS {quoted(field.name)}"
            for field in self.schema
            if field.name != places.ROWS
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
