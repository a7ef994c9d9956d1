"""Reference semantics of the stream-table join in plain Python, commit by commit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from headrace.clock import micros
from headrace.operators.table_lookup.declare import Enriched
from headrace.oracle.events import Event
from headrace.oracle.rows import Row, rows_of
from headrace.oracle.tables import LONG_AGO, Frontier, Version
from headrace.pipeline.stream import sources
from headrace.pipeline.tables import REVISION, ROW


@dataclass
class Lookups:
    """The emitted rows of an enriched stream, and the numbers of waiting and dropped ones."""

    rows: list[Row] = field(default_factory=list)
    waiting: int = 0
    unknown: int = 0
    dead: list[tuple[Event, str]] = field(default_factory=list)


def looked_up(
    enriched: Enriched,
    events: Iterable[Event],
    versions: Iterable[Version],
    frontier: Frontier,
    head: int,
) -> Lookups:
    """Each row with the version that was valid for it, among those known when it was ready."""
    found = Lookups()
    topics = [source.topic.name for source in sources(enriched.input)]
    waiting: list[Event] = []
    known: list[Version] = []
    events, versions = list(events), list(versions)
    for commit in range(1, head + 1):
        known += [version for version in versions if version.commit == commit]
        waiting += [event for event in events if event.commit == commit]
        table = frontier(enriched.table.topic, commit)
        mine = [frontier(topic, commit) for topic in topics]
        given_up = (
            min(moment for moment in mine if moment is not None) - micros(enriched.wait)
            if None not in mine
            else None
        )
        ready = max((m for m in (table, given_up) if m is not None), default=None)
        still = []
        for event in waiting:
            if event.dead is not None:
                found.dead.append((event, event.dead))
            elif ready is None or event.event_time is None or event.event_time > ready:
                still.append(event)
            else:
                amending = [v for v in versions if v.commit > commit and _amends(enriched, v)]
                _emit(enriched, event, commit, [*known, *amending], found)
        waiting = still
    found.waiting = len(waiting)
    return found


def _amends(enriched: Enriched, version: Version) -> bool:
    """True if a version corrects rows that were emitted without it."""
    if enriched.amend is None:
        return False
    frontier = LONG_AGO if version.frontier is None else version.frontier
    return version.valid + micros(enriched.amend) > frontier


def _emit(
    enriched: Enriched, event: Event, ready: int, known: list[Version], found: Lookups
) -> None:
    """Emit a row in its last state, after all amendments."""
    for row in rows_of(enriched.input, event):
        key = {theirs: row[mine] for mine, theirs in enriched.on}
        wanted = tuple(key[name] for name in enriched.table.key)
        assert event.event_time is not None
        valid = [v for v in known if v.key == wanted and v.valid <= event.event_time]
        newest = max(valid, key=lambda v: v.order, default=None)
        there = newest.row if newest is not None and None not in wanted else None
        if there is None and enriched.how == "inner":
            found.unknown += 1
            continue
        more = {name: there[column] if there else None for column, name in enriched.from_table}
        if enriched.amend is not None:
            more[REVISION] = max(ready, newest.commit if newest is not None else 0)
            more[ROW] = f"{event.topic.name}/{event.partition}/{event.offset}/"
        found.rows.append({**row, **more})
