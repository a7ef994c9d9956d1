"""Declaration of deduplication."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from headrace.clock import micros
from headrace.errors import InvalidPipeline
from headrace.log.settings import format_span
from headrace.pipeline.arguments import declaration
from headrace.pipeline.chains import check_readable
from headrace.pipeline.expressions import check_columns
from headrace.pipeline.row_steps import with_keys
from headrace.pipeline.stream import OF_LATE, Keyed, Stream, Text
from headrace.pipeline.where import Where, caller

Keep = Literal["first", "last"]


@dataclass(frozen=True)
class Deduplicated(Keyed):
    """The rows of a stream without duplicates. `late` has the rows that arrived too late.

    A row with a new key opens a group. The group takes in all rows of the key with an event time
    less than `ttl` before or after that row. One row of each group is kept.
    """

    ttl: timedelta
    keep: Keep
    noun = "a deduplication"
    has_checkpoint = False

    def definition(self, text: Text) -> dict[str, Any]:
        spans = [self.keep, micros(self.ttl), micros(self.delay)]
        return {"distinct": spans, "by": self.by, "of": self.input.definition(text)}


@declaration
def deduplicate(
    stream: Stream,
    *,
    by: str | Sequence[str],
    ttl: timedelta,
    keep: Keep = "first",
    delay: timedelta,
) -> Deduplicated:
    """One row of each key within a time to live, measured in event time from the first row.

    Rows are taken in log order. A row is a duplicate if a row of its key was kept with an event
    time less than `ttl` before or after. With `keep="last"`, the last row of each group in the log
    is emitted instead, once, when the highest event time is `ttl` plus `delay` past the first row.
    A row that arrives `delay` or more behind the highest event time of its topic is in `late`. A
    row with a null in its key is never a duplicate, and is emitted at once.
    """
    where = caller()
    stream, keys = with_keys(stream, by, where)
    if not keys:
        raise InvalidPipeline(
            "Duplicates need a key", hint=f"by='id', or by=['user', 'event']. See {where}"
        )
    for name in keys:
        check_columns(f"`{name}`", stream.columns, where)
    if len(set(keys)) != len(keys):
        raise InvalidPipeline(
            f"A column is named twice in by: {', '.join(keys)}", hint=f"See {where}"
        )
    _check_spans(ttl, delay, where)
    check_readable(stream, where)
    taken = [name for name in OF_LATE if name in stream.columns]
    if taken:
        raise InvalidPipeline(
            f"The column name {taken[0]!r} is reserved for late rows",
            hint=f"Rename the column with select(). See {where}",
        )
    # Column names are case-insensitive in Spark, but not in the store.
    known = {name.lower(): name for name in stream.columns}
    exact = tuple(known[name.lower()] for name in keys)
    return Deduplicated(stream.columns, where, stream, exact, delay, ttl, keep)


def _check_spans(ttl: timedelta, delay: timedelta, where: Where) -> None:
    if ttl <= timedelta(0):
        raise InvalidPipeline(
            f"The time to live must be positive: {format_span(ttl)}",
            hint=f"ttl=timedelta(hours=24), in event time. See {where}",
        )
    if delay < timedelta(0):
        raise InvalidPipeline(
            f"delay cannot be negative: {format_span(delay)}", hint=f"See {where}"
        )
