"""Windowed aggregation in plain Python, row by row."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from headrace.clock import SECOND, micros, to_datetime
from headrace.operators.window.aggregates import Aggregate
from headrace.operators.window.declare import Aggregation
from headrace.operators.window.windows import AnyWindow, Session, Sliding
from headrace.oracle.events import Event
from headrace.oracle.excerpt import Excerpt
from headrace.oracle.expressions import BeyondOracle, compile_sql
from headrace.oracle.rows import Fates, Row, rows_of
from headrace.pipeline.time import WINDOW_END, WINDOW_START

PaneKey = tuple[Any, ...]
"""The values of `by`, then the key of the window: its start, or both ends."""


@dataclass(frozen=True)
class Counted:
    """A row that was not late, its position in the log, and the watermark that it met."""

    moment: int
    commit: int
    partition: int
    offset: int
    row: dict[str, Any]
    watermark: int | None

    @property
    def order(self) -> tuple[int, int, int, int]:
        return (self.moment, self.commit, self.partition, self.offset)


@dataclass(frozen=True)
class Pane:
    """The rows of one key in one window."""

    start: int
    end: int
    rows: list[Counted] = field(default_factory=list)

    @property
    def revision(self) -> int:
        """The highest commit that it counts."""
        return max(row.commit for row in self.rows)

    @property
    def amended(self) -> bool:
        """True if a row arrived after the window had fired."""
        return any(row.watermark is not None and self.end <= row.watermark for row in self.rows)

    def result(self, aggregates: Iterable[tuple[str, Aggregate]]) -> dict[str, Any]:
        """The pane's columns."""
        return {name: _value(made, self) for name, made in aggregates}


@dataclass
class Meaning(Fates):
    """The result of an aggregation, and the outcome of every row.

    `rows` counts rows before windows; `pairs` counts them once for each window they are in.
    """

    panes: dict[PaneKey, Pane] = field(default_factory=dict)
    late: list[tuple[Event, dict[str, Any], int, int]] = field(default_factory=list)
    filtered: int = 0
    pairs: int = 0
    counted: int = 0

    def final(self, aggregation: Aggregation, frontier: int | None) -> dict[PaneKey, Pane]:
        """The panes that are final at a frontier."""
        closed = micros(aggregation.patience) + micros(aggregation.window.settles)
        return {
            key: pane
            for key, pane in self.panes.items()
            if frontier is not None and pane.end + closed <= frontier
        }


def meaning(aggregation: Aggregation, events: Iterable[Event]) -> Meaning:
    """The result of an aggregation over events in the order of their commits."""
    found = Meaning()
    delay, patience = micros(aggregation.lateness.delay), micros(aggregation.patience)
    counted: dict[PaneKey, dict[int, list[Counted]]] = {}
    ordered = sorted(events, key=lambda e: (e.commit, e.topic.name, e.partition, e.offset))
    for event, moment in found.living(ordered):
        rows = list(rows_of(aggregation.input, event))
        found.filtered += not rows
        watermark = None if event.frontier is None else event.frontier - delay
        place = (moment, event.commit, event.partition, event.offset)
        for row in rows:
            for end in aggregation.window.ends(moment):
                found.pairs += 1
                if event.frontier is not None and end + patience <= event.frontier:
                    assert watermark is not None
                    found.late.append((event, row, end, watermark))
                    continue
                key = tuple(row[name] for name in aggregation.by)
                ends = counted.setdefault(key, {})
                ends.setdefault(end, []).append(Counted(*place, row, watermark))
                found.counted += 1
    for key, ends in counted.items():
        for pane in _panes(aggregation.window, ends):
            window = {WINDOW_START: pane.start, WINDOW_END: pane.end}
            found.panes[(*key, *(window[name] for name in aggregation.window.key))] = pane
    return found


def shown(aggregation: Aggregation, excerpt: Excerpt) -> list[Row]:
    """The panes of an aggregation as rows."""
    found = meaning(aggregation, excerpt.events)
    final = aggregation.emit == "final"
    panes = found.final(aggregation, excerpt.frontier) if final else found.panes
    return [row_of(aggregation, key, pane) for key, pane in panes.items()]


def shown_late(aggregation: Aggregation, excerpt: Excerpt) -> list[Row]:
    """The late rows of an aggregation, each with its window, the watermark and its lateness."""
    window, grace = aggregation.window, micros(aggregation.lateness.grace)
    return [
        {
            **row,
            WINDOW_START: to_datetime(window.start_of(end)),
            WINDOW_END: to_datetime(end),
            "watermark": to_datetime(watermark),
            "late_by": (watermark - grace - end) / SECOND,
        }
        for _, row, end, watermark in meaning(aggregation, excerpt.events).late
    ]


def row_of(aggregation: Aggregation, key: PaneKey, pane: Pane) -> Row:
    """A pane as a row."""
    return {
        **dict(zip(aggregation.by, key, strict=False)),
        WINDOW_START: to_datetime(pane.start),
        WINDOW_END: to_datetime(pane.end),
        **pane.result(aggregation.aggregates),
    }


def _panes(window: AnyWindow, rows: dict[int, list[Counted]]) -> Iterator[Pane]:
    """The windows of one key, from its rows by the end of each row's own window."""
    match window:
        case Sliding():
            every = [row for held in rows.values() for row in held]
            for end in rows:
                start = end - micros(window.size)
                yield Pane(start, end, [row for row in every if start <= row.moment <= end])
        case Session():
            merged: list[Pane] = []
            for end in sorted(rows):
                start = end - micros(window.gap)
                if merged and start < merged[-1].end:
                    before = merged.pop()
                    merged.append(Pane(before.start, end, before.rows + rows[end]))
                else:
                    merged.append(Pane(start, end, rows[end]))
            yield from merged
        case _:
            for end, held in rows.items():
                yield Pane(window.start_of(end), end, held)


def _average(values: Sequence[Any]) -> float:
    if isinstance(values[0], Decimal):
        raise BeyondOracle("only Spark divides decimals")
    return float(sum(values) / len(values))


def _value(made: Aggregate, pane: Pane) -> Any:
    if made.of is None:
        return len(pane.rows)
    evaluate = compile_sql(made.of)
    values = [evaluate(counted.row) for counted in sorted(pane.rows, key=lambda row: row.order)]
    there = [value for value in values if value is not None]
    match made.kind:
        case "count":
            return len(there)
        case "distinct" | "approx_distinct":
            return len(set(there))
        case "approx_top":
            found = sorted(Counter(there).items(), key=lambda one: (-one[1], one[0]))
            error = made.error(len(there))
            first = found[: int(made.parameter or 0)]
            return [{"item": item, "count": n, "error": error} for item, n in first]
        case "first":
            return values[0]
        case "last":
            return values[-1]
    if not there:
        return None
    match made.kind:
        case "sum":
            return sum(there)
        case "average":
            return _average(there)
        case "min":
            return min(there)
        case "max":
            return max(there)
        case "quantile":
            assert made.parameter is not None
            rank = max(1, math.ceil(made.parameter * len(there)))
            return sorted(there)[rank - 1]
    raise BeyondOracle(f"the oracle does not know {made.kind}")
