"""Steps that change rows one by one: filter, select, derive, explode, merge, split."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.errors import InvalidPipeline
from headrace.pipeline.expressions import Expression, check_columns, columns_in, names_column
from headrace.pipeline.stream import Source, Stream, Text, Wanted
from headrace.pipeline.where import Where, caller


@dataclass(frozen=True)
class Filter(Stream):
    """The rows for which a condition is true."""

    input: Stream
    condition: Expression

    @property
    def upstream(self) -> tuple[Stream, ...]:
        return (self.input,)

    def reads(self, wanted: Wanted) -> Iterator[tuple[Stream, Wanted]]:
        yield self.input, _with(wanted, self.condition, self.where)

    def uses(self, column: str) -> list[str]:
        said = names_column(self.condition, column, self.where)
        dropped = [f"the filter {self.condition!r} drops rows where it is null"] * said
        return [*self.input.uses(column), *dropped]

    def definition(self, text: Text) -> dict[str, Any]:
        return {"filter": text(self.condition), "of": self.input.definition(text)}


@dataclass(frozen=True)
class Project(Stream):
    """Rows with other columns: an expression for each."""

    input: Stream
    expressions: tuple[tuple[str, Expression], ...]

    @property
    def upstream(self) -> tuple[Stream, ...]:
        return (self.input,)

    def reads(self, wanted: Wanted) -> Iterator[tuple[Stream, Wanted]]:
        needed: Wanted = set()
        lower = None if wanted is None else {column.lower() for column in wanted}
        for name, made in self.expressions:
            if lower is None or name.lower() in lower:
                needed = _with(needed, made, self.where)
        yield self.input, needed

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
class Explode(Stream):
    """A row for each element of an array."""

    input: Stream
    array: Expression
    into: str

    @property
    def upstream(self) -> tuple[Stream, ...]:
        return (self.input,)

    def reads(self, wanted: Wanted) -> Iterator[tuple[Stream, Wanted]]:
        rest = None if wanted is None else wanted - {self.into}
        yield self.input, _with(rest, self.array, self.where)

    def definition(self, text: Text) -> dict[str, Any]:
        return {"explode": [text(self.array), self.into], "of": self.input.definition(text)}


@dataclass(frozen=True)
class Merge(Stream):
    """The rows of several streams that have the same columns."""

    inputs: tuple[Stream, ...]

    @property
    def upstream(self) -> tuple[Stream, ...]:
        return self.inputs

    def reads(self, wanted: Wanted) -> Iterator[tuple[Stream, Wanted]]:
        return ((part, wanted) for part in self.inputs)

    def definition(self, text: Text) -> dict[str, Any]:
        return {"merge": [part.definition(text) for part in self.inputs]}


def filter(stream: Stream, condition: Expression) -> Filter:
    """The rows for which the condition is true, as SQL's WHERE."""
    where = caller()
    check_columns(condition, stream.columns, where)
    return Filter(stream.columns, where, stream, condition)


def select(stream: Stream, *columns: str, **derived: Expression) -> Project:
    """Rows with only the columns named, and those derived from them."""
    where = caller()
    chosen = [(name, f"`{name}`") for name in columns]
    return project(stream, [*chosen, *derived.items()], where)


def derive(stream: Stream, **derived: Expression) -> Project:
    """The same rows with more columns, or with some replaced."""
    kept = [(name, derived.get(name, f"`{name}`")) for name in stream.columns]
    new = [(name, made) for name, made in derived.items() if name not in stream.columns]
    return project(stream, [*kept, *new], caller())


def explode(stream: Stream, array: Expression, *, into: str) -> Explode:
    """A row for each element of an array, in the column `into`. An empty array gives none."""
    where = caller()
    check_columns(array, stream.columns, where)
    check_new_names([into], where)
    columns = tuple(name for name in stream.columns if name != into)
    return Explode((*columns, into), where, stream, array, into)


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


def split(stream: Stream, **conditions: Expression) -> dict[str, Filter]:
    """Several streams by name, each with the rows for which its condition is true."""
    return {name: filter(stream, condition) for name, condition in conditions.items()}


def rekey(stream: Stream, **key: Expression) -> Project:
    """The same rows with a new key column, for `by=`."""
    return derive(stream, **key)


def project(stream: Stream, expressions: Sequence[tuple[str, Expression]], where: Where) -> Project:
    """Rows with these columns, in this order, each made by an expression."""
    for _, expression in expressions:
        check_columns(expression, stream.columns, where)
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
    match stream:
        case Source():
            return stream.topic.event_time
        case Filter():
            return time_column(stream.input)
        case Project():
            time = time_column(stream.input)
            kept = [name for name, made in stream.expressions if made in (time, f"`{time}`")]
            return kept[0] if kept and time is not None else None
        case Explode():
            time = time_column(stream.input)
            return None if time == stream.into else time
        case Merge():
            times = {time_column(part) for part in stream.inputs}
            return times.pop() if len(times) == 1 else None
        case _:
            return None


def _with(wanted: Wanted, expression: Expression, where: Where) -> Wanted:
    if wanted is None or not isinstance(expression, str):
        return None
    return wanted | columns_in(expression, where)
