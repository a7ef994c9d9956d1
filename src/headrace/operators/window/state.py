"""The panes of an aggregation in the store: its view, its outputs, and its open sessions."""

from __future__ import annotations

from collections.abc import Sequence

import apsw
import pyarrow as pa
import pyarrow.compute as pc

from headrace.clock import micros
from headrace.operators.window.declare import Aggregation
from headrace.operators.window.emission.policy import Publisher, Turn
from headrace.operators.window.payload import Panes, PaneShapes
from headrace.operators.window.table import Merged, PaneTable, without
from headrace.pipeline.time import WINDOW_END, WINDOW_START
from headrace.plan import metadata
from headrace.plan.batch import StepBatch
from headrace.plan.law import Law
from headrace.plan.steps import Step
from headrace.store import changelog
from headrace.store.keeper import Keeper, Passage, Stored
from headrace.store.sqlite.database import PREFIX
from headrace.store.sqlite.values import (
    check_storable,
    create_table,
    fill_temporary,
    insert,
    quoted,
    table_from,
)


class OpenSessions:
    """Open sessions by key and start. Sessions that cannot change any more are removed."""

    def __init__(self, step: Step, schema: pa.Schema) -> None:
        assert isinstance(step.computed, Aggregation)
        check_storable(schema, f"step {step.name!r}")
        self.schema = schema
        self._name = quoted(f"{PREFIX}open_{step.name}")
        self._index = quoted(f"{PREFIX}open_ends_{step.name}")
        self._wanted = quoted(f"{PREFIX}wanted_{step.name}")
        self._key = list(step.computed.view_key)
        self._by = " AND ".join(
            ["true", *(f"o.{quoted(k)} IS n.{quoted(k)}" for k in step.computed.by)]
        )

    def create(self, db: apsw.Connection) -> None:
        """Create the table."""
        create_table(db, self._name, self.schema, self._key, rowid=True)
        db.execute(f"CREATE INDEX {self._index} ON {self._name} ({WINDOW_END})")

    def overlapping(self, db: apsw.Connection, sessions: pa.Table) -> pa.Table:
        """The open sessions that overlap any of these, of the same key."""
        fill_temporary(db, self._wanted, sessions.select([*self._key, WINDOW_END]))
        rows = db.execute(
            f"SELECT * FROM {self._name} WHERE rowid IN "
            f"(SELECT o.rowid FROM {self._wanted} n JOIN {self._name} o ON {self._by} "
            f"AND o.{WINDOW_START} < n.{WINDOW_END} AND o.{WINDOW_END} > n.{WINDOW_START})"
        )
        return table_from(list(rows), self.schema)

    def replace(self, db: apsw.Connection, gone: pa.Table, held: pa.Table) -> None:
        """Replace the merged sessions by the sessions that they became."""
        fill_temporary(db, self._wanted, gone.select([*self._key, WINDOW_END]))
        same = f"{self._by} AND o.{WINDOW_START} = n.{WINDOW_START}"
        db.execute(
            f"DELETE FROM {self._name} WHERE rowid IN "
            f"(SELECT o.rowid FROM {self._wanted} n JOIN {self._name} o ON {same})"
        )
        insert(db, self._name, held)

    def forget(self, db: apsw.Connection, closed: int | None) -> None:
        """Remove the sessions that ended so long ago that no row can join them."""
        if closed is not None:
            db.execute(f"DELETE FROM {self._name} WHERE {WINDOW_END} <= ?", (closed,))


class PaneKeeper(Keeper):
    """Panes in a table that readers see."""

    def __init__(self, stored: Stored) -> None:
        step, shapes = stored.step, stored.shapes
        assert isinstance(step.computed, Aggregation)
        assert isinstance(shapes, PaneShapes)
        self._aggregation = made = step.computed
        self._log = stored.log
        self._crash_point = stored.crash_point
        self._table = PaneTable(step, shapes.rows)
        self._sessions = (
            OpenSessions(step, shapes.sessions) if shapes.sessions is not None else None
        )
        self._shown = self._show(stored)
        self._publisher = Publisher(step, stored.changelog, self._shown)
        self._updates = made.emit == "updates"
        self.schema = self._shown.schema
        self.view_terms = (made.emit, micros(made.lateness.delay), micros(made.lateness.grace))

    def _show(self, stored: Stored) -> PaneTable:
        """The table that readers see."""
        return self._table

    def create(self, db: apsw.Connection) -> None:
        self._table.create(db)
        if self._sessions is not None:
            self._sessions.create(db)

    def enter(self, db: apsw.Connection, frontier: int | None, spoken: Sequence[str]) -> None:
        """Prepare the stored versions of the outputs, whose options may have changed."""
        turn = self._turn(Passage(frontier, frontier), 0)
        self._publisher.enter(db, turn.closed.after, spoken)

    def recall(self, db: apsw.Connection, request: pa.Table | None) -> pa.Table:
        """The open sessions, in parts, that overlap those of a request."""
        assert self._sessions is not None
        assert request is not None
        return self._sessions.overlapping(db, request)

    def store(self, db: apsw.Connection, batch: StepBatch[Panes], passage: Passage) -> Law:
        turn = self._turn(passage, batch.moment(self._log))
        counted = self._replace_sessions(db, batch.payload, turn)
        for rows in self._table.slices(batch.payload.rows):
            merged = self._table.merge(db, rows, remember=self._remembers)
            counted += merged.counted
            self._changed(db, rows, merged, turn)
        self._all_changed(db, turn)
        self._crash_point("stored panes")
        if self._updates:
            self._publisher.fired(db, self._shown.ended(db, *turn.watermark.span), turn)
            self._publisher.settle(db, turn)
        else:
            self._publisher.final(db, self._shown.ended(db, *turn.closed.span), turn)
        return Law(counted=counted)

    # Hooks for subclasses that show something else than the panes

    @property
    def _remembers(self) -> bool:
        """True if panes are compared with their previous values."""
        return self._updates and self._publisher.wanted

    def _changed(self, db: apsw.Connection, rows: pa.Table, merged: Merged, turn: Turn) -> None:
        """Publish panes that have changed."""
        if merged.before is not None:
            changed = changelog.changed_rows(rows, merged.before)
            before = merged.before.filter(changed)
            self._publisher.updates(db, rows.filter(changed), before, turn)

    def _all_changed(self, db: apsw.Connection, turn: Turn) -> None:
        """Called when all panes of a batch are in the table."""

    def _gone(self, db: apsw.Connection, panes: pa.Table, turn: Turn) -> None:
        """Publish retractions of panes that were merged into others."""
        if self._updates:
            self._publisher.retracted(db, panes, turn)

    def _turn(self, passage: Passage, now: int) -> Turn:
        """The windows that the frontier fires and closes in this batch."""
        aggregation = self._aggregation
        watermark = passage.less(micros(aggregation.lateness.delay))
        settled = micros(aggregation.lateness.grace + aggregation.window.settles)
        return Turn(watermark, watermark.less(settled), now)

    def _replace_sessions(self, db: apsw.Connection, found: Panes, turn: Turn) -> int:
        """Store open sessions and remove merged ones; returns minus the rows of the removed.

        A session that grew replaces its earlier version under the same key.
        """
        if self._sessions is None or found.sessions is None:
            return 0
        parts, replaced = found.sessions.parts, found.sessions.replaced
        self._sessions.replace(db, replaced, parts)
        self._sessions.forget(db, turn.closed.after)
        gone = self._table.remove(db, without(replaced, found.rows, self._table.key))
        self._gone(db, gone, turn)
        return -(pc.sum(gone.column(metadata.ROWS)).as_py() or 0)


keeper = PaneKeeper
