"""A receipt of a crash: what the restarted pipeline stored, against a recount from the log.

The recount reads the rows of the log again, up to the position that the results have, and the
oracle computes from them what each view should hold.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from headrace.application.show import by_oracle, inputs_of
from headrace.errors import HeadraceError
from headrace.log import Commit, Log
from headrace.log.sample import Sample
from headrace.operators.window.declare import Aggregation
from headrace.oracle.excerpt import excerpt_of
from headrace.oracle.expressions import BeyondOracle
from headrace.pipeline.app import App, View
from headrace.pipeline.stream import Stream
from headrace.plan.law import Law
from headrace.plan.position import Position, Positions, positions_from_json
from headrace.plan.steps import Step, steps_of
from headrace.schema.python_rows import to_rows
from headrace.store.location import database_of
from headrace.store.sqlite import typed
from headrace.store.sqlite.database import PREFIX
from headrace.store.sqlite.stored import reading
from headrace.store.sqlite.values import quoted

MOST = 200_000
"""Rows that the oracle recounts in some seconds, in memory."""
_PAGE = 10_000
_INEXACT = {"approx_distinct", "approx_top", "quantile", "expression"}
"""Aggregates whose last digits depend on the order of rows, or that estimate."""

Row = dict[str, Any]


@dataclass(frozen=True)
class StepReceipt:
    """A step: rows in the log up to its position, and rows that its results account for."""

    step: str
    commit: int
    in_log: int
    accounted: int
    law: Law
    view: str = ""
    results: int | None = None
    """Rows of its view that were compared with the oracle's."""
    differ: int = 0
    missing: int = 0
    extra: int = 0
    example: str = ""
    """The first difference."""
    note: str = ""
    """The parts that were not compared, each with the reason."""

    @property
    def lost(self) -> int:
        return max(0, self.in_log - self.accounted)

    @property
    def duplicated(self) -> int:
        return max(0, self.accounted - self.in_log)

    @property
    def holds(self) -> bool:
        wrong = self.lost or self.duplicated or self.differ or self.missing or self.extra
        return not wrong and self.law.holds


@dataclass(frozen=True)
class Receipt:
    """The receipts of all steps of an application."""

    steps: tuple[StepReceipt, ...]

    @property
    def lost(self) -> int:
        return sum(step.lost for step in self.steps)

    @property
    def duplicated(self) -> int:
        return sum(step.duplicated for step in self.steps)

    @property
    def holds(self) -> bool:
        return all(step.holds for step in self.steps)


@dataclass(frozen=True)
class _Stored:
    """A step in one snapshot of the database."""

    begun: Positions
    reached: Positions
    law: Law
    rows: list[Row] | None


def receipt(app: App, log: Log, *, most: int = MOST) -> Receipt:
    """Recount what an application has stored. It may be running."""
    return Receipt(tuple(_step(log, step, most) for step in steps_of(app)))


def _step(log: Log, step: Step, most: int) -> StepReceipt:
    stored = _snapshot(log, step)
    samples = tuple(
        _rows(log, name, stored.begun.get(name), place, most)
        for name, place in stored.reached.items()
    )
    in_log = sum(sample.total for sample in samples)
    found = StepReceipt(
        step.name,
        max((place.commit for place in stored.reached.values()), default=0),
        in_log,
        stored.law.rows - stored.law.compacted,
        stored.law,
    )
    if step.view is None or stored.rows is None:
        return found
    return _compared(found, step.view, stored.rows, samples, most)


def _compared(
    found: StepReceipt, view: View, rows: list[Row], samples: tuple[Sample, ...], most: int
) -> StepReceipt:
    """The receipt with what the oracle says of a view."""

    noted = partial(replace, found, view=view.name)
    if any(sample.total > sample.rows for sample in samples):
        return noted(note=f"rows counted, results not compared: more than {most:,} rows")
    names = {sample.topic.name for sample in samples}
    if missing := {source.topic.name for source in inputs_of(view.stream)} - names:
        return noted(note=f"results not compared: it reads {', '.join(sorted(missing))} indirectly")
    try:
        expected = by_oracle(view.stream, excerpt_of(samples))
    except (BeyondOracle, HeadraceError) as error:
        return noted(note=f"results not compared: {error}")
    inexact = _inexact(view.stream)
    columns = [name for name in view.stream.columns if name not in inexact]
    mine, theirs = _by_key(rows, view.key), _by_key(expected, view.key)
    differ = [
        key
        for key in mine.keys() & theirs.keys()
        if not all(_same(mine[key][name], theirs[key][name]) for name in columns)
    ]
    missing_keys, extra = theirs.keys() - mine.keys(), mine.keys() - theirs.keys()
    wrong = next(iter(sorted(map(repr, [*differ, *missing_keys, *extra]))), "")
    return noted(
        results=len(rows),
        differ=len(differ),
        missing=len(missing_keys),
        extra=len(extra),
        example=wrong,
        note=f"estimates are not compared: {', '.join(sorted(inexact))}" if inexact else "",
    )


def _snapshot(log: Log, step: Step) -> _Stored:
    """A step's position, law and view, all of the same moment."""
    with reading(database_of(log.home, step.app)) as db:
        found = list(
            db.execute(f"SELECT begun, reached, law FROM {PREFIX}step WHERE name = ?", (step.name,))
        )
        if not found:
            return _Stored({}, {}, Law(), None)
        ((begun, reached, law),) = found
        rows = None
        if step.view is not None:
            sql = f"SELECT columns FROM {PREFIX}view WHERE name = ?"
            declared = dict(json.loads(str(db.execute(sql, (step.view.name,)).get)))
            names = [
                str(name)
                for _, name, *_ in db.execute(f"PRAGMA table_xinfo({quoted(step.view.name)})")
            ]
            schema = typed.schema_of(names, declared)
            cursor = db.execute(f"SELECT * FROM {quoted(step.view.name)}")
            rows = [row for batch in typed.batches(cursor, schema) for row in to_rows(batch)]
    return _Stored(
        positions_from_json(str(begun)),
        positions_from_json(str(reached)),
        Law(**json.loads(str(law))),
        rows,
    )


def _rows(log: Log, name: str, begun: Position | None, reached: Position, most: int) -> Sample:
    """The rows of a topic between two positions, counted; and read if there are not too many."""
    after = 0 if begun is None else begun.commit
    commits, last = [], after
    while page := log.commits(name, last, _PAGE):
        commits += [commit for commit in page if commit.number <= reached.commit]
        last = page[-1].number
        if last >= reached.commit:
            break
    total = sum(commit.rows for commit in commits)
    batches = (
        tuple(log.read(name, start=Commit(after), stop=Commit(reached.commit)))
        if commits and total <= most
        else ()
    )
    counted = sum(len(batch) for batch in batches) if batches else total
    return Sample(log.topic(name).topic, counted, tuple(commits), batches)


def _inexact(stream: Stream) -> set[str]:
    made = stream.computed
    if not isinstance(made, Aggregation):
        return set()
    return {name for name, aggregate in made.aggregates if aggregate.kind in _INEXACT}


def _by_key(rows: Sequence[Row], key: Sequence[str]) -> Mapping[tuple[Any, ...], Row]:
    return {tuple(row[name] for name in key): row for row in rows}


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9) or (math.isnan(one) and math.isnan(other))
    return bool(one == other)
