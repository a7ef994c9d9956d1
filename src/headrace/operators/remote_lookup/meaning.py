"""Reference semantics of remote lookup in plain Python, row by row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headrace.operators.remote_lookup.declare import Fetched
from headrace.oracle.rows import Row


def rows(stream: Fetched, given: Iterable[Row]) -> Iterator[Row]:
    """The rows with the columns that the function returns for each."""
    for row in given:
        key = row[stream.on[0]]
        there = None if key is None else stream.remote.fetch([key]).get(key)
        if there is not None or stream.how == "left":
            yield {**row, **{made: (there or {}).get(name) for name, made in stream.from_remote}}
