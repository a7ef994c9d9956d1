"""Emission policies: which changes of panes the changelog and output topics get, and when."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

import apsw
import pyarrow as pa
import pyarrow.compute as pc

from headrace.clock import micros
from headrace.operators.window.emission.last_published import LastPublished
from headrace.operators.window.table import PaneTable
from headrace.pipeline.output import PANE, Output
from headrace.pipeline.time import WINDOW_END
from headrace.plan import metadata
from headrace.plan.steps import Step
from headrace.store import changelog
from headrace.store.keeper import Passage
from headrace.store.outbox import put

NEVER = -(1 << 62)


@dataclass(frozen=True)
class Turn:
    """A batch in event time: the windows it fires and closes, and the time of the log's clock."""

    watermark: Passage
    closed: Passage
    now: int

    @property
    def ts_ms(self) -> int:
        return self.now // 1_000


class Emission:
    """Publishes every change to a topic."""

    def __init__(self, topic: str) -> None:
        self.topic = topic

    def changed(self, db: apsw.Connection, early: pa.Table, late: pa.Table, turn: Turn) -> None:
        """Publish changed panes, of open windows (early) and of fired ones (late)."""
        self._say(db, early, "early", turn)
        self._say(db, late, "late", turn)

    def fired(self, db: apsw.Connection, panes: pa.Table, turn: Turn) -> None:
        """Publish panes whose windows fire now."""
        self._say(db, panes, "on time", turn)

    def final(self, db: apsw.Connection, panes: pa.Table, turn: Turn) -> None:
        """Publish panes that are final."""
        self._say(db, panes, "final", turn)

    def gone(self, db: apsw.Connection, panes: pa.Table, turn: Turn) -> None:
        """Publish retractions of panes."""
        self._say(db, panes, "retracted", turn)

    def _say(self, db: apsw.Connection, panes: pa.Table, pane: str, turn: Turn) -> None:
        if panes.num_rows:
            put(db, self.topic, named(panes, pane))


class SelectiveEmission(Emission):
    """Publishes according to an output's options, and stores the last published version."""

    def __init__(self, output: Output, step: Step, table: PaneTable) -> None:
        super().__init__(output.topic)
        self._output = output
        self._kinds = table.schema
        self.published = LastPublished(step, output.topic, table)

    def changed(self, db: apsw.Connection, early: pa.Table, late: pa.Table, turn: Turn) -> None:
        match self._output.early:
            case "never":
                pass
            case "batch":
                self._say(db, early, "early", turn)
            case rule:
                self._choose(db, early, rule, turn)
        self._say(db, late, "late", turn)

    def gone(self, db: apsw.Connection, panes: pa.Table, turn: Turn) -> None:
        published = self.published.remove(db, panes)
        super()._say(db, published.select(self._kinds.names), "retracted", turn)

    def overdue(self, db: apsw.Connection, turn: Turn) -> None:
        """Publish changes that had to wait and are due."""
        if not isinstance(self._output.early, timedelta):
            return
        since = turn.now - micros(self._output.early)
        after = NEVER if turn.watermark.after is None else turn.watermark.after
        while (panes := self.published.waiting(db, since, after)).num_rows:
            self._say(db, panes, "early", turn)

    def forget(self, db: apsw.Connection, turn: Turn) -> None:
        """Forget panes that cannot change again."""
        self.published.forget(db, turn.closed.after)

    def _choose(
        self, db: apsw.Connection, panes: pa.Table, rule: int | timedelta, turn: Turn
    ) -> None:
        """Publish panes with enough new rows, or with no publication for long enough."""
        if not panes.num_rows:
            return
        published = self.published.find(db, panes)
        if isinstance(rule, timedelta):
            new = pc.is_null(published.column(metadata.REVISION))
            self._say(db, panes.filter(new), "early", turn)
            # The others are published by `overdue` once their time has come.
            self.published.wait(db, panes.filter(pc.invert(new)))
        else:
            known = pc.fill_null(published.column(metadata.ROWS), 0)
            more = pc.subtract(panes.column(metadata.ROWS), known)
            self._say(db, panes.filter(pc.greater_equal(more, rule)), "early", turn)

    def _say(self, db: apsw.Connection, panes: pa.Table, pane: str, turn: Turn) -> None:
        if not panes.num_rows:
            return
        if self._output.retractions:
            published = self.published.find(db, panes)
            known = published.filter(pc.is_valid(published.column(metadata.REVISION)))
            super()._say(db, known.select(self._kinds.names), "retracted", turn)
        self.published.tell(db, panes, turn.now)
        super()._say(db, panes, pane, turn)


def named(panes: pa.Table, pane: str) -> pa.Table:
    """Panes as a topic has them, each with its kind: early, on time, late, final."""
    return changelog.publish(panes).append_column(PANE, pa.repeat(pane, panes.num_rows))


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
        """True if any topic gets panes."""
        return bool(self._emissions or self._changelog)

    def enter(self, db: apsw.Connection, closed: int | None, spoken: Iterable[str]) -> None:
        """Prepare the stored versions of each topic, given the topics written to before."""
        known = set(spoken)
        for emission in self._emissions:
            if isinstance(emission, SelectiveEmission):
                emission.published.enter(db, closed, spoken=emission.topic in known)
            else:
                LastPublished(self._step, emission.topic, self._table).drop(db)

    def updates(self, db: apsw.Connection, rows: pa.Table, before: pa.Table, turn: Turn) -> None:
        """Publish changed panes, except those that fire now."""
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
        """Publish final panes."""
        if self.wanted:
            for rows in panes:
                self._changes(db, rows, None, turn)
                for emission in self._emissions:
                    emission.final(db, rows, turn)

    def settle(self, db: apsw.Connection, turn: Turn) -> None:
        """Publish overdue panes, and forget those that cannot change again."""
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
