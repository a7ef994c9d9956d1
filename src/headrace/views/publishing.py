"""What a step tells the world of its panes: its changelog, and the topics it is published to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import apsw
import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.steps import Step
from headrace.streams.stream import WINDOW_END
from headrace.views import changelog
from headrace.views.outbox import put

PANE = "pane"
"""The column of published updates that says whether its window was still open, and so on."""

_NEVER = -(1 << 62)


@dataclass(frozen=True)
class Passage:
    """How far event time has come with a batch: the frontier before it and after it."""

    before: int | None
    after: int | None

    def less(self, span: int) -> Passage:
        """Both, so much earlier."""
        return Passage(*(None if f is None else f - span for f in (self.before, self.after)))


class Publisher:
    """Puts panes into the outbox, for one step."""

    def __init__(self, step: Step, changelog: str | None) -> None:
        self._step = step
        self._changelog = changelog

    @property
    def wanted(self) -> bool:
        """Whether anybody is told anything."""
        return bool(self._step.outputs or self._changelog)

    def updates(
        self,
        db: apsw.Connection,
        rows: pa.Table,
        before: pa.Table,
        watermark: Passage,
        ts_ms: int,
    ) -> None:
        """Publish panes that have changed, but for those that fire now."""
        self._changes(db, rows, before, ts_ms)
        if not self._step.outputs:
            return
        changed = rows.filter(changelog.changed_rows(rows, before))
        ends = changed.column(WINDOW_END).cast(pa.int64())
        early = pc.greater(ends, _NEVER if watermark.after is None else watermark.after)
        late = pc.less_equal(ends, _NEVER if watermark.before is None else watermark.before)
        self._panes(db, changed.filter(early), "early")
        self._panes(db, changed.filter(late), "late")

    def retracted(self, db: apsw.Connection, panes: pa.Table, ts_ms: int) -> None:
        """Publish that panes are no more: they have become part of others."""
        view = self._step.view
        if self._changelog is not None and view is not None:
            made = changelog.deletions(self._step.app, view.name, view.key, panes, ts_ms)
            put(db, self._changelog, made)
        self._panes(db, panes, "retracted")

    def fired(self, db: apsw.Connection, panes: Iterable[pa.Table]) -> None:
        """Publish panes whose windows have reached their end, changed or not."""
        for rows in panes:
            self._panes(db, rows, "on time")

    def final(self, db: apsw.Connection, panes: Iterable[pa.Table], ts_ms: int) -> None:
        """Publish panes that nothing can change any more."""
        for rows in panes:
            self._changes(db, rows, None, ts_ms)
            for topic in self._step.outputs:
                put(db, topic, changelog.publish(rows))

    def _panes(self, db: apsw.Connection, rows: pa.Table, pane: str) -> None:
        if rows.num_rows:
            named = changelog.publish(rows).append_column(PANE, pa.repeat(pane, rows.num_rows))
            for topic in self._step.outputs:
                put(db, topic, named)

    def _changes(
        self,
        db: apsw.Connection,
        rows: pa.Table,
        before: pa.Table | None,
        ts_ms: int,
    ) -> None:
        view = self._step.view
        if self._changelog is not None and view is not None and rows.num_rows:
            made = changelog.changes(self._step.app, view.name, view.key, rows, before, ts_ms)
            put(db, self._changelog, made)
