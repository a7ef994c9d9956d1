"""Tables in plain Python: the versions of each key, one commit after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from headrace.log.record import Record
from headrace.oracle.events import Event
from headrace.oracle.expressions import compile_sql
from headrace.oracle.rows import Row, rows_of
from headrace.pipeline.stream import sources
from headrace.pipeline.tables import Table

Frontier = Callable[[str, int], int | None]
"""The frontier of a topic after a commit."""

LONG_AGO = -(1 << 62)
"""The frontier of a topic that has none yet."""


@dataclass(frozen=True)
class Version:
    """A version of a key, valid from a moment on. Its row is None if it deletes the key."""

    key: tuple[Any, ...]
    valid: int
    commit: int
    partition: int
    offset: int
    row: Row | None
    frontier: int | None
    """The frontier of the table's topic before it."""

    @property
    def order(self) -> tuple[int, int, int, int]:
        return (self.valid, self.commit, self.partition, self.offset)


@dataclass
class Changes:
    """The versions of a table, and the rows that are not versions."""

    versions: list[Version] = field(default_factory=list)
    dead: list[tuple[Record, str]] = field(default_factory=list)
    tombstones: int = 0


def changes_of(
    table: Table, records: Iterable[Record], events: Iterable[Event], frontier: Frontier
) -> Changes:
    """Return the changes that records make to a table; `events` are the records with a row."""
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
            valid = LONG_AGO if before is None else before
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
        said = None if ended else {name: row[name] for name in table.columns}
        found.versions.append(Version(key, event.event_time, *place, said, event.frontier))
    return found
