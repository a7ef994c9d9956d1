"""Streams, and the steps from one to the next.

Each step is a value that names its input. A step never changes when a row happened: the event time
is that of the topic the row came from, and so are its commit and its place in the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar, Literal

from headrace.errors import InvalidPipeline
from headrace.log.state import Topic
from headrace.operators.window.aggregates import Aggregate
from headrace.pipeline.arrival import warn_of_arrival
from headrace.pipeline.expressions import Expression, check_columns
from headrace.pipeline.time import AnyWindow, Lateness, Session
from headrace.pipeline.where import Where, caller

if TYPE_CHECKING:
    from headrace.operators.alerts.declare import Alerts
    from headrace.operators.dedup.declare import Deduplicated
    from headrace.operators.stateful.declare import Stateful
    from headrace.operators.stream_join.declare import Join

Emit = Literal["updates", "final"]

WINDOW_START, WINDOW_END = "window_start", "window_end"
RANK = "rank"


@dataclass(frozen=True)
class Stream:
    """A stream of rows with these columns, declared at `where`."""

    columns: tuple[str, ...]
    where: Where = field(repr=False, compare=False)

    is_result: ClassVar[bool] = False
    """Whether its rows are results of several, which have no event time of their own."""

    @property
    def upstream(self) -> tuple[Stream, ...]:
        """The streams that it is made of."""
        return ()


@dataclass(frozen=True)
class Source(Stream):
    """The rows of a topic."""

    topic: Topic


@dataclass(frozen=True)
class Filter(Stream):
    """The rows for which a condition is true."""

    input: Stream
    condition: Expression

    @property
    def upstream(self) -> tuple[Stream, ...]:
        return (self.input,)


@dataclass(frozen=True)
class Project(Stream):
    """Rows with other columns: an expression for each."""

    input: Stream
    expressions: tuple[tuple[str, Expression], ...]

    @property
    def upstream(self) -> tuple[Stream, ...]:
        return (self.input,)


@dataclass(frozen=True)
class Explode(Stream):
    """A row for each element of an array."""

    input: Stream
    array: Expression
    into: str

    @property
    def upstream(self) -> tuple[Stream, ...]:
        return (self.input,)


@dataclass(frozen=True)
class Merge(Stream):
    """The rows of several streams that have the same columns."""

    inputs: tuple[Stream, ...]

    @property
    def upstream(self) -> tuple[Stream, ...]:
        return self.inputs


@dataclass(frozen=True)
class Aggregation(Stream):
    """Rows counted by key and window. `late` is the stream of those that came too late."""

    input: Stream
    by: tuple[str, ...]
    window: AnyWindow
    lateness: Lateness
    emit: Emit
    aggregates: tuple[tuple[str, Aggregate], ...]
    is_result = True

    @property
    def upstream(self) -> tuple[Stream, ...]:
        return (self.input,)

    @property
    def patience(self) -> timedelta:
        """How long after the end of its window a row may come and still count."""
        return self.lateness.delay + self.lateness.grace

    @property
    def late(self) -> Late:
        """The rows that were too late, with their window, watermark and lateness."""
        extra = (WINDOW_START, WINDOW_END, "watermark", "late_by")
        return Late((*self.input.columns, *extra), self.where, self)


@dataclass(frozen=True)
class Late(Stream):
    """The rows that a step did without because they came too late."""

    of: Aggregation | Join | Deduplicated | Stateful | Alerts
    is_result = True

    @property
    def upstream(self) -> tuple[Stream, ...]:
        return (self.of,)


@dataclass(frozen=True)
class Top(Stream):
    """For each window, and each value of `within`, the `n` rows with the highest value of `by`.

    Sessions begin and end each at its own time, so those that are not final are ranked together:
    the board is live.
    """

    of: Aggregation
    n: int
    by: str
    within: tuple[str, ...]
    is_result = True

    @property
    def upstream(self) -> tuple[Stream, ...]:
        return (self.of,)

    @property
    def live(self) -> bool:
        """Whether it ranks what is there now, and not each window by itself."""
        return isinstance(self.of.window, Session)

    @property
    def group(self) -> tuple[str, ...]:
        """What rows have in common that are ranked together."""
        return self.within if self.live else (*self.within, WINDOW_START)

    @property
    def key(self) -> tuple[str, ...]:
        """What a place is known by."""
        return (*self.group, RANK)

    @property
    def emit(self) -> Emit:
        return self.of.emit

    @property
    def lateness(self) -> Lateness:
        return self.of.lateness


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
        raise InvalidPipeline("There is nothing to merge", hint=f"See {where}")
    for stream in streams[1:]:
        if sorted(stream.columns) != sorted(streams[0].columns):
            raise InvalidPipeline(
                f"Streams with different columns cannot be merged: "
                f"{', '.join(streams[0].columns)} and {', '.join(stream.columns)}",
                hint=f"Bring them to the same columns with select() first. See {where}",
            )
    return Merge(streams[0].columns, where, streams)


def split(stream: Stream, **conditions: Expression) -> dict[str, Filter]:
    """Several streams by name, each with the rows for which its condition is true."""
    return {name: filter(stream, condition) for name, condition in conditions.items()}


def rekey(stream: Stream, **key: Expression) -> Project:
    """The same rows with a new column to go by; `by=` then names it."""
    return derive(stream, **key)


def aggregate(
    stream: Stream,
    *,
    by: str | Sequence[str],
    window: AnyWindow,
    lateness: Lateness,
    emit: Emit = "updates",
    **aggregates: Aggregate,
) -> Aggregation:
    """The rows of a stream, aggregated by key and window of event time.

    `emit` says what a reader gets to see: `updates`, each with a revision, from the first row of
    a window on, or the `final` result once, when nothing can change it any more.
    """
    where = caller()
    keys = (by,) if isinstance(by, str) else tuple(by)
    if keys:
        warn_of_arrival([source.topic for source in _sources(stream)], keys, where)
    if not aggregates:
        raise InvalidPipeline(
            "An aggregation needs an aggregate", hint=f"hits=count()? See {where}"
        )
    if has_results(stream):
        raise InvalidPipeline(
            "An aggregation of what is already aggregated has no event time of its own",
            hint=f"Publish the first to a topic and aggregate that. See {where}",
        )
    for key in keys:
        if key not in stream.columns:
            check_columns(f"`{key}`", stream.columns, where)
    for made in aggregates.values():
        if made.of is not None:
            check_columns(made.of, stream.columns, where)
    if emit not in ("updates", "final"):
        raise InvalidPipeline(f"emit cannot be {emit!r}", hint=f"Use updates or final. See {where}")
    names = (*keys, WINDOW_START, WINDOW_END, *aggregates)
    check_new_names(list(aggregates), where)
    if len(set(names)) != len(names):
        raise InvalidPipeline(
            f"Two columns have the same name: {', '.join(names)}", hint=str(where)
        )
    return Aggregation(
        names, where, stream, keys, window, lateness, emit, tuple(aggregates.items())
    )


def sources(stream: Stream) -> tuple[Source, ...]:
    """The topics that a stream is made of, each once, in order."""
    found: Mapping[str, Source] = {s.topic.name: s for s in _sources(stream)}
    return tuple(found.values())


def _sources(stream: Stream) -> list[Source]:
    if isinstance(stream, Source):
        return [stream]
    return [source for part in stream.upstream for source in _sources(part)]


def has_results(stream: Stream) -> bool:
    """Whether a stream is made of results, which have no event time of their own."""
    return stream.is_result or any(map(has_results, stream.upstream))


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
    """Return if columns may be called so."""
    for name in names:
        if name.startswith("_"):
            raise InvalidPipeline(
                f"A column cannot be called {name!r}",
                hint=f"Names with an underscore in front are the log's own. See {where}",
            )
