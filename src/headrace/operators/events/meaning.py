"""Reference semantics of a stream of events in plain Python, row by row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headrace.operators.events.declare import ENVELOPE, Events
from headrace.oracle.rows import Row


def rows(stream: Events, given: Iterable[Row]) -> Iterator[Row]:
    """The chosen events with their fields. One that cannot be read is a dead letter."""
    for row in given:
        if row["type"] in {one.name for one in stream.reading.types} and not stream.refusal(row):
            row = dict(stream.opened(row))
            fields = stream.reading.row(row)
            named = {stream.prefix + name: value for name, value in fields.items()}
            yield {**{name: row[name] for name in ENVELOPE}, **named}
