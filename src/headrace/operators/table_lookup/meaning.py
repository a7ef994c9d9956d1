"""Tables and what is looked up in them, one commit after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from headrace.clock import micros
from headrace.log.record import Record
from headrace.operators.table_lookup.declare import REVISION, ROW, Enriched, Table
from headrace.oracle.events import Event
from headrace.oracle.expressions import compile_sql
from headrace.oracle.rows import rows_of
from headrace.pipeline.stream import sources

Row = dict[str, Any]
Frontier = Callable[[str, int], int | None]
"""How far a topic had come after a commit."""

_LONG_AGO = -(1 << 62)


@dataclass(frozen=True)
class Version:
    """What a table says of a key from a moment on; None if there is none any more."""

    key: tuple[Any, ...]
    valid: int
    commit: int
    partition: int
    offset: int
    row: Row | None
    frontier: int | None
    """How far the table had come before it."""

    @property
    def order(self) -> tuple[int, int, int, int]:
        return (self.valid, self.commit, self.partition, self.offset)


@dataclass
class Changes:
    """The versions of a table, and the rows that are none."""

    versions: list[Version] = field(default_factory=list)
    dead: list[tuple[Record, str]] = field(default_factory=list)
    tombstones: int = 0


def changes_of(
    table: Table, records: Iterable[Record], events: Iterable[Event], frontier: Frontier
) -> Changes:
    """What the records of a topic mean to a table; events are those of them that have a row."""
    (source,) = sources(table.input)
    rows = {(event.partition, event.offset): event for event in events}
    found = Changes()
    for record in records:
        commit = record.commit or 0
        place = (commit, record.partition, record.offset)
        if record.value is None:
            blank: Row = dict.fromkeys(source.columns)
            blank[source.topic.key or ""] = record.key
            bare = Event(source.topic, commit, record.partition, record.offset, 0, None, blank)
            (row,) = rows_of(table.input, bare)
            key = tuple(row[name] for name in table.key)
            if None in key:
                found.tombstones += 1
                continue
            before = frontier(source.topic.name, commit - 1)
            valid = _LONG_AGO if before is None else before
            found.versions.append(Version(key, valid, *place, None, before))
            continue
        event = rows[record.partition, record.offset]
        if event.dead is not None:
            found.dead.append((record, event.dead))
            continue
        (row,) = rows_of(table.input, event)
        key = tuple(row[name] for name in table.key)
        if None in key:
            found.dead.append((record, "no key"))
            continue
        assert event.event_time is not None
        ended = table.deleted is not None and compile_sql(table.deleted)(row) is True
        said = None if ended else row
        found.versions.append(Version(key, event.event_time, *place, said, event.frontier))
    return found


@dataclass
class Lookups:
    """The rows of an enriched stream, and those that still wait or are not told of."""

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
    """Each row with the version that was valid for it, known when it was ready."""
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
                _tell(enriched, event, commit, [*known, *amending], found)
        waiting = still
    found.waiting = len(waiting)
    return found


def _amends(enriched: Enriched, version: Version) -> bool:
    """Whether a version corrects what was told without it."""
    if enriched.amend is None:
        return False
    return version.frontier is None or version.valid + micros(enriched.amend) > version.frontier


def _tell(
    enriched: Enriched, event: Event, ready: int, known: list[Version], found: Lookups
) -> None:
    """A row as it is told in the end, however often it is amended until then."""
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
