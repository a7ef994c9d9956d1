"""The columns that a step reads of its topics, and the number of paths that rows take to it."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.pipeline.row_steps import Explode, Merge
from headrace.pipeline.stream import Source, Stream, Wanted, all_sources, contains


def needed_columns(stream: Stream) -> dict[str, Wanted]:
    """The columns that a stream uses, by topic; None if unknown.

    A streaming source reads every column it is asked for, so it is asked only for these.
    """
    found: dict[str, Wanted] = {}
    _need(stream, set(stream.columns), found)
    return found


def _need(stream: Stream, wanted: Wanted, found: dict[str, Wanted]) -> None:
    if not isinstance(stream, Source):
        for part, needed in stream.reads(wanted):
            _need(part, needed, found)
        return
    name, known = stream.topic.name, found.get(stream.topic.name, set())
    columns = {column.lower(): column for column in stream.columns}
    if wanted is None or known is None:
        found[name] = None
    else:
        found[name] = known | {columns[column.lower()] for column in wanted}


def branches(stream: Stream) -> Mapping[str, int]:
    """The number of paths from each topic to a stream: what was split may be merged again."""
    found: dict[str, int] = {}
    for source in all_sources(stream):
        found[source.topic.name] = found.get(source.topic.name, 0) + 1
    return found


def splits(stream: Stream) -> bool:
    """True if one row of a topic may become several."""
    return contains(stream, Explode, Merge)
