"""Events that are missing after a schema change.

The log has no history of the producers' schemas, so this compares the rows before and after a
commit: a column that had values in nearly all rows before it and in hardly any after it, or event
times that are rejected from it on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from headrace.application.doctor.finding import Finding, percent, when
from headrace.application.doctor.records import Record
from headrace.log.event_time import time_inputs
from headrace.log.sample import Sample
from headrace.pipeline.row_steps import needed_columns
from headrace.plan.steps import Step
from headrace.wording import many

_BEFORE, _AFTER = 0.05, 0.9
_ENOUGH = 10
"""Minimum number of rows before and after the change."""

Counts = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(frozen=True)
class Turn:
    """A commit at which the share of faulty rows changed."""

    commit: int
    moment: int
    before: float
    after: float
    rows: int
    """The rows since then."""


@dataclass(frozen=True)
class MissingEvents(Finding):
    """A change of a column of a topic, and its effect on a step.

    `instead` is a column that has values since the same commit, and had none before.
    """

    name = "events missing after a schema change"
    topic: str
    column: str
    fault: str
    turn: Turn
    effects: tuple[str, ...]
    lost: int
    """Rows that the step has filtered or made dead letters since then."""
    instead: str | None
    looked_at: str

    @property
    def what(self) -> str:
        return (
            f"since commit {self.turn.commit} of topic {self.topic}, {self.column!r} {self.fault}"
        )

    @property
    def evidence(self) -> tuple[str, ...]:
        turn = self.turn
        change = (
            f"true of {percent(turn.after)} of {many(turn.rows, 'row')} since "
            f"{when(turn.moment)}, and of {percent(turn.before)} before ({self.looked_at})"
        )
        lost = f"{many(self.lost, 'row')} since then were filtered or dead"
        instead = f"{self.instead!r} has values since then, and had none before"
        return (
            change,
            *self.effects,
            *((lost,) if self.lost else ()),
            *((instead,) if self.instead else ()),
        )

    @property
    def remedy(self) -> str:
        if self.instead:
            return (
                f"Was {self.column!r} renamed? Let the producer send both, or declare "
                f"{self.instead!r} and use coalesce({self.column}, {self.instead}); then "
                "recompute everything: headrace run --fresh"
            )
        return (
            f"Let the producer send {self.column!r} as before. The rows since then are in the log: "
            "once the pipeline can read them, recompute with headrace run --fresh"
        )


def missing_events(
    step: Step, sample: Sample, record: Record | None, moment: Callable[[int], int]
) -> list[MissingEvents]:
    """Find the changed columns of a topic that make a step miss events.

    `moment` gives the time of a commit. A column that was always or is sometimes null does not
    count, nor does one that the step does not use.
    """
    topic = sample.topic
    needed = needed_columns(step.stream).get(topic.name, set())
    rows, nulls = _counts(sample)
    turns = {name: _turn(bad, rows, sample, moment) for name, bad in nulls.items()}
    back = {name: _turn(rows - bad, rows, sample, moment) for name, bad in nulls.items()}
    found = []
    for name, turn in turns.items():
        used = needed is None or name in needed or name in time_inputs(topic)
        if turn is None or not used:
            continue
        instead = next((n for n, t in back.items() if t and t.commit == turn.commit), None)
        fault = "is null"
        found.append(_missing(step, sample, record, name, fault, turn, instead))
    if topic.event_time is not None and turns.get(topic.event_time) is None:
        misplaced = np.array([commit.misplaced for commit in sample.commits], np.int64)
        turn = _turn(misplaced, rows, sample, moment)
        if turn is not None:
            fault = "is in the future, as if its unit had changed"
            found.append(_missing(step, sample, record, topic.event_time, fault, turn, None))
    return found


def _missing(
    step: Step,
    sample: Sample,
    record: Record | None,
    column: str,
    fault: str,
    turn: Turn,
    instead: str | None,
) -> MissingEvents:
    topic = sample.topic
    dead = ["rows without a valid event time are dead letters"] * (column == topic.event_time)
    batches = [] if record is None else record.laws
    after = [b.law for b in batches if b.commits.get(topic.name, 0) >= turn.commit]
    return MissingEvents(
        step.name,
        topic.name,
        column,
        fault,
        turn,
        (*dead, *step.stream.uses(column)),
        sum(law.filtered + law.dead for law in after),
        instead,
        sample.text,
    )


def _counts(sample: Sample) -> tuple[Counts, dict[str, Counts]]:
    """Rows per commit, and nulls per column and commit."""
    place = {commit.number: index for index, commit in enumerate(sample.commits)}
    rows = np.zeros(len(place), np.int64)
    names = sample.topic.schema.names if sample.topic.schema is not None else []
    nulls = {name: np.zeros(len(place), np.int64) for name in names}
    for batch in sample.batches:
        index = place[batch.commit or 0]
        deleted = 0 if batch.tombstones is None else int(batch.tombstones.sum())
        rows[index] += len(batch) - deleted
        for name in names:
            # All columns of a tombstone except its key are null.
            empty = deleted if name != sample.topic.key else 0
            nulls[name][index] += batch.data.column(name).null_count - empty
    return rows, nulls


def _turn(bad: Counts, rows: Counts, sample: Sample, moment: Callable[[int], int]) -> Turn | None:
    """The commit from which nearly all rows have a fault that hardly any had before."""
    if len(rows) < 2:
        return None
    rows_before, bad_before = np.cumsum(rows)[:-1], np.cumsum(bad)[:-1]
    rows_after, bad_after = rows.sum() - rows_before, bad.sum() - bad_before
    before = bad_before / np.maximum(rows_before, 1)
    after = bad_after / np.maximum(rows_after, 1)
    enough = (rows_before >= _ENOUGH) & (rows_after >= _ENOUGH)
    turned = np.flatnonzero(enough & (before <= _BEFORE) & (after >= _AFTER))
    if not len(turned):
        return None
    best = int(turned[np.argmax((after - before)[turned])])
    commit = sample.commits[best + 1].number
    return Turn(
        commit,
        moment(commit),
        float(before[best]),
        float(after[best]),
        int(rows_after[best]),
    )
