"""Keeps the panes of an aggregation: its view, what is published of it, and its open sessions."""

from __future__ import annotations

from collections.abc import Sequence

import apsw
import pyarrow as pa
import pyarrow.compute as pc

from headrace.clock import micros
from headrace.log import Log
from headrace.operators.top.state import SlotTable
from headrace.operators.window.emission.policy import Passage, Turn
from headrace.operators.window.emission.publisher import Publisher
from headrace.operators.window.session.state import OpenSessions
from headrace.operators.window.table import PaneTable, without
from headrace.plan import metadata
from headrace.plan.batch import Portion, Shapes
from headrace.plan.crash_points import Reach
from headrace.plan.law import Law
from headrace.plan.steps import Step
from headrace.store import changelog
from headrace.store.keeper import Keeper


class PaneKeeper(Keeper):
    """Panes in a table, and of a ranking the places beside them."""

    def __init__(
        self, step: Step, shapes: Shapes, log: Log, changes: str | None, reach: Reach
    ) -> None:
        assert step.aggregation is not None
        self._step = step
        self._aggregation = step.aggregation
        self._log = log
        self._reach = reach
        self._table = PaneTable(step, shapes.rows)
        self._sessions = (
            OpenSessions(step, shapes.sessions) if shapes.sessions is not None else None
        )
        self._slots = SlotTable(step, self._table) if step.top else None
        self._shown = self._slots or self._table
        self._publisher = Publisher(step, changes, self._shown)
        self.schema = self._shown.schema

    def create(self, db: apsw.Connection) -> None:
        self._table.create(db)
        if self._slots is not None:
            self._slots.create(db)
        if self._sessions is not None:
            self._sessions.create(db)

    def enter(self, db: apsw.Connection, frontier: int | None, spoken: Sequence[str]) -> None:
        """Make ready what is remembered of the outputs, which may have wanted less before."""
        turn = self._turn(Passage(frontier, frontier), 0)
        self._publisher.enter(db, turn.closed.after, spoken)

    def overlapping(self, db: apsw.Connection, sessions: pa.Table) -> pa.Table:
        assert self._sessions is not None
        return self._sessions.overlapping(db, sessions)

    def store(self, db: apsw.Connection, portion: Portion, passage: Passage) -> Law:
        publisher, shown = self._publisher, self._shown
        turn = self._turn(passage, portion.moment(self._log))
        updates = self._aggregation.emit == "updates"
        counted = self._replace_sessions(db, portion, turn)
        remember = updates and publisher.wanted and self._slots is None
        for rows in self._table.slices(portion.rows):
            merged = self._table.merge(db, rows, remember=remember)
            counted += merged.counted
            if merged.before is not None:
                changed = changelog.changed_rows(rows, merged.before)
                publisher.updates(db, rows.filter(changed), merged.before.filter(changed), turn)
            if self._slots is not None:
                self._slots.touch(db, rows)
        if self._slots is not None:
            ranked = self._slots.rank(db, turn)
            self._table.forget(db, turn.closed.after)
            if updates:
                publisher.retracted(db, ranked.gone, turn)
                publisher.updates(db, ranked.rows, ranked.before, turn)
        self._reach("stored panes")
        if updates:
            publisher.fired(db, shown.ended(db, *turn.watermark.span), turn)
            publisher.settle(db, turn)
        else:
            publisher.final(db, shown.ended(db, *turn.closed.span), turn)
        return Law(counted=counted)

    def _turn(self, passage: Passage, now: int) -> Turn:
        """What it means for windows that the frontier has come so far."""
        aggregation = self._aggregation
        watermark = passage.less(micros(aggregation.lateness.delay))
        settled = micros(aggregation.lateness.grace + aggregation.window.settles)
        return Turn(watermark, watermark.less(settled), now)

    def _replace_sessions(self, db: apsw.Connection, portion: Portion, turn: Turn) -> int:
        """Keep the open sessions, and take away what is now part of others; returns minus its rows.

        What a session was before it grew stays in the table under its key, and is merged with.
        """
        if self._sessions is None or portion.sessions is None:
            return 0
        parts, replaced = portion.sessions.parts, portion.sessions.replaced
        self._sessions.replace(db, replaced, parts)
        self._sessions.forget(db, turn.closed.after)
        gone = self._table.remove(db, without(replaced, portion.rows, self._table.key))
        if self._slots is not None:
            self._slots.touch(db, gone)
        elif self._aggregation.emit == "updates":
            self._publisher.retracted(db, gone, turn)
        return -(pc.sum(gone.column(metadata.ROWS)).as_py() or 0)
