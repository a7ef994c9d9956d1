"""Reference semantics of keyed state: one call for each key and row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headrace.clock import micros, to_datetime, to_micros
from headrace.operators.stateful.declare import TIMER, Stateful
from headrace.oracle.events import Event
from headrace.oracle.rows import Fates, Row, rows_of, watermark_of


@dataclass(frozen=True)
class Given:
    """A row with its event time, the watermark at its arrival and its position."""

    row: Row
    moment: int
    watermark: int | None
    place: tuple[Any, ...]


@dataclass
class Folded(Fates):
    """The output of a function, and the fate of every row."""

    rows: list[Row] = field(default_factory=list)
    late: list[Given] = field(default_factory=list)
    failed: list[Given] = field(default_factory=list)
    taken: int = 0
    by_key: dict[tuple[Any, ...], list[Given]] = field(default_factory=dict)
    states: dict[tuple[Any, ...], Row] = field(default_factory=dict)


def folded(
    step: Stateful,
    events: Iterable[Event],
    frontiers: Mapping[str, int | None],
    columns: pa.Schema,
) -> Folded:
    """The output of a step at the given frontier of each topic.

    `columns` are those of the rows that the function gets.
    """
    found = judged(step, events)
    now = watermark_of(step, frontiers, step.delay)
    for key, rows in taken(step, found, now):
        one_key = _Key(step, columns, found)
        for one in rows:
            one_key.take(one)
        if now is not None:
            one_key.go_on(now)
        if one_key.state is not None:
            found.states[key] = one_key.state
    return found


def judged(step: Stateful, events: Iterable[Event]) -> Folded:
    """Every row before a function sees it: dead, late, or taken for its key."""
    found = Folded()
    for event, moment in found.living(events):
        watermark = None if event.frontier is None else event.frontier - micros(step.delay)
        for number, row in enumerate(rows_of(step.input, event)):
            place = (event.commit, event.partition, event.offset, event.topic.name, number)
            one = Given(row, moment, watermark, place)
            if watermark is not None and moment <= watermark:
                found.late.append(one)
            else:
                found.taken += 1
                key = tuple(row[name] for name in step.by)
                found.by_key.setdefault(key, []).append(one)
    return found


def taken(
    step: Stateful, found: Folded, now: int | None
) -> Iterator[tuple[tuple[Any, ...], list[Given]]]:
    """The rows of each key that are due, in order."""
    for key, rows in found.by_key.items():
        ordered = sorted(rows, key=lambda row: _order(step, row))
        if step.order == "time":
            ordered = [row for row in ordered if now is not None and row.moment <= now]
        yield key, ordered


def _order(step: Stateful, given: Given) -> tuple[Any, ...]:
    return (given.moment, *given.place) if step.order == "time" else given.place


class _Key:
    """One key: its state, and the event time of its newest row."""

    def __init__(self, step: Stateful, columns: pa.Schema, found: Folded) -> None:
        self._step = step
        self._columns = columns
        keys = [columns.field(name) for name in step.by]
        self._schema = pa.schema([*keys, *step.kept])
        self._found = found
        self.state: Row | None = None
        self._newest = 0

    def take(self, given: Given) -> None:
        """Give it a row, after the timers and the expiry that are due before."""
        before = given.moment if self._step.order == "time" else given.watermark
        if before is not None:
            self.go_on(before)
        known = self.state is not None
        if self._call([given.row]):
            newest = max(self._newest, given.moment) if known else given.moment
            self._newest = newest
        else:
            self._found.failed.append(given)

    def go_on(self, now: int) -> None:
        """Advance the time: fire timers, then forget the key if its ttl is over."""
        if self.state is None:
            return
        end = self._newest + micros(self._step.ttl)
        while (rung := self._timer) is not None and rung <= min(now, end):
            self._call([])
            after = self._timer
            if self.state and after is not None and after <= rung:
                self.state = {**self.state, TIMER: None}
        if end <= now:
            self.state = None

    @property
    def _timer(self) -> int | None:
        timer = self.state.get(TIMER) if self.state else None
        return None if timer is None else to_micros(timer)

    def _call(self, rows: list[Row]) -> bool:
        before = [] if self.state is None else [self.state]
        state = pa.Table.from_pylist(before, self._schema)
        events = pa.Table.from_pylist(rows, self._columns)
        try:
            kept, output = self._step.function(state, events)
        except Exception:
            if self._step.on_error == "stop":
                raise
            return False
        kept = pa.table(kept).select(self._schema.names).cast(self._schema).to_pylist()
        self.state = kept[0] if kept else None
        schema = self._step.output_of(self._columns)
        self._found.rows += pa.table(output).select(schema.names).cast(schema).to_pylist()
        return True


def late_row(given: Given) -> Row:
    """A late row in its published form."""
    assert given.watermark is not None
    by = (given.watermark - given.moment) / 1_000_000
    return {**given.row, "watermark": to_datetime(given.watermark), "late_by": by}
