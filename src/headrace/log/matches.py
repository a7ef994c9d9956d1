"""Matches: which rows of an indexed topic are meant, by the values of its indexed column."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pyarrow as pa

from headrace.errors import InvalidSchema, InvalidSetting
from headrace.log.settings import TopicSettings

Match = Sequence[Collection[str]]
"""Groups of values. A row matches if it has at least one value of every group."""

_MOST_VALUES = 1000


def check_matches(matches: Sequence[Match]) -> list[Match]:
    """The matches, if each has groups of texts."""
    found = list(matches)
    for match in found:
        groups = [match] if isinstance(match, str) else list(match)
        if isinstance(match, str) or not groups or any(map(_is_wrong, groups)):
            raise InvalidSetting(
                f"{match!r} is not a match",
                hint="A match is a list of groups, each with the values of which a row has one: "
                "[['type:opened'], ['email:a@b.c', 'email:a@b.d']]",
            )
    if not found:
        raise InvalidSetting("There is no match", hint="Give at least one")
    if sum(len(group) for match in found for group in match) > _MOST_VALUES:
        raise InvalidSetting(
            f"The matches have more than {_MOST_VALUES:,} values", hint="Split the condition"
        )
    return found


def check_index(name: str, settings: TopicSettings, schema: pa.Schema | None) -> None:
    """Check that the column that a topic's `index` names can be indexed."""
    column = settings.index
    if column is None:
        return
    if schema is None:
        raise InvalidSchema(
            f"Topic {name!r} cannot have an index: it is of raw bytes",
            hint="Give the topic a schema",
        )
    if column not in schema.names:
        raise InvalidSchema(
            f"The index column {column!r} of topic {name!r} is not in the schema",
            hint=f"The schema has: {', '.join(schema.names)}",
        )
    kind = schema.field(column).type
    if pa.types.is_list(kind):
        kind = kind.value_type
    if not pa.types.is_string(kind):
        raise InvalidSchema(
            f"The column {column!r} of topic {name!r} cannot be indexed: it has the type {kind}",
            hint="An index is of a column of STRING or ARRAY<STRING>",
        )


def check_indexed(name: str, settings: TopicSettings) -> None:
    """Check that a topic has an index."""
    if settings.index is None:
        raise InvalidSetting(
            f"Topic {name!r} has no index, so its rows cannot be matched",
            hint="Create it with the setting index, the name of a column of strings or of lists "
            "of them",
        )


def check_same_index(name: str, old: TopicSettings, new: TopicSettings) -> None:
    """Check that a topic keeps its index."""
    if old.index != new.index:
        raise InvalidSetting(
            f"The index of topic {name!r} cannot be changed: the rows that it has are indexed by "
            f"{'nothing' if old.index is None else old.index}",
            hint="Create another topic with the index, and copy the rows",
        )


def _is_wrong(group: Collection[str]) -> bool:
    return isinstance(group, str) or not group or not all(isinstance(v, str) for v in group)
