"""Declarations that all joins share: join columns, names, comparable event times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.errors import InvalidPipeline
from headrace.log.event_time import time_column
from headrace.pipeline.expressions import not_there
from headrace.pipeline.stream import Source
from headrace.pipeline.where import Where
from headrace.schema.ddl import format_type

On = str | Sequence[str] | Mapping[str, str]
"""The join columns: names that both sides have, or left names mapped to right names."""


def equal_columns(
    on: On, left: Sequence[str], right: Sequence[str], where: Where
) -> tuple[tuple[str, str], ...]:
    """Return the pairs of join columns."""
    if isinstance(on, str):
        on = [on]
    pairs = tuple(on.items()) if isinstance(on, Mapping) else tuple((name, name) for name in on)
    if not pairs:
        raise InvalidPipeline(
            "A join needs columns to join on", hint=f"on='id', or on={{...}}. See {where}"
        )
    for side, name, columns in (
        *(("left", mine, left) for mine, _ in pairs),
        *(("right", theirs, right) for _, theirs in pairs),
    ):
        if name not in columns:
            raise not_there(f"The {side} of the join has no column {name!r}", name, columns, where)
    return pairs


def check_apart(names: Sequence[str], where: Where) -> None:
    """Check that all columns of a join have distinct names."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidPipeline(
            f"Both sides of the join have a column {', '.join(map(repr, twice))}",
            hint=f"prefix='right_' renames the columns of the right side. See {where}",
        )


def check_times(read: Sequence[Source], where: Where) -> None:
    """Check that the event times of topics can be compared."""
    kinds = {}
    for topic in (source.topic for source in read):
        assert topic.schema is not None
        column = time_column(topic)  # an expression is a timestamp
        kind = "timestamp" if column is None else format_type(topic.schema.field(column).type)
        kinds[topic.name] = kind
    if len(set(kinds.values())) > 1:
        types = ", ".join(f"{name!r} has {kind}" for name, kind in kinds.items())
        raise InvalidPipeline(
            f"Event times of different types cannot be compared: {types}",
            hint="A timestamp is a moment; a timestamp_ntz is the reading of a local clock. "
            f"Use the same type in both topics. See {where}",
        )
