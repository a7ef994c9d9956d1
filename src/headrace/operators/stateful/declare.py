"""Declaration of keyed state in a user's Python function."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

import pyarrow as pa

from headrace.clock import micros
from headrace.errors import InvalidPipeline, InvalidSchema
from headrace.log.settings import format_span
from headrace.pipeline.arguments import declaration
from headrace.pipeline.chains import check_readable, read_directly, topics_read
from headrace.pipeline.expressions import not_there
from headrace.pipeline.row_steps import check_new_names, with_keys
from headrace.pipeline.stream import KeyedState, Stream, Text
from headrace.pipeline.time import warn_of_arrival
from headrace.pipeline.where import Where, caller
from headrace.schema.ddl import format_schema, parse_schema

Function = Callable[[pa.Table, pa.Table], tuple[Any, Any]]
"""Maps the state and the new events of some keys to their new state and output."""

Order = Literal["time", "arrival"]
OnError = Literal["stop", "dead letter"]

TIMER = "timer"
"""The state column with the time at which the function is called without an event."""

_MOST_BUCKETS = 10_000


@dataclass(frozen=True)
class Stateful(KeyedState):
    """The output of a function over the rows and the state of each key.

    `identity` changes with the function. `kept` has the state columns without the key.
    """

    function: Function = field(repr=False)
    identity: tuple[str, str]
    kept: pa.Schema
    output: pa.Schema
    ttl: timedelta
    order: Order
    buckets: int
    on_error: OnError
    event_time: str | None
    with_key: bool
    """True if the output starts with the key columns."""
    noun = "a stateful step"

    @property
    def time(self) -> str | None:
        return self.event_time

    def output_time(self, columns: Sequence[str]) -> str | None:
        return self.event_time

    def late_time(self, columns: Sequence[str]) -> str:
        return "watermark"  # the input may have dropped its event time

    def uses(self, column: str) -> list[str]:
        return [*self.input.uses(column), *["state is keyed by it"] * (column in self.by)]

    def definition(self, text: Text) -> dict[str, Any]:
        return {
            "function": list(self.identity),
            "by": self.by,
            "state": format_schema(self.kept),
            "output": format_schema(self.output) + " with the key" * self.with_key,
            "delay": micros(self.delay),
            "ttl": micros(self.ttl),
            "order": self.order,
            "buckets": f"{self.buckets}, spread evenly",  # by `labels`, which are in the state
            "of": self.input.definition(text),
        }

    def output_of(self, columns: pa.Schema) -> pa.Schema:
        """The output columns, for input rows with these columns."""
        key = [columns.field(name) for name in self.by] if self.with_key else []
        return pa.schema([*key, *self.output])


@declaration
def stateful(
    stream: Stream,
    function: Function,
    *,
    by: str | Sequence[str],
    state: str,
    output: str,
    delay: timedelta,
    ttl: timedelta,
    order: Order = "time",
    buckets: int = 8,
    on_error: OnError = "stop",
    event_time: str | None = None,
    version: str | None = None,
    with_key: bool = False,
) -> Stateful:
    """The output of `function(state, events)`, called with the rows of many keys at once.

    Both are Arrow tables. `state` has a row for each key with state: the columns of `by`, and those
    declared as DDL. `events` are the new rows, grouped by key and in order. The function returns
    the state to keep, a row for each key, and rows of the declared `output`. A key that it does not
    return is forgotten.

    With order="time", rows wait until the highest event time is `delay` past them, and come in
    event-time order. With order="arrival", they come at once, in log order. A row that arrives
    `delay` or more behind the highest event time of its topic is in `late`. A key is forgotten once
    the watermark is `ttl` past its newest row. If the state has a column `timer`, the function is
    called again, without an event, when the watermark passes that time.

    State is kept in `buckets`, each written whole when it changes. If the function raises,
    `on_error` selects whether the pipeline stops or the rows of that key become dead letters.
    `event_time` names the event-time column of the output. By default a new text of the function is
    a new step; with a `version`, only a new version is. With `with_key`, the output starts with the
    columns of `by`.
    """
    where = caller()
    stream, keys = with_keys(stream, by, where)
    if not keys:
        raise InvalidPipeline("State needs a key", hint=f"by='user'? See {where}")
    for key in keys:
        if key not in stream.columns:
            raise not_there(f"There is no column {key!r} to keep state by", key,
                            stream.columns, where)  # fmt: skip
    warn_of_arrival([source.topic for source in topics_read(stream)], keys, where)
    check_readable(stream, where)
    _check_choices(delay, ttl, buckets, where)
    kept, made = _columns("state", state, where), _columns("output", output, where)
    both = sorted({*kept.names} & {*keys})
    if both:
        raise InvalidPipeline(
            f"The state has a column {both[0]!r}, which is already in its key",
            hint=f"Remove it: the state always includes the key. See {where}",
        )
    if TIMER in kept.names and not pa.types.is_timestamp(kept.field(TIMER).type):
        raise InvalidPipeline(
            f"The state column {TIMER!r} is {kept.field(TIMER).type}, not a timestamp",
            hint=f"It is the time of the next call without an event: {TIMER} timestamp. "
            f"See {where}",
        )
    identity = _identity_of(function, version)
    time = _time_of(made, event_time, stream, where)
    columns = (*keys, *made.names) if with_key else tuple(made.names)
    if len(set(columns)) != len(columns):
        raise InvalidPipeline(
            f"Two columns of the output have the same name: {', '.join(columns)}",
            hint=f"with_key already adds the key. See {where}",
        )
    return Stateful(
        columns, where, stream, keys, delay, function, identity, kept, made, ttl, order, buckets,
        on_error, time, with_key,
    )  # fmt: skip


def _check_choices(delay: timedelta, ttl: timedelta, buckets: int, where: Where) -> None:
    if delay < timedelta(0):
        raise InvalidPipeline(
            f"delay cannot be negative: {format_span(delay)}", hint=f"See {where}"
        )
    if ttl <= timedelta(0):
        raise InvalidPipeline(
            f"ttl must be positive: {format_span(ttl)}",
            hint=f"It is the time for which a key without new rows is kept. See {where}",
        )
    if buckets < 1:
        raise InvalidPipeline(f"buckets cannot be {buckets!r}", hint=f"Use 1 or more. See {where}")
    if buckets > _MOST_BUCKETS:
        raise InvalidPipeline(
            f"buckets cannot be {buckets:,}: each is visited in every batch",
            hint=f"A few per core are enough. See {where}",
        )


def _columns(what: str, ddl: str, where: Where) -> pa.Schema:
    try:
        schema = parse_schema(ddl)
    except InvalidSchema as error:
        raise InvalidPipeline(
            f"Cannot parse the {what} {ddl!r}: {error.message}", hint=f"{error.hint}. See {where}"
        ) from None
    check_new_names(schema.names, where)
    return pa.schema([field.with_nullable(True) for field in schema])


def _time_of(made: pa.Schema, named: str | None, stream: Stream, where: Where) -> str | None:
    """The event-time column of the output, if there is one."""
    if named is None:
        times = [part.time for part in read_directly(stream)]
        named = next((time for time in times if time in made.names), None)
        return named if named and pa.types.is_timestamp(made.field(named).type) else None
    if named not in made.names:
        raise not_there(f"The output has no column {named!r}", named, made.names, where)
    if not pa.types.is_timestamp(made.field(named).type):
        raise InvalidPipeline(
            f"The event time {named!r} of the output is {made.field(named).type}",
            hint=f"It must be a timestamp. See {where}",
        )
    return named


def _identity_of(function: Callable[..., Any], version: str | None) -> tuple[str, str]:
    """The name of a function and its version, or else a digest of its source or code.

    The functions that it calls do not count.
    """
    kind = function if inspect.isroutine(function) else type(function)
    name = getattr(kind, "__qualname__", repr(kind))
    if version is not None:
        return name, f"version {version}"
    if (own := getattr(function, "identity", None)) is not None:
        return name, str(own)
    return name, hashlib.sha256(_text_of(kind)).hexdigest()[:16]


def _text_of(kind: Any) -> bytes:
    try:
        return inspect.getsource(kind).encode()
    except (OSError, TypeError):
        code = getattr(kind, "__code__", None)
        return repr((code.co_code, code.co_consts, code.co_names) if code else kind).encode()
