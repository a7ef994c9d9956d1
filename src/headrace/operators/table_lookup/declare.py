"""Declaration of a stream-table join."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, overload

from headrace.clock import micros
from headrace.errors import InvalidPipeline
from headrace.log.settings import format_span
from headrace.operators.remote_lookup.declare import Fetched, Remote
from headrace.pipeline.arguments import declaration
from headrace.pipeline.chains import check_readable, topics_read
from headrace.pipeline.joins import On, check_apart, check_times, equal_columns
from headrace.pipeline.row_steps import check_new_names
from headrace.pipeline.stream import Stream, Text, sources
from headrace.pipeline.tables import REVISION, ROW, Table, columns_of
from headrace.pipeline.where import caller

Mode = Literal["as_of", "latest"]
EnrichHow = Literal["left", "inner"]


@dataclass(frozen=True)
class Enriched(Stream):
    """Rows of a stream with the table columns of their keys."""

    input: Stream
    table: Table
    on: tuple[tuple[str, str], ...]
    mode: Mode
    how: EnrichHow
    wait: timedelta
    amend: timedelta | None
    prefix: str
    noun = "an enrichment"
    is_result = True
    has_checkpoint = False

    @property
    def upstream(self) -> tuple[Stream, ...]:
        return self.input, self.table

    @property
    def roles(self) -> tuple[str, ...]:
        return "", "table"

    @property
    def unreadable(self) -> tuple[str, str] | None:
        if self.amend is None:
            return None
        return (
            "amended rows come again, and a step would count both versions",
            "Leave out `amend`, or publish the rows to a topic and keep the last revision of each",
        )

    @property
    def time(self) -> str | None:
        return self.input.time

    @property
    def from_table(self) -> tuple[tuple[str, str], ...]:
        """Pairs of a table column and its name in the result."""
        return columns_of(self.table, self.prefix)

    def definition(self, text: Text) -> dict[str, Any]:
        return {
            "enrich": [self.mode, self.how],
            "amend": None if self.amend is None else micros(self.amend),
            "on": [list(pair) for pair in self.on],
            "wait": micros(self.wait),
            "prefix": self.prefix,
            "merge": [self.input.definition(text), self.table.definition(text)],
        }


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


@declaration
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
    """Each row of a stream with the table columns of its key.

    With `mode="as_of"`, a row gets the version that was valid at its event time. It waits until the
    table has reached that time, or its own topic is `wait` ahead of it. Later changes are ignored,
    unless `amend` is given: a change less than `amend` behind the highest event time of its table
    corrects published rows, which are published again with the same `row` and a higher `revision`.
    With `mode="latest"`, a row gets the version known when it is read, which a replay may not
    repeat. `how="inner"` drops rows whose key is not in the table. A `remote` table is called with
    each batch of keys, and a replay may not repeat its answers either.
    """
    where = caller()
    equal = equal_columns(on, stream.columns, table.columns, where)
    key = table.key if isinstance(table, Table) else (table.key,)
    if {theirs for _, theirs in equal} != set(key):
        raise InvalidPipeline(
            f"A table is looked up by its key, {', '.join(key)}",
            hint=f"Name exactly these columns in `on`. See {where}",
        )
    if isinstance(table, Remote):
        made = Fetched((), where, stream, table, equal[0], how, prefix)
        names = [*stream.columns, *(name for _, name in made.from_remote)]
        check_new_names([name for _, name in made.from_remote], where)
        check_apart(names, where)
        return Fetched(tuple(names), where, stream, table, equal[0], how, prefix)
    if mode == "as_of" and wait is None:
        raise InvalidPipeline(
            "`wait` has no default: it depends on how far the table lags behind the stream",
            hint=f"wait=timedelta(minutes=1), in event time of the stream. See {where}",
        )
    for name, span in (("wait", wait), ("amend", amend)):
        if span is not None and span < timedelta(0):
            raise InvalidPipeline(
                f"{name} cannot be negative: {format_span(span)}", hint=f"See {where}"
            )
    if mode == "latest" and (wait is not None or amend is not None):
        raise InvalidPipeline(
            "A lookup with mode='latest' neither waits nor amends",
            hint=f"Use wait and amend with mode='as_of'. See {where}",
        )
    if amend is not None and how == "inner":
        raise InvalidPipeline(
            "A row that an inner lookup dropped cannot be amended",
            hint=f"Use how='left' and filter the result. See {where}",
        )
    check_readable(stream, where)
    if table.topic in {source.topic.name for source in topics_read(stream)}:
        raise InvalidPipeline(
            f"Topic {table.topic!r} is both the stream and the table", hint=f"See {where}"
        )
    check_times((*topics_read(stream), *sources(table)), where)
    theirs = columns_of(table, prefix)
    names = [*stream.columns, *(name for _, name in theirs)]
    names += [ROW, REVISION] if amend is not None else []
    check_new_names([name for _, name in theirs], where)
    check_apart(names, where)
    return Enriched(
        tuple(names), where, stream, table, equal, mode, how, wait or timedelta(0), amend, prefix
    )
