"""Steps that change rows one by one, and the fate of every row, in plain Python."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from headrace.clock import micros
from headrace.oracle.events import Event
from headrace.oracle.expressions import compile_sql
from headrace.pipeline.row_steps import Explode, Filter, Merge, Project
from headrace.pipeline.stream import RowStep, Source, Stream, sources

Row = dict[str, Any]


@dataclass
class Fates:
    """The fate of every event that an operator reads. Operators add their own results."""

    rows_in: int = 0
    dead: list[tuple[Event, str]] = field(default_factory=list)

    def living(self, events: Iterable[Event]) -> Iterator[tuple[Event, int]]:
        """Count events, and yield those that are no dead letters, each with its event time."""
        for event in events:
            self.rows_in += 1
            if event.dead is not None:
                self.dead.append((event, event.dead))
            else:
                assert event.event_time is not None
                yield event, event.event_time


def watermark_of(
    stream: Stream, frontiers: Mapping[str, int | None], delay: timedelta
) -> int | None:
    """The time up to which all further rows of a stream are late; None until there is one."""
    reached = [frontiers[source.topic.name] for source in sources(stream)]
    known = [frontier for frontier in reached if frontier is not None]
    return min(known) - micros(delay) if len(known) == len(reached) else None


def rows_of(stream: Stream, event: Event) -> Iterator[Row]:
    """Yield the rows that a stream makes of an event: none, one or several."""
    match stream:
        case Source():
            if stream.topic.name == event.topic.name:
                yield dict(event.row)
        case Filter():
            condition = compile_sql(stream.condition)
            yield from (row for row in rows_of(stream.input, event) if condition(row) is True)
        case Project():
            made = [(name, compile_sql(text)) for name, text in stream.expressions]
            for row in rows_of(stream.input, event):
                yield {name: value(row) for name, value in made}
        case Explode():
            array = compile_sql(stream.array)
            for row in rows_of(stream.input, event):
                yield from ({**row, stream.into: item} for item in array(row) or ())
        case RowStep():
            meaning = importlib.import_module(f"{stream.package}.meaning")
            yield from meaning.rows(stream, rows_of(stream.input, event))
        case Merge():
            for part in stream.inputs:
                yield from rows_of(part, event)
        case _:
            raise TypeError(f"not a stateless step: {stream}")
