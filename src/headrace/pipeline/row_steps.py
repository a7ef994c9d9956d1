"""Steps that change rows one by one, the columns they read, and the paths that rows take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.errors import InvalidPipeline
from headrace.pipeline.arguments import declaration
from headrace.pipeline.expressions import Expression, check_columns, columns_in, names_column
from headrace.pipeline.stream import Source, Stream, Text, Unary, Wanted, all_sources, contains
from headrace.pipeline.types import check_condition, check_types, type_of
from headrace.pipeline.where import Where, caller, declared_at
from headrace.schema.ddl import format_type


@dataclass(frozen=True)
class Filter(Unary):
    """The rows for which a condition is true."""

    condition: Expression

    @property
    def time(self) -> str | None:
        return self.input.time

    def reads(self, wanted: Wanted) -> Iterator[tuple[Stream, Wanted]]:
        yield self.input, _with(wanted, self.condition, self.where)

    def type_of(self, column: str) -> pa.DataType | None:
        return self.input.type_of(column)

    def uses(self, column: str) -> list[str]:
        said = names_column(self.condition, column, self.where)
        dropped = [f"the filter {self.condition!r} drops rows where it is null"] * said
        return [*self.input.uses(column), *dropped]

    def definition(self, text: Text) -> dict[str, Any]:
        return {"filter": text(self.condition), "of": self.input.definition(text)}


@dataclass(frozen=True)
class Project(Unary):
    """Rows with other columns: an expression for each."""

    expressions: tuple[tuple[str, Expression], ...]

    @property
    def time(self) -> str | None:
        time = self.input.time
        if time is None:
            return None
        named = [name for name, made in self.expressions if made in (time, f"`{time}`")]
        if named or time in self.input.columns:
            return named[0] if named else None
        kept = {name for name, made in self.expressions if made in (name, f"`{name}`")}
        return time if columns_in(time, self.where) <= kept else None

    def reads(self, wanted: Wanted) -> Iterator[tuple[Stream, Wanted]]:
        needed: Wanted = set()
        lower = None if wanted is None else {column.lower() for column in wanted}
        for name, made in self.expressions:
            if lower is None or name.lower() in lower:
                needed = _with(needed, made, self.where)
        yield self.input, needed

    def type_of(self, column: str) -> pa.DataType | None:
        made = {name.lower(): made for name, made in self.expressions}.get(column.lower())
        return type_of(made, self.input.type_of, self.where)

    def uses(self, column: str) -> list[str]:
        made = [
            f"{name} is computed from it"
            for name, made in self.expressions
            if name != column and names_column(made, column, self.where)
        ]
        return [*self.input.uses(column), *made]

    def definition(self, text: Text) -> dict[str, Any]:
        made = [[name, text(made)] for name, made in self.expressions]
        return {"project": made, "of": self.input.definition(text)}


@dataclass(frozen=True)
class Explode(Unary):
    """A row for each element of an array."""

    array: Expression
    into: str

    @property
    def time(self) -> str | None:
        time = self.input.time
        if time is None or time in self.input.columns:
            return None if time == self.into else time
        return None if self.into in columns_in(time, self.where) else time

    def reads(self, wanted: Wanted) -> Iterator[tuple[Stream, Wanted]]:
        rest = None if wanted is None else wanted - {self.into}
        yield self.input, _with(rest, self.array, self.where)

    def type_of(self, column: str) -> pa.DataType | None:
        if column.lower() != self.into.lower():
            return self.input.type_of(column)
        array = type_of(self.array, self.input.type_of, self.where)
        return array.value_type if array is not None else None

    def definition(self, text: Text) -> dict[str, Any]:
        return {"explode": [text(self.array), self.into], "of": self.input.definition(text)}


@dataclass(frozen=True)
class Merge(Stream):
    """The rows of several streams that have the same columns."""

    inputs: tuple[Stream, ...]

    @property
    def upstream(self) -> tuple[Stream, ...]:
        return self.inputs

    @property
    def time(self) -> str | None:
        times = {part.time for part in self.inputs}
        return times.pop() if len(times) == 1 else None

    def reads(self, wanted: Wanted) -> Iterator[tuple[Stream, Wanted]]:
        return ((part, wanted) for part in self.inputs)

    def type_of(self, column: str) -> pa.DataType | None:
        types = {part.type_of(column) for part in self.inputs}
        return types.pop() if len(types) == 1 else None

    def definition(self, text: Text) -> dict[str, Any]:
        return {"merge": [part.definition(text) for part in self.inputs]}


@declaration
def filter(stream: Stream, condition: Expression) -> Filter:
    """The rows for which the condition is true, as SQL's WHERE."""
    where = caller()
    check_columns(condition, stream.columns, where)
    check_types(condition, stream.type_of, where)
    check_condition(condition, stream.type_of, where)
    return Filter(stream.columns, where, stream, condition)


@declaration
def select(stream: Stream, *columns: str, **derived: Expression) -> Project:
    """Rows with only the columns named, and those derived from them."""
    where = caller()
    chosen = [(name, f"`{name}`") for name in columns]
    return project(stream, [*chosen, *derived.items()], where)


@declaration
def derive(stream: Stream, **derived: Expression) -> Project:
    """The same rows with more columns, or with some replaced."""
    kept = [(name, derived.get(name, f"`{name}`")) for name in stream.columns]
    new = [(name, made) for name, made in derived.items() if name not in stream.columns]
    return project(stream, [*kept, *new], caller())


@declaration
def explode(stream: Stream, array: Expression, *, into: str) -> Explode:
    """A row for each element of an array, in the column `into`. An empty array gives none."""
    where = caller()
    check_columns(array, stream.columns, where)
    kind = type_of(array, stream.type_of, where)
    if kind is not None and not pa.types.is_list(kind):
        raise InvalidPipeline(
            f"{array!r} is {format_type(kind)}, not an array",
            hint=f"Make one with split(...) or array(...). See {where}",
        )
    check_new_names([into], where)
    columns = tuple(name for name in stream.columns if name != into)
    return Explode((*columns, into), where, stream, array, into)


@declaration
def merge(*streams: Stream) -> Merge:
    """The rows of all the streams, which need the same columns."""
    where = caller()
    if not streams:
        raise InvalidPipeline("merge() needs a stream", hint=f"See {where}")
    for stream in streams[1:]:
        if sorted(stream.columns) != sorted(streams[0].columns):
            raise InvalidPipeline(
                f"Streams with different columns cannot be merged: "
                f"{', '.join(streams[0].columns)} and {', '.join(stream.columns)}",
                hint=f"Give them the same columns with select() first. See {where}",
            )
    return Merge(streams[0].columns, where, streams)


@declaration
def split(stream: Stream, **conditions: Expression) -> dict[str, Filter]:
    """Several streams by name, each with the rows for which its condition is true."""
    return {name: filter(stream, condition) for name, condition in conditions.items()}


@declaration
def rekey(stream: Stream, **key: Expression) -> Project:
    """The same rows with a new key column, for `by=`."""
    return derive(stream, **key)


def with_keys(
    stream: Stream, by: str | Sequence[str], where: Where
) -> tuple[Stream, tuple[str, ...]]:
    """A stream and its key columns. The path `user.country` becomes a column `country`."""
    names = (by,) if isinstance(by, str) else tuple(by)
    there = {name.lower() for name in stream.columns}
    made: dict[str, Expression] = {}
    keys = []
    for name in names:
        root, last = name.partition(".")[0], name.rpartition(".")[2]
        if name in stream.columns or root == name or root.lower() not in there:
            keys.append(name)
            continue
        if last.lower() in {*there, *(one.lower() for one in made)}:
            raise InvalidPipeline(
                f"The key {name!r} would be a second column {last!r}",
                hint=f"Give it a name first: derive(stream, {root}_{last}='{name}'). See {where}",
            )
        made[last] = name
        keys.append(last)
    if not made:
        return stream, names
    with declared_at(where):
        return derive(stream, **made), tuple(keys)


def project(stream: Stream, expressions: Sequence[tuple[str, Expression]], where: Where) -> Project:
    """Rows with these columns, in this order, each made by an expression."""
    for _, expression in expressions:
        check_columns(expression, stream.columns, where)
        check_types(expression, stream.type_of, where)
    names = tuple(name for name, _ in expressions)
    check_new_names(list(names), where)
    if len(set(names)) != len(names):
        raise InvalidPipeline(
            f"Two columns have the same name: {', '.join(names)}", hint=str(where)
        )
    return Project(names, where, stream, tuple(expressions))


def check_new_names(names: Sequence[str], where: Where) -> None:
    """Check that no name is reserved."""
    for name in names:
        if name.startswith("_"):
            raise InvalidPipeline(
                f"A column cannot be called {name!r}",
                hint=f"Names that start with an underscore are reserved. See {where}",
            )


def time_column(stream: Stream) -> str | None:
    """The column with the topic's event time, unchanged, if there is one."""
    return stream.time if stream.time in stream.columns else None


def _with(wanted: Wanted, expression: Expression, where: Where) -> Wanted:
    if wanted is None or not isinstance(expression, str):
        return None
    return wanted | columns_in(expression, where)


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
