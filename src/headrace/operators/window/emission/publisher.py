"""Publishing of panes: to the changelog of the view, and to output topics."""

from __future__ import annotations

from collections.abc import Iterable

import apsw
import pyarrow as pa
import pyarrow.compute as pc

from headrace.operators.window.emission.last_published import LastPublished
from headrace.operators.window.emission.policy import NEVER, Emission, SelectiveEmission, Turn
from headrace.operators.window.table import PaneTable
from headrace.pipeline.time import WINDOW_END
from headrace.plan.steps import Step
from headrace.store import changelog
from headrace.store.outbox import put


class Publisher:
    """Puts the panes of one step into the outbox."""

    def __init__(self, step: Step, changelog: str | None, table: PaneTable) -> None:
        self._step = step
        self._changelog = changelog
        self._table = table
        selective = {
            output.topic: SelectiveEmission(output, step, table) for output in step.selective
        }
        self._selective = tuple(selective.values())
        self._emissions = tuple(selective.get(topic) or Emission(topic) for topic in step.outputs)

    @property
    def wanted(self) -> bool:
        """True if anything is published at all."""
        return bool(self._emissions or self._changelog)

    def enter(self, db: apsw.Connection, closed: int | None, spoken: Iterable[str]) -> None:
        """Prepare what is remembered of each topic, given those that were written to already."""
        known = set(spoken)
        for emission in self._emissions:
            if isinstance(emission, SelectiveEmission):
                emission.told.enter(db, closed, spoken=emission.topic in known)
            else:
                LastPublished(self._step, emission.topic, self._table).drop(db)

    def updates(self, db: apsw.Connection, rows: pa.Table, before: pa.Table, turn: Turn) -> None:
        """Publish panes that have changed, but for those that fire now."""
        self._changes(db, rows, before, turn)
        if not self._emissions or not rows.num_rows:
            return
        watermark = turn.watermark
        ends = rows.column(WINDOW_END).cast(pa.int64())
        early = pc.greater(ends, NEVER if watermark.after is None else watermark.after)
        late = pc.less_equal(ends, NEVER if watermark.before is None else watermark.before)
        still_open, amended = rows.filter(early), rows.filter(late)
        for emission in self._emissions:
            emission.changed(db, still_open, amended, turn)

    def retracted(self, db: apsw.Connection, panes: pa.Table, turn: Turn) -> None:
        """Publish retractions of panes that were merged into others."""
        view = self._step.view
        if not panes.num_rows:
            return
        if self._changelog is not None and view is not None:
            made = changelog.deletions(self._step.app, view.name, view.key, panes, turn.ts_ms)
            put(db, self._changelog, made)
        for emission in self._emissions:
            emission.gone(db, panes, turn)

    def fired(self, db: apsw.Connection, panes: Iterable[pa.Table], turn: Turn) -> None:
        """Publish panes whose windows have reached their end, changed or not."""
        if self._emissions:
            for rows in panes:
                for emission in self._emissions:
                    emission.fired(db, rows, turn)

    def final(self, db: apsw.Connection, panes: Iterable[pa.Table], turn: Turn) -> None:
        """Publish panes that nothing can change any more."""
        if self.wanted:
            for rows in panes:
                self._changes(db, rows, None, turn)
                for emission in self._emissions:
                    emission.final(db, rows, turn)

    def settle(self, db: apsw.Connection, turn: Turn) -> None:
        """Publish what is overdue, and forget what cannot change again."""
        for emission in self._selective:
            emission.overdue(db, turn)
            emission.forget(db, turn)

    def _changes(
        self, db: apsw.Connection, rows: pa.Table, before: pa.Table | None, turn: Turn
    ) -> None:
        view = self._step.view
        if self._changelog is not None and view is not None and rows.num_rows:
            made = changelog.changes(self._step.app, view.name, view.key, rows, before, turn.ts_ms)
            put(db, self._changelog, made)
