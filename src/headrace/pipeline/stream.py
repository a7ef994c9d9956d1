"""Streams: declarations that name their inputs and describe themselves without running.

A step never changes the event time of a row, its commit or its place in the log.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from headrace.errors import InvalidPipeline
from headrace.log.state import Topic
from headrace.pipeline.expressions import Expression
from headrace.pipeline.time import WINDOW_START
from headrace.pipeline.where import Where
from headrace.schema.ddl import format_schema

if TYPE_CHECKING:
    from headrace.pipeline.output import Output

Wanted = set[str] | None
"""Columns that a step uses; None if unknown."""

OF_LATE = ("watermark", "late_by")
"""The columns that a late row has beside its own."""

Text = Callable[[Expression], str]
"""The text of an expression, which may be a Spark Column."""


@dataclass(frozen=True)
class Stream:
    """A stream of rows with these columns, declared at `where`.

    The defaults below are those of a step that changes rows one by one.
    """

    columns: tuple[str, ...]
    where: Where = field(repr=False, compare=False)

    noun: ClassVar[str] = "a stream"
    example: ClassVar[str] = "app.topic(...) or a step such as hr.filter(...)"
    stands_for_stream: ClassVar[bool] = True
    """False if it is only for arguments that ask for its own class."""
    is_result: ClassVar[bool] = False
    """True if its rows are results, which other steps read through a topic of headrace's own."""
    has_panes: ClassVar[bool] = False
    """True if its rows are windows, which are published pane by pane."""
    changes_rows: ClassVar[bool] = False
    """True if its rows are updated and deleted, so that only a view can keep them."""
    has_checkpoint: ClassVar[bool] = True
    """False if Spark keeps neither its state nor its position: the store has both."""
    follows_slowest: ClassVar[bool] = True
    """True if its frontier is that of its slowest topic."""
    view_key_is: ClassVar[str] = ""
    """The name of its key if a view may add no columns to it, else empty."""

    @property
    def upstream(self) -> tuple[Stream, ...]:
        """The streams that it is made of."""
        return ()

    @property
    def looked_up(self) -> tuple[Stream, ...]:
        """Its lookup tables, whose rows it does not count."""
        return ()

    @property
    def computed(self) -> Stream:
        """The part that Spark computes. The store does the rest."""
        return self

    @property
    def roles(self) -> tuple[str, ...]:
        """A name for each upstream, where there are several. Names of inner steps end with it."""
        several = len(self.upstream) > 1
        return tuple(str(n) if several else "" for n, _ in enumerate(self.upstream, 1))

    @property
    def settled(self) -> Stream:
        """The same results for another step to read: each row once, when it is final."""
        return self

    @property
    def unreadable(self) -> tuple[str, str] | None:
        """The reason why another step cannot read its rows, and the alternative, or None."""
        return None

    @property
    def holds_back(self) -> timedelta | None:
        """The most that its later rows can be behind its frontier; None if there is no bound."""
        return None

    @property
    def view_key(self) -> tuple[str, ...] | None:
        """The columns that make a row of a view unique; None if the user has to name them."""
        return None

    @property
    def time(self) -> str | None:
        """The event time of its rows: a column, or an expression over columns; None if lost."""
        return None

    @property
    def watermark_delay(self) -> timedelta:
        """The delay of its watermark behind the frontier."""
        return timedelta(0)

    @property
    def in_order(self) -> bool:
        """True if results depend on the order of rows in the log."""
        return False

    @property
    def has_spark_state(self) -> bool:
        """True if Spark's checkpoint has state for it."""
        return False

    @property
    def keyed_by(self) -> tuple[str, ...]:
        """The key columns of its state; empty if it has none."""
        return ()

    def type_of(self, column: str) -> pa.DataType | None:
        """The type of a column, if the schemas of topics tell; case does not matter."""
        return None

    def output_time(self, columns: Sequence[str]) -> str | None:
        """The event-time column of the topic that it is published to, if it has one."""
        times = (source.topic.event_time for source in sources(self))
        return next((time for time in times if time in columns), None)

    def late_time(self, columns: Sequence[str]) -> str:
        """The event-time column of the topic that its late rows are published to."""
        other = WINDOW_START if WINDOW_START in columns else "watermark"
        return Stream.output_time(self, columns) or other

    def rewired(self, change: Callable[[Stream], Stream]) -> Stream:
        """The same stream, of other upstreams."""
        parts = {id(part) for part in self.upstream}
        made: dict[str, Any] = {}
        for one in fields(self):
            value = getattr(self, one.name)
            if isinstance(value, tuple) and any(id(part) in parts for part in value):
                made[one.name] = tuple(map(change, value))
            elif id(value) in parts:
                made[one.name] = change(value)
        return replace(self, **made)

    def reads(self, wanted: Wanted) -> Iterator[tuple[Stream, Wanted]]:
        """The columns of each upstream that it needs to produce the wanted ones."""
        return ((part, set(part.columns)) for part in self.upstream)

    def uses(self, column: str) -> list[str]:
        """The uses of a column of its topics, in words."""
        return [text for part in self.upstream for text in part.uses(column)]

    def definition(self, text: Text) -> dict[str, Any]:
        """The computation as plain data, to detect changed declarations."""
        raise TypeError(f"not a stream to run: {self}")

    def show(self, n: int = 10, **options: Any) -> Any:
        """The last `n` rows over the newest part of the log, as `hr.show` does, with its options.

        The result is a table in a terminal and in a notebook.
        """
        # It computes them, which is downstream of declarations.
        return importlib.import_module("headrace.application.show").show(self, n, **options)

    def check_output(self, output: Output) -> None:
        """Check that an output can publish it as declared."""
        if output.is_selective:
            raise InvalidPipeline(
                f"The stream published to {output.topic!r} has no panes: rows are written once",
                hint="early and retractions are for aggregations and steps after them. "
                f"See {output.where}",
            )


@dataclass(frozen=True)
class Source(Stream):
    """The rows of a topic. `partitions` is None if the declaration does not say how many."""

    topic: Topic
    partitions: int | None = None
    log: str | None = field(default=None, repr=False, compare=False)
    """The log of the application that declares it, if that names one."""

    @property
    def time(self) -> str | None:
        return self.topic.event_time

    def type_of(self, column: str) -> pa.DataType | None:
        types = {field.name.lower(): field.type for field in self.topic.schema or ()}
        return types.get(column.lower())

    def definition(self, text: Text) -> dict[str, Any]:
        schema = format_schema(self.topic.schema) if self.topic.schema is not None else None
        return {"topic": self.topic.name, "schema": schema, "event_time": self.topic.event_time}


@dataclass(frozen=True)
class Unary(Stream):
    """A stream that is made of one other stream."""

    input: Stream

    @property
    def upstream(self) -> tuple[Stream, ...]:
        return (self.input,)


@dataclass(frozen=True)
class Late(Stream):
    """The late rows of a step: its side output."""

    of: Stream
    noun = "a side output of late rows"
    is_result = True
    unreadable = (
        "a side output belongs to the step that writes it",
        "Publish it with app.publish('late', ...), declare that topic with app.topic('late', ...), "
        "and read that",
    )

    @property
    def upstream(self) -> tuple[Stream, ...]:
        return (self.of,)


@dataclass(frozen=True)
class Keyed(Unary):
    """The results of rows that are compared by key, and late `delay` behind their topic."""

    by: tuple[str, ...]
    delay: timedelta
    is_result = True

    @property
    def watermark_delay(self) -> timedelta:
        return self.delay

    @property
    def time(self) -> str | None:
        return self.input.time

    @property
    def late(self) -> Late:
        """The rows that arrived too late, with the watermark at that time and their lateness."""
        return Late((*self.input.columns, *OF_LATE), self.where, self)


@dataclass(frozen=True)
class KeyedState(Keyed):
    """The results of rows in log order, and of the state that Spark keeps by key."""

    @property
    def in_order(self) -> bool:
        return True

    @property
    def has_spark_state(self) -> bool:
        return True

    @property
    def keyed_by(self) -> tuple[str, ...]:
        return self.by


@dataclass(frozen=True)
class RowStep(Unary):
    """A step that changes rows one by one and has an operator's folder of its own.

    Its modules `spark` and `meaning` define `rows`. They are downstream, so found by name.
    """

    package: ClassVar[str]
    judges_rows: ClassVar[bool] = False
    """True if it refuses rows, which are dead letters."""

    @property
    def time(self) -> str | None:
        return self.input.time

    def refusal(self, row: Mapping[str, Any]) -> str | None:
        """The reason why it refuses a row of its input, or None."""
        return None


def sources(stream: Stream) -> tuple[Source, ...]:
    """The topics that a stream reads, each once, in order."""
    found = {source.topic.name: source for source in all_sources(stream)}
    return tuple(found.values())


def all_sources(stream: Stream) -> list[Source]:
    """The topics that a stream reads, once for each path from topic to stream."""
    if isinstance(stream, Source):
        return [stream]
    return [source for part in stream.upstream for source in all_sources(part)]


def check_topic(there: Topic, source: Source) -> None:
    """Check that an existing topic is as a source declares it.

    It may have more columns, and its structs more fields: a captured table may have columns that
    nobody has declared.
    """
    wanted = source.topic
    assert wanted.schema is not None
    fields = {} if there.schema is None else {field.name: field.type for field in there.schema}
    wrong = [f.name for f in wanted.schema if not _has(fields.get(f.name), f.type)]
    if wrong or there.event_time != wanted.event_time:
        schema = "raw bytes" if there.schema is None else format_schema(there.schema)
        raise InvalidPipeline(
            f"Topic {there.name!r} is not as declared: it has {schema}, with the event time "
            f"{there.event_time!r}",
            hint=f"Change the declaration to match, or use another topic. See {source.where}",
        )


def _has(there: pa.DataType | None, wanted: pa.DataType) -> bool:
    """True if a type is the wanted one, or a struct with its fields and maybe more."""
    if there == wanted:
        return True
    if there is None or not pa.types.is_struct(there) or not pa.types.is_struct(wanted):
        return False
    fields = {field.name: field.type for field in there}
    return all(_has(fields.get(field.name), field.type) for field in wanted)


def contains(stream: Stream, *kinds: type[Stream]) -> bool:
    """True if a stream or a step before it is of one of these kinds."""
    return isinstance(stream, kinds) or any(contains(part, *kinds) for part in stream.upstream)
