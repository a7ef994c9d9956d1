"""Read an application's database, while a run may be writing to it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from headrace.clock import micros
from headrace.closing import Closing
from headrace.errors import ViewError
from headrace.operators.registry import operator_of
from headrace.pipeline.time import WINDOW_END
from headrace.plan import metadata
from headrace.plan.batch import Timing
from headrace.plan.law import Law
from headrace.plan.position import Position, positions_from_json
from headrace.plan.steps import Step
from headrace.sqlite import Link, connect
from headrace.store.location import app_folder, views_folder
from headrace.store.sqlite.database import APPLICATION, PREFIX, failures, panes_of, rows_of
from headrace.store.sqlite.stored import read_only
from headrace.store.sqlite.values import quoted

_PATIENCE = 10.0
_LAST = 200


@dataclass(frozen=True)
class BatchLaw:
    """The last commit of each topic in a batch, and the account of its rows."""

    commits: dict[str, int]
    law: Law


@dataclass(frozen=True)
class Record:
    """The progress of a step, the account of its rows, and its last batches."""

    reached: dict[str, Position]
    frontier: int | None
    law: Law
    fingerprint: str
    laws: tuple[BatchLaw, ...]
    timings: tuple[Timing, ...]


@dataclass(frozen=True)
class Held:
    """The state of a step, which may still change. Times are microseconds.

    `oldest` is the end of the oldest open window, and `closes` the highest event time that closes
    it. `fires` is the end of the next window to fire.
    """

    panes: int = 0
    rows: int = 0
    oldest: int | None = None
    closes: int | None = None
    fires: int | None = None
    shown: int = 0
    """Panes that are visible in the view."""
    table_bytes: int = 0
    state_bytes: int = 0
    """The size of Spark's state, in its checkpoint."""


class Records(Closing):
    """The database of one application, read-only."""

    def __init__(self, url: str, app: str) -> None:
        self._path = views_folder(url) / f"{app}.db"
        self._checkpoints = app_folder(url, app) / "checkpoints"
        self._failures = failures(self._path, _PATIENCE)
        self._there = self._path.exists()
        self._link = Link("The database", self._connect, patience=_PATIENCE)
        if self._rows("PRAGMA application_id") not in ([], [(APPLICATION,)]):
            self._link.close()
            raise ViewError(f"{self._path} does not hold views", hint="Move it away and run again")

    def _connect(self) -> apsw.Connection:
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        return connect(read_only(self._path), _PATIENCE, flags=flags)

    def close(self) -> None:
        self._link.close()

    def steps(self) -> dict[str, int | None]:
        """The steps that have run, each with the delay of its watermark if it has a view."""
        return dict(
            self._rows(
                f"SELECT s.name, v.delay FROM {PREFIX}step s "
                f"LEFT JOIN {PREFIX}view v ON v.step = s.name ORDER BY s.name"
            )
        )

    def as_of(self, step: str, commit: int) -> tuple[dict[str, Position], Law] | None:
        """The position and the law of a step after its batches up to a commit of the log.

        Before its first batch, there are no positions. None if its older batches are not kept.
        """
        found = self._rows(f"SELECT law FROM {PREFIX}step WHERE name = ?", step)
        if not found:
            return {}, Law()
        law = Law(**json.loads(found[0][0]))
        for reached, terms in self._rows(
            f"SELECT reached, law FROM {PREFIX}law WHERE step = ? ORDER BY id DESC", step
        ):
            places = positions_from_json(reached)
            if all(place.commit <= commit for place in places.values()):
                return dict(places), law
            law -= Law(**json.loads(terms))
        return ({}, law) if law == Law() else None

    def of(self, step: str) -> Record | None:
        """The record of a step; None if it has never run."""
        found = self._rows(
            f"SELECT reached, frontier, law, fingerprint FROM {PREFIX}step WHERE name = ?", step
        )
        if not found:
            return None
        ((reached, frontier, law, fingerprint),) = found
        return Record(
            positions_from_json(reached),
            frontier,
            Law(**json.loads(law)),
            fingerprint,
            tuple(self._laws(step)),
            tuple(self._timings(step)),
        )

    def held(self, step: Step, frontier: int | None) -> Held:
        """The state of a step at a frontier."""
        if step.stream.changes_rows:
            return self._tables(step)
        table, panes = panes_of(step.name), operator_of(step.computed).panes(step.computed)
        state = _bytes_in(self._checkpoints / step.name / "state")
        if panes is None or not self._has(table):
            return Held(state_bytes=state)
        patience = micros(panes.delay + panes.grace + panes.settles)
        past = -(1 << 62) if frontier is None else frontier
        ((open_panes, rows, oldest),) = self._rows(
            f"SELECT count(*), coalesce(sum({metadata.ROWS}), 0), min({WINDOW_END}) "
            f"FROM {quoted(table)} WHERE {WINDOW_END} > ?",
            past - patience,
        )
        ((fires,),) = self._rows(
            f"SELECT min({WINDOW_END}) FROM {quoted(table)} WHERE {WINDOW_END} > ?",
            past - micros(panes.delay),
        )
        ((every,),) = self._rows(f"SELECT count(*) FROM {quoted(table)}")
        ((size,),) = self._rows(
            "SELECT coalesce(sum(pgsize), 0) FROM dbstat WHERE aggregate = TRUE AND name IN (?, ?)",
            table,
            f"{PREFIX}open_{step.name}",
        )
        closes = None if oldest is None else oldest + patience
        shown = every - open_panes if panes.emitted_once else every
        return Held(open_panes, rows, oldest, closes, fires, shown, size, state)

    def _tables(self, step: Step) -> Held:
        """The state of joined tables, which never close."""
        if not self._has(rows_of(step.name)):
            return Held()
        ((shown,),) = self._rows(f"SELECT count(*) FROM {quoted(rows_of(step.name))}")
        ((size,),) = self._rows(
            "SELECT coalesce(sum(s.pgsize), 0) FROM dbstat s JOIN sqlite_schema t USING (name) "
            "WHERE s.aggregate = TRUE AND t.tbl_name GLOB ?",
            f"{PREFIX}side[0-9]*_{step.name}",
        )
        return Held(shown=shown, table_bytes=size)

    def _laws(self, step: str) -> Iterator[BatchLaw]:
        for reached, law in reversed(
            self._rows(
                f"SELECT reached, law FROM {PREFIX}law WHERE step = ? ORDER BY id DESC LIMIT ?",
                step,
                _LAST,
            )
        ):
            commits = {topic: place["commit"] for topic, place in json.loads(reached).items()}
            yield BatchLaw(commits, Law(**json.loads(law)))

    def _timings(self, step: str) -> Iterator[Timing]:
        if not self._has(f"{PREFIX}timing"):  # it has not run since this table exists
            return
        for (timing,) in reversed(
            self._rows(
                f"SELECT timing FROM {PREFIX}timing WHERE step = ? ORDER BY id DESC LIMIT ?",
                step,
                _LAST,
            )
        ):
            yield Timing(**json.loads(timing))

    def _has(self, table: str) -> bool:
        return bool(self._rows("SELECT 1 FROM sqlite_schema WHERE name = ?", table))

    def _rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        if not self._there:
            return []
        with self._failures.translated(), self._link as db:
            return [tuple(row) for row in db.execute(sql, values)]


def _bytes_in(folder: Path) -> int:
    """The bytes of all files in a folder. Files may disappear meanwhile."""
    found = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            found += path.stat().st_size if path.is_file() else 0
    return found
