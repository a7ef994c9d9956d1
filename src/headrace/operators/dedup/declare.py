"""Duplicates dropped: of the rows of a key that happened within a while of each other, one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, get_args

from headrace.clock import micros
from headrace.errors import InvalidPipeline
from headrace.pipeline.expressions import check_columns
from headrace.pipeline.stream import Late, Stream, Text, has_results
from headrace.pipeline.where import Where, caller

Keep = Literal["first", "last"]

_OF_LATE = ("watermark", "late_by")


@dataclass(frozen=True)
class Deduplicated(Stream):
    """The rows of a stream without those that repeat another. `late` are those that came too late.

    A row whose key is new opens a group, which takes in all rows of the key that happen less than
    `ttl` after it or before it. Of each group one row is kept.
    """

    input: Stream
    by: tuple[str, ...]
    ttl: timedelta
    keep: Keep
    delay: timedelta
    is_result = True
    has_checkpoint = False

    @property
    def upstream(self) -> tuple[Stream, ...]:
        return (self.input,)

    @property
    def watermark_delay(self) -> timedelta:
        return self.delay

    def definition(self, text: Text) -> dict[str, Any]:
        spans = [self.keep, micros(self.ttl), micros(self.delay)]
        return {"distinct": spans, "by": self.by, "of": self.input.definition(text)}

    @property
    def late(self) -> Late:
        """The rows that came too late to be told from duplicates, and how late they were."""
        return Late((*self.columns, *_OF_LATE), self.where, self)


def deduplicate(
    stream: Stream,
    *,
    by: str | Sequence[str],
    ttl: timedelta,
    keep: Keep = "first",
    delay: timedelta,
) -> Deduplicated:
    """One row of each key within a time to live, which runs from the event time of the first.

    In the order of the log, a row is kept unless one of its key was kept that happened less than
    `ttl` before it or after it. With `keep="last"` the last of these in the log is told instead,
    once, when no other can come: when time is `ttl` and `delay` past the first. A row may come so
    late as `delay` says, by the highest event time in its topic; after that it is in `late`. A row
    without a key, or with a part of it null, is no duplicate of any other, and is told at once.
    """
    where = caller()
    keys = (by,) if isinstance(by, str) else tuple(by)
    if not keys:
        raise InvalidPipeline(
            "Duplicates are told by a key", hint=f"by='id', or by=['user', 'event']. See {where}"
        )
    for name in keys:
        check_columns(f"`{name}`", stream.columns, where)
    if len(set(keys)) != len(keys):
        raise InvalidPipeline(
            f"A column is named twice in by: {', '.join(keys)}", hint=f"See {where}"
        )
    _check_spans(ttl, delay, where)
    if keep not in get_args(Keep):
        raise InvalidPipeline(f"keep cannot be {keep!r}", hint=f"Use first or last. See {where}")
    if has_results(stream):
        raise InvalidPipeline(
            "Results have no event time of their own for a time to live to run from",
            hint=f"Publish them to a topic and deduplicate that. See {where}",
        )
    taken = [name for name in _OF_LATE if name in stream.columns]
    if taken:
        raise InvalidPipeline(
            f"A column cannot be called {taken[0]!r} here: late rows are told with one of that "
            "name",
            hint=f"Give yours another name with select(). See {where}",
        )
    # Spark does not mind the case of a name, but whoever keeps the keys has to find the column.
    known = {name.lower(): name for name in stream.columns}
    exact = tuple(known[name.lower()] for name in keys)
    return Deduplicated(stream.columns, where, stream, exact, ttl, keep, delay)


def _check_spans(ttl: timedelta, delay: timedelta, where: Where) -> None:
    if ttl <= timedelta(0):
        raise InvalidPipeline(
            f"The time to live has to be longer than nothing: {ttl}",
            hint=f"ttl=timedelta(hours=24), in event time. See {where}",
        )
    if delay < timedelta(0):
        raise InvalidPipeline(f"delay cannot be negative: {delay}", hint=f"See {where}")
