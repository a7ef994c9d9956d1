"""What a step makes of its topics: which of their columns it reads, and in how many ways."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.operators.alerts.declare import Alerts
from headrace.operators.dedup.declare import Deduplicated
from headrace.operators.remote_lookup.declare import Fetched
from headrace.operators.stateful.declare import Stateful
from headrace.operators.stream_join.declare import Join
from headrace.pipeline.expressions import Expression, columns_in
from headrace.pipeline.stream import (
    Aggregation,
    Explode,
    Filter,
    Merge,
    Project,
    Source,
    Stream,
)
from headrace.pipeline.where import Where


def needed_columns(step: Stream) -> dict[str, set[str] | None]:
    """By topic, the columns that a step makes use of; None where that cannot be told.

    A streaming source reads every column it is asked for, so it is asked for no more than these.
    """
    found: dict[str, set[str] | None] = {}
    if isinstance(step, Aggregation):
        wanted = {*step.by}
        for _, made in step.aggregates:
            wanted |= columns_in(made.of, step.where) if made.of is not None else set()
        _need(step.input, wanted, found)
    elif isinstance(step, Join):
        for side in (step.left, step.right):
            _need(side, set(side.columns), found)
    elif isinstance(step, Deduplicated):
        _need(step.input, set(step.columns), found)
    elif isinstance(step, Stateful | Alerts):
        _need(step.input, set(step.input.columns), found)
    else:
        _need(step, set(step.columns), found)
    return found


def _need(stream: Stream, wanted: set[str] | None, found: dict[str, set[str] | None]) -> None:
    match stream:
        case Source():
            name, known = stream.topic.name, found.get(stream.topic.name, set())
            columns = {column.lower(): column for column in stream.columns}
            if wanted is None or known is None:
                found[name] = None
            else:
                found[name] = known | {columns[column.lower()] for column in wanted}
        case Filter():
            _need(stream.input, _with(wanted, stream.condition, stream.where), found)
        case Project():
            needed: set[str] | None = set()
            for name, made in stream.expressions:
                if wanted is None or name.lower() in {column.lower() for column in wanted}:
                    needed = _with(needed, made, stream.where)
            _need(stream.input, needed, found)
        case Explode():
            rest = None if wanted is None else wanted - {stream.into}
            _need(stream.input, _with(rest, stream.array, stream.where), found)
        case Fetched():
            made = {name for _, name in stream.from_remote}
            rest = None if wanted is None else (wanted - made) | {stream.on[0]}
            _need(stream.input, rest, found)
        case Merge():
            for part in stream.inputs:
                _need(part, wanted, found)


def _with(wanted: set[str] | None, expression: Expression, where: Where) -> set[str] | None:
    if wanted is None or not isinstance(expression, str):
        return None
    return wanted | columns_in(expression, where)


def branches(stream: Stream) -> Mapping[str, int]:
    """How many ways a topic's rows take to a stream: what was split may be merged again."""
    if isinstance(stream, Source):
        return {stream.topic.name: 1}
    found: dict[str, int] = {}
    for part in stream.upstream:
        for name, ways in branches(part).items():
            found[name] = found.get(name, 0) + ways
    return found


def contains(stream: Stream, *kinds: type[Stream]) -> bool:
    """Whether there is a step of one of these kinds on the way to a stream."""
    return isinstance(stream, kinds) or any(contains(part, *kinds) for part in stream.upstream)


def splits(stream: Stream) -> bool:
    """Whether one row of a topic may become several."""
    return contains(stream, Explode, Merge)
