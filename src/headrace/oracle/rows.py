"""Steps that change rows one by one, in plain Python."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from headrace.oracle.events import Event
from headrace.oracle.expressions import compile_sql
from headrace.pipeline.row_steps import Explode, Filter, Merge, Project
from headrace.pipeline.stream import RowStep, Source, Stream

Row = dict[str, Any]


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
            (given,) = stream.upstream
            meaning = importlib.import_module(f"{stream.package}.meaning")
            yield from meaning.rows(stream, rows_of(given, event))
        case Merge():
            for part in stream.inputs:
                yield from rows_of(part, event)
        case _:
            raise TypeError(f"not a stateless step: {stream}")
