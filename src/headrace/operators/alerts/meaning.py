"""Reference semantics of alerts, commit by commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from headrace.clock import micros, to_datetime, to_micros
from headrace.operators.alerts.declare import (
    ALERT,
    APPENDED,
    AT,
    CUT,
    EVIDENCE,
    RULE,
    SINCE,
    VALUE,
    Alerts,
)
from headrace.oracle.events import Event
from headrace.oracle.rows import Fates, Row, rows_of


@dataclass(frozen=True)
class Seen:
    """An event that was in time, with its event time."""

    event: Event
    number: int
    """The number of the row among those made from the event."""
    row: Row
    moment: int

    @property
    def order(self) -> tuple[int, ...]:
        event = self.event
        return (self.moment, event.commit, event.partition, event.offset, self.number)


@dataclass(frozen=True)
class Verdict:
    """The evidence and value of a rule that flags an event."""

    evidence: Sequence[Seen]
    value: float | None = None


Judge = Callable[[Seen, Sequence[Seen]], Verdict | None]
"""A rule in Python, given an event and its recent past with the event as the last."""


@dataclass
class Flagged(Fates):
    """The alerts in the order of their emission, and the fate of every row."""

    alerts: list[Row] = field(default_factory=list)
    late: list[tuple[Event, Row, int]] = field(default_factory=list)
    """Late rows with the watermark at their arrival."""
    counted: int = 0
    again: int = 0
    """The number of repeated evaluations, caused by earlier events that arrived later."""


def flagged(step: Alerts, events: Iterable[Event], judges: Mapping[str, Judge]) -> Flagged:
    """The alerts of a stream, by Python equivalents of the rules of the step.

    Each commit evaluates every event that is new or has a new event in its recent past. An alert
    keeps the values of its first emission.
    """
    found = Flagged()
    keys: dict[tuple[Any, ...], list[Seen]] = {}
    emitted: dict[str, int] = {}
    delay = micros(step.delay)
    ordered = sorted(events, key=lambda e: (e.commit, e.partition, e.offset))
    for _, commit in groupby(ordered, key=lambda e: e.commit):
        arrived = _in_time(step, list(commit), found)
        for seen in arrived:
            keys.setdefault(_key(step, seen), []).append(seen)
        due: list[tuple[Seen, Row]] = []
        for key in {_key(step, seen) for seen in arrived}:
            mine = sorted(keys[key], key=lambda s: s.order)
            for seen in mine:
                recent = _recent(step, seen, mine)
                if any(one in arrived for one in recent):
                    found.again += seen not in arrived
                    due += [(seen, row) for row in _alerts(step, seen, recent, judges)]
        frontier = arrived[0].event.frontier if arrived else None
        for _, alert in sorted(due, key=lambda d: (d[0].order, d[1][ALERT])):
            known = emitted.get(alert[ALERT])
            if known is None or (frontier is not None and known + delay <= frontier):
                emitted[alert[ALERT]] = to_micros(alert[AT])
                found.alerts.append(alert)
    return found


def _in_time(step: Alerts, events: Sequence[Event], found: Flagged) -> list[Seen]:
    arrived = []
    for event, moment in found.living(events):
        for number, row in enumerate(rows_of(step.input, event)):
            watermark = None if event.frontier is None else event.frontier - micros(step.delay)
            if watermark is not None and moment <= watermark:
                found.late.append((event, row, watermark))
            else:
                found.counted += 1
                arrived.append(Seen(event, number, row, moment))
    return arrived


def _key(step: Alerts, seen: Seen) -> tuple[Any, ...]:
    return tuple(seen.row[name] for name in step.by)


def _recent(step: Alerts, seen: Seen, mine: Sequence[Seen]) -> list[Seen]:
    """The recent past of an event, both ends included, among the events of its key."""
    begin = seen.moment - micros(step.within)
    return [one for one in mine if begin <= one.moment and one.order <= seen.order]


def _alerts(
    step: Alerts, seen: Seen, recent: Sequence[Seen], judges: Mapping[str, Judge]
) -> list[Row]:
    made = []
    for name, _ in step.rules:
        verdict = judges[name](seen, recent[-step.limit :])
        if verdict is not None:
            event = seen.row[step.event]
            place = f"{seen.event.partition}/{seen.event.offset}"
            made.append(
                {
                    ALERT: f"{place if event is None else event}:{name}",
                    RULE: name,
                    **{key: seen.row[key] for key in (*step.by, step.event)},
                    AT: to_datetime(seen.moment),
                    VALUE: verdict.value,
                    EVIDENCE: [_text(one.row[step.event]) for one in verdict.evidence],
                    SINCE: to_datetime(min(one.moment for one in verdict.evidence)),
                    CUT: len(recent) > step.limit,
                    APPENDED: to_datetime(seen.event.append_time),
                }
            )
    return made


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
