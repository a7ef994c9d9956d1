"""A table somewhere else, that is asked for each batch of keys: for comparison with one of our own.

It is always as new as its database, and as slow. What it says today it need not say tomorrow, so a
replay may tell something else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pyarrow as pa

from headrace.errors import InvalidPipeline
from headrace.pipeline.expressions import not_there
from headrace.pipeline.stream import RowStep, Stream, Text, Wanted
from headrace.pipeline.where import Where, caller
from headrace.schema.ddl import format_schema, parse_schema

Fetch = Callable[[Sequence[Any]], Mapping[Any, Mapping[str, Any]]]
"""Given keys, returns a row for each of those that are known."""


@dataclass(frozen=True)
class Remote:
    """Rows that a function fetches by key, and for how long an answer may be used again."""

    fetch: Fetch
    schema: pa.Schema
    key: str
    timeout: timedelta
    cache: int
    cache_for: timedelta
    where: Where = field(repr=False, compare=False)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.schema.names)


@dataclass(frozen=True)
class Fetched(RowStep):
    """Rows of a stream, each with what was fetched for its key."""

    input: Stream
    remote: Remote
    on: tuple[str, str]
    how: str
    prefix: str
    package = "headrace.operators.remote_lookup"

    @property
    def upstream(self) -> tuple[Stream, ...]:
        return (self.input,)

    @property
    def from_remote(self) -> tuple[tuple[str, str], ...]:
        """The columns that a row gets, and what they are called there."""
        names = (name for name in self.remote.columns if name != self.remote.key)
        return tuple((name, self.prefix + name) for name in names)

    def reads(self, wanted: Wanted) -> Iterator[tuple[Stream, Wanted]]:
        made = {name for _, name in self.from_remote}
        yield self.input, None if wanted is None else (wanted - made) | {self.on[0]}

    def definition(self, text: Text) -> dict[str, Any]:
        schema = format_schema(self.remote.schema)
        return {
            "fetch": [*self.on, self.how, self.prefix, schema],
            "of": self.input.definition(text),
        }


def remote(
    fetch: Fetch,
    *,
    schema: str,
    key: str,
    timeout: timedelta = timedelta(seconds=5),
    cache: int = 100_000,
    cache_for: timedelta = timedelta(minutes=1),
) -> Remote:
    """A table that is asked with a function, for `enrich`.

    `fetch` is given a list of keys, each once, and returns a mapping from those that are known to
    their rows. It runs where Spark does, in batches. If it takes longer than `timeout`, the
    pipeline stops and says so. Up to `cache` answers are used again for the time of `cache_for`.
    """
    where = caller()
    columns = parse_schema(schema)
    if key not in columns.names:
        raise not_there(f"The key {key!r} is not in the schema", key, columns.names, where)
    if not callable(fetch):
        raise InvalidPipeline(f"{fetch!r} cannot be called", hint=f"Give a function. See {where}")
    if timeout <= timedelta(0) or cache_for < timedelta(0) or cache < 0:
        raise InvalidPipeline(
            f"A timeout of {timeout}, or a cache of {cache:,} for {cache_for}, makes no sense",
            hint=f"See {where}",
        )
    return Remote(fetch, columns, key, timeout, cache, cache_for, where)
