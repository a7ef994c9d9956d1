"""Tables: what is known of each key, kept by a topic of changes.

A row of the topic is a version of its key, valid from its event time on, and a tombstone the end of
one. Versions are ordered by when they are valid from, and where that is the same by the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, get_args, overload

from headrace.errors import InvalidPipeline
from headrace.operators.remote_lookup.declare import Fetched, Remote
from headrace.operators.stream_join.declare import On, check_apart, check_times, equal_columns
from headrace.pipeline.expressions import Expression, check_columns
from headrace.pipeline.stream import (
    Project,
    Source,
    Stream,
    check_new_names,
    has_results,
    sources,
)
from headrace.pipeline.where import caller

Mode = Literal["as_of", "latest"]
EnrichHow = Literal["left", "inner"]

ROW, REVISION = "row", "revision"
"""What tells of a row that may be amended which it is, and the last commit that went into it."""


@dataclass(frozen=True)
class Table(Stream):
    """The versions of each key of a stream. `deleted` says which of them say that there is none."""

    input: Stream
    key: tuple[str, ...]
    deleted: Expression | None

    @property
    def upstream(self) -> tuple[Stream, ...]:
        return (self.input,)

    @property
    def topic(self) -> str:
        (source,) = sources(self.input)
        return source.topic.name


@dataclass(frozen=True)
class Enriched(Stream):
    """Rows of a stream, each with what a table says of its key."""

    input: Stream
    table: Table
    on: tuple[tuple[str, str], ...]
    mode: Mode
    how: EnrichHow
    wait: timedelta
    amend: timedelta | None
    prefix: str
    is_result = True

    @property
    def upstream(self) -> tuple[Stream, ...]:
        return self.input, self.table

    @property
    def from_table(self) -> tuple[tuple[str, str], ...]:
        """The columns of the table that a row gets, and what they are called there."""
        return columns_of(self.table, self.prefix)


def table(stream: Stream, *, key: str | Sequence[str], deleted: Expression | None = None) -> Table:
    """A table of a topic of changes: the versions of each key, by event time.

    A tombstone of the topic ends a key, as of the highest event time before it, if the key is made
    of that of the topic. A row for which `deleted` is true ends it as of its own event time.
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
            "A table is made of a topic and, at most, other columns of it: a row that were left "
            "out would leave the version before it in place",
            hint=f"deleted='...' says which rows are the end of a key. See {where}",
        )
    return Table(stream.columns, where, stream, keys, deleted)


@overload
def enrich(
    stream: Stream,
    table: Table,
    *,
    on: On,
    mode: Mode = "as_of",
    how: EnrichHow = "left",
    wait: timedelta | None = None,
    amend: timedelta | None = None,
    prefix: str = "",
) -> Enriched: ...


@overload
def enrich(
    stream: Stream, table: Remote, *, on: On, how: EnrichHow = "left", prefix: str = ""
) -> Fetched: ...


def enrich(
    stream: Stream,
    table: Table | Remote,
    *,
    on: On,
    mode: Mode = "as_of",
    how: EnrichHow = "left",
    wait: timedelta | None = None,
    amend: timedelta | None = None,
    prefix: str = "",
) -> Enriched | Fetched:
    """Each row of a stream with what a table says of its key.

    `as_of`, a row gets the version that was valid at its event time. It waits until the table has
    come so far, and no longer than until its own topic is `wait` ahead of it. A change that comes
    after that is left alone. If `amend` is given, a change may be so late, by the highest event
    time of its table, and what was told is told again, corrected: with the same `row` and a higher
    `revision`. `latest`, a row gets what is known when it is read, which a replay need not repeat.
    `how="inner"` leaves out rows of which the table knows nothing. A `remote` table is asked for
    each batch of keys, and repeats nothing either.
    """
    where = caller()
    if not isinstance(table, Table | Remote):
        raise InvalidPipeline(
            "A stream is enriched from a table",
            hint=f"table(users, key='id') makes one of a topic; join() takes two streams. "
            f"See {where}",
        )
    equal = equal_columns(on, stream.columns, table.columns, where)
    key = table.key if isinstance(table, Table) else (table.key,)
    if {theirs for _, theirs in equal} != set(key):
        raise InvalidPipeline(
            f"A table is looked up by its key, {', '.join(key)}",
            hint=f"Name these, and no others, in `on`. See {where}",
        )
    for name, value, all_of_them in (
        ("mode", mode, get_args(Mode)),
        ("how", how, get_args(EnrichHow)),
    ):
        if value not in all_of_them:
            raise InvalidPipeline(
                f"{name} cannot be {value!r}", hint=f"Use {', '.join(all_of_them)}. See {where}"
            )
    if isinstance(table, Remote):
        made = Fetched((), where, stream, table, equal[0], how, prefix)
        names = [*stream.columns, *(name for _, name in made.from_remote)]
        check_new_names([name for _, name in made.from_remote], where)
        check_apart(names, where)
        return Fetched(tuple(names), where, stream, table, equal[0], how, prefix)
    if mode == "as_of" and wait is None:
        raise InvalidPipeline(
            "How long a row waits for the table has no default: only you know",
            hint=f"wait=timedelta(minutes=1), in event time of the stream. See {where}",
        )
    for name, span in (("wait", wait), ("amend", amend)):
        if span is not None and span < timedelta(0):
            raise InvalidPipeline(f"{name} cannot be negative: {span}", hint=f"See {where}")
    if mode == "latest" and (wait is not None or amend is not None):
        raise InvalidPipeline(
            "What is looked up as it is now neither waits nor is amended",
            hint=f"wait and amend go with mode='as_of'. See {where}",
        )
    if amend is not None and how == "inner":
        raise InvalidPipeline(
            "A row that was left out cannot be amended",
            hint=f"Let how be 'left', and filter what comes of it. See {where}",
        )
    if has_results(stream):
        raise InvalidPipeline(
            "Results have no event time of their own to look up a table by",
            hint=f"Publish them to a topic and enrich that. See {where}",
        )
    if table.topic in {source.topic.name for source in sources(stream)}:
        raise InvalidPipeline(
            f"Topic {table.topic!r} is the stream and the table at once", hint=f"See {where}"
        )
    check_times((*sources(stream), *sources(table)), where)
    theirs = columns_of(table, prefix)
    names = [*stream.columns, *(name for _, name in theirs)]
    names += [ROW, REVISION] if amend is not None else []
    check_new_names([name for _, name in theirs], where)
    check_apart(names, where)
    return Enriched(
        tuple(names), where, stream, table, equal, mode, how, wait or timedelta(0), amend, prefix
    )


def columns_of(table: Table, prefix: str) -> tuple[tuple[str, str], ...]:
    """The columns of a table but for its key, and what they are called with a prefix."""
    return tuple((n, prefix + n) for n in table.columns if n not in table.key)
