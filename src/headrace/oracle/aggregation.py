"""Windows, lateness and aggregates, one row after the other."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from headrace.clock import micros
from headrace.oracle.events import Event
from headrace.oracle.expressions import compile_sql
from headrace.oracle.steps import rows_of
from headrace.streams.aggregates import Aggregate
from headrace.streams.stream import Aggregation

PaneKey = tuple[Any, ...]
"""The values of `by`, then the window's start."""


@dataclass
class Pane:
    """The rows of one key in one window, as they have come so far."""

    start: int
    end: int
    revision: int = 0
    fired: bool = False
    amended: bool = False
    rows: list[tuple[tuple[int, int, int, int], dict[str, Any]]] = field(default_factory=list)

    def result(self, aggregates: Iterable[tuple[str, Aggregate]]) -> dict[str, Any]:
        """The pane's columns."""
        return {name: _value(made, self) for name, made in aggregates}


@dataclass
class Meaning:
    """What an aggregation of some events is, and what became of every row.

    `rows` counts rows before windows; `pairs` counts them once for each window they are in.
    """

    panes: dict[PaneKey, Pane] = field(default_factory=dict)
    late: list[tuple[Event, dict[str, Any], int, int]] = field(default_factory=list)
    dead: list[tuple[Event, str]] = field(default_factory=list)
    rows_in: int = 0
    filtered: int = 0
    pairs: int = 0
    counted: int = 0

    def final(self, aggregation: Aggregation, frontier: int | None) -> dict[PaneKey, Pane]:
        """The panes that nothing can change once the frontier has come so far."""
        closed = micros(aggregation.lateness.delay) + micros(aggregation.lateness.grace)
        return {
            key: pane
            for key, pane in self.panes.items()
            if frontier is not None and pane.end + closed <= frontier
        }


def meaning(aggregation: Aggregation, events: Iterable[Event]) -> Meaning:
    """The result of an aggregation over events in the order of their commits."""
    found = Meaning()
    lateness = aggregation.lateness
    delay, grace, size = (
        micros(lateness.delay),
        micros(lateness.grace),
        micros(aggregation.window.size),
    )
    for event in sorted(events, key=lambda e: (e.commit, e.topic.name, e.partition, e.offset)):
        found.rows_in += 1
        if event.dead is not None:
            found.dead.append((event, event.dead))
            continue
        moment = event.event_time
        assert moment is not None
        rows = list(rows_of(aggregation.input, event))
        found.filtered += not rows
        for row in rows:
            for start in aggregation.window.starts(moment):
                found.pairs += 1
                end = start + size
                watermark = None if event.frontier is None else event.frontier - delay
                if watermark is not None and end + grace <= watermark:
                    found.late.append((event, row, start, watermark))
                    continue
                key = (*(row[name] for name in aggregation.by), start)
                pane = found.panes.setdefault(key, Pane(start, end))
                pane.amended |= watermark is not None and end <= watermark
                pane.revision = max(pane.revision, event.commit)
                pane.rows.append(((moment, event.commit, event.partition, event.offset), row))
                found.counted += 1
    return found


def _value(made: Aggregate, pane: Pane) -> Any:
    if made.of is None:
        return len(pane.rows)
    evaluate = compile_sql(made.of)
    ordered = sorted(pane.rows, key=lambda placed: placed[0])
    values = [evaluate(row) for _, row in ordered]
    there = [value for value in values if value is not None]
    match made.kind:
        case "count":
            return len(there)
        case "distinct" | "approx_distinct":
            return len(set(there))
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
            return sum(there) / len(there)
        case "min":
            return min(there)
        case "max":
            return max(there)
        case "quantile":
            assert made.parameter is not None
            rank = max(1, math.ceil(made.parameter * len(there)))
            return sorted(there)[rank - 1]
    raise ValueError(f"the oracle does not know {made.kind}")
