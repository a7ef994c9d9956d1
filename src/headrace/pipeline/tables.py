"""Tables: the versions of each key, from a topic of changes.

A row of the topic is a version of its key, valid from its event time on; a tombstone deletes a key.
Versions are ordered by the time they are valid from, then by the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace.errors import InvalidPipeline
from headrace.pipeline.arguments import declaration
from headrace.pipeline.expressions import Expression, check_columns
from headrace.pipeline.row_steps import Project, project
from headrace.pipeline.stream import Source, Stream, Text, Unary, sources
from headrace.pipeline.where import Where, caller

ROW, REVISION = "row", "revision"
"""The columns of a row that may be amended: its id, and the last commit that went into it."""

_OP = "captured operation"
"""The column with the operation of a change. Its spaces keep it apart from a table's columns."""

_DELETED = f"`{_OP}` = 'd'"


@dataclass(frozen=True)
class Table(Unary):
    """The versions of each key of a stream. Rows where `deleted` is true delete their key.

    Its columns are those of the stream, or some of them.
    """

    key: tuple[str, ...]
    deleted: Expression | None
    noun = "a table"
    example = "hr.table(users, key='id')"
    belongs = "Pass it to hr.enrich() as the second argument, or to hr.join_tables()"
    stands_for_stream = False

    @property
    def topic(self) -> str:
        (source,) = sources(self.input)
        return source.topic.name

    def definition(self, text: Text) -> dict[str, Any]:
        ended = None if self.deleted is None else text(self.deleted)
        return {"table": [ended, *self.key], "of": self.input.definition(text)}


@declaration
def table(stream: Stream, *, key: str | Sequence[str], deleted: Expression | None = None) -> Table:
    """A table of a topic of changes: the versions of each key, by event time.

    A tombstone deletes a key as of the highest event time before it, if the key of the table comes
    from that of the topic. A row where `deleted` is true deletes it as of its own event time.
    """
    where = caller()
    keys = (key,) if isinstance(key, str) else tuple(key)
    for name in keys:
        check_columns(f"`{name}`", stream.columns, where)
    if not keys:
        raise InvalidPipeline("A table needs a key", hint=f"table(users, key='id'). See {where}")
    if deleted is not None:
        check_columns(deleted, stream.columns, where)
    here = stream
    while isinstance(here, Project):
        here = here.input
    if not isinstance(here, Source):
        raise InvalidPipeline(
            "A table is made of a topic, with select() or derive() at most: a row that is dropped "
            "would leave the version before it in place",
            hint=f"deleted='...' says which rows delete a key. See {where}",
        )
    return Table(stream.columns, where, stream, keys, deleted)


def captured(changes: Stream, columns: Sequence[str], key: Sequence[str], where: Where) -> Table:
    """The table that a topic of captured changes is of. A change without a row after deletes."""
    rows = {
        name: f"coalesce(after.`{name}`, before.`{name}`)" if name in key else f"after.`{name}`"
        for name in columns
    }
    input = project(changes, [*rows.items(), (_OP, "op")], where)
    return Table(tuple(columns), where, input, tuple(key), _DELETED)


def topic_of_changes(table: Table) -> str | None:
    """The topic of captured changes that a table is the latest rows of; None if it is another."""
    source = table.input.input if isinstance(table.input, Project) else None
    if not isinstance(source, Source) or table.deleted != _DELETED:
        return None
    made = captured(source, table.columns, table.key, table.where)
    return source.topic.name if made == table else None


def columns_of(table: Table, prefix: str) -> tuple[tuple[str, str], ...]:
    """The columns of a table except its key, each with its prefixed name."""
    return tuple((n, prefix + n) for n in table.columns if n not in table.key)
