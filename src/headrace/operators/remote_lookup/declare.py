"""Declaration of a remote lookup."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar

import pyarrow as pa

from headrace.errors import InvalidPipeline
from headrace.pipeline.arguments import declaration
from headrace.pipeline.expressions import not_there
from headrace.pipeline.stream import RowStep, Stream, Text, Wanted
from headrace.pipeline.where import Where, caller
from headrace.schema.ddl import format_schema, parse_schema

Fetch = Callable[[Sequence[Any]], Mapping[Any, Mapping[str, Any]]]
"""Maps keys to rows. Unknown keys are left out."""


@dataclass(frozen=True)
class Remote:
    """A remote table: a function that fetches rows by key, with a timeout and a cache."""

    fetch: Fetch
    schema: pa.Schema
    key: str
    timeout: timedelta
    cache: int
    cache_for: timedelta
    where: Where = field(repr=False, compare=False)
    noun: ClassVar[str] = "a remote table"

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.schema.names)


@dataclass(frozen=True)
class Fetched(RowStep):
    """Rows of a stream with the columns fetched for their keys."""

    remote: Remote
    on: tuple[str, str]
    how: str
    prefix: str
    package = "headrace.operators.remote_lookup"

    @property
    def from_remote(self) -> tuple[tuple[str, str], ...]:
        """Pairs of a remote column and its name in the result."""
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


@declaration
def remote(
    fetch: Fetch,
    *,
    schema: str,
    key: str,
    timeout: timedelta = timedelta(seconds=5),
    cache: int = 100_000,
    cache_for: timedelta = timedelta(minutes=1),
) -> Remote:
    """A remote table for `enrich`.

    `fetch` takes a list of distinct keys and returns a mapping from the known ones to their rows.
    Spark's workers call it once per batch of rows. If a call takes longer than `timeout`, the
    pipeline fails. Each worker caches up to `cache` answers for `cache_for`.
    """
    where = caller()
    columns = parse_schema(schema)
    if key not in columns.names:
        raise not_there(f"The key {key!r} is not in the schema", key, columns.names, where)
    if timeout <= timedelta(0) or cache_for < timedelta(0) or cache < 0:
        raise InvalidPipeline(
            f"Invalid timeout {timeout}, or invalid cache of {cache:,} for {cache_for}",
            hint=f"timeout must be positive, cache and cache_for not negative. See {where}",
        )
    return Remote(fetch, columns, key, timeout, cache, cache_for, where)
