"""Declaration of a stream-stream join."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Literal

from headrace.clock import micros
from headrace.errors import InvalidPipeline
from headrace.log.settings import format_span
from headrace.pipeline.arguments import declaration
from headrace.pipeline.chains import check_readable, topics_read
from headrace.pipeline.joins import On, check_apart, check_times, equal_columns
from headrace.pipeline.row_steps import check_new_names
from headrace.pipeline.stream import Late, Source, Stream, Text
from headrace.pipeline.where import Where, caller

How = Literal["inner", "left", "right", "full", "anti"]
JOINED_AT = "joined_at"
SIDE = "side"

LIMIT = 1_000_000
"""The default limit of rows of one key on one side."""


@dataclass(frozen=True)
class Join(Stream):
    """Pairs of rows, one of each stream, and the unmatched rows of an outer join.

    The right row of a pair happened from `before` earlier than the left one to `after` later.
    """

    left: Stream
    right: Stream
    on: tuple[tuple[str, str], ...]
    before: timedelta
    after: timedelta
    how: How
    delay: timedelta
    prefix: str
    limit: int = field(default=LIMIT, compare=False)
    """The most rows of one key on one side, in the time for which they are held."""
    noun = "a join"
    is_result = True

    @property
    def upstream(self) -> tuple[Stream, ...]:
        return self.left, self.right

    @property
    def roles(self) -> tuple[str, ...]:
        return "left", "right"

    @property
    def holds_back(self) -> timedelta:
        return self.delay

    @property
    def time(self) -> str:
        return JOINED_AT

    @property
    def watermark_delay(self) -> timedelta:
        return self.delay

    @property
    def in_order(self) -> bool:
        return self.how != "inner"

    def output_time(self, columns: Sequence[str]) -> str:
        return JOINED_AT

    def late_time(self, columns: Sequence[str]) -> str:
        return "watermark"  # a late row has nulls in the columns of the other side

    def definition(self, text: Text) -> dict[str, Any]:
        return {
            "join": [self.how, *(list(pair) for pair in self.on)],
            "bounds": [micros(self.before), micros(self.after), micros(self.delay)],
            "prefix": self.prefix,
            "merge": [self.left.definition(text), self.right.definition(text)],
        }

    @property
    def keeps_left(self) -> bool:
        """True if unmatched left rows are emitted."""
        return self.how in ("left", "full", "anti")

    @property
    def keeps_right(self) -> bool:
        return self.how in ("right", "full")

    @property
    def from_right(self) -> tuple[tuple[str, str], ...]:
        """Pairs of a column of the right stream and its name in the result."""
        equal = {name for _, name in self.on}
        return tuple((n, self.prefix + n) for n in self.right.columns if n not in equal)

    @property
    def late(self) -> Late:
        """The late rows of both sides, with their `side`, the watermark and their lateness."""
        columns = (*self.left.columns, *(name for _, name in self.from_right))
        return Late((*columns, SIDE, "watermark", "late_by"), self.where, self)


@declaration
def join(
    left: Stream,
    right: Stream,
    *,
    on: On,
    after: timedelta,
    before: timedelta = timedelta(0),
    how: How = "inner",
    delay: timedelta,
    prefix: str = "",
    limit: int = LIMIT,
) -> Join:
    """Pairs of rows with the same key whose event times are close to each other.

    A right row matches if it happened at most `after` later than the left one, or `before` earlier.
    A row that arrives `delay` or more behind the highest event time of its topic is in `late`. An
    outer or anti join emits an unmatched row once, when no match can come any more.

    The columns are those of the left stream, then those of the right without the join columns, with
    `prefix` in front. `joined_at` is the event time of the result: that of the later row of a pair,
    or the end of the wait of an unmatched row.

    The pairs of a hot key grow with the square of its rows. If one key has more than `limit` rows
    on a side, in the time for which they are held, the pipeline stops before it joins them.
    """
    where = caller()
    equal = equal_columns(on, left.columns, right.columns, where)
    for name, span in (("before", before), ("after", after), ("delay", delay)):
        if span < timedelta(0):
            raise InvalidPipeline(
                f"{name} cannot be negative: {format_span(span)}",
                hint=f"`before` is for right rows that happened first. See {where}",
            )
    if limit < 1:
        raise InvalidPipeline(
            f"limit cannot be {limit}", hint=f"It is the most rows of one key. See {where}"
        )
    for stream in (left, right):
        check_readable(stream, where)
    _check_clocks(topics_read(left, right), where)
    made = Join((), where, left, right, equal, before, after, how, delay, prefix, limit)
    names = [*left.columns, *(name for _, name in made.from_right)]
    check_new_names([name for _, name in made.from_right], where)
    check_apart([*names, JOINED_AT, SIDE], where)
    columns = (*(left.columns if how == "anti" else names), JOINED_AT)
    return replace(made, columns=columns)


def _check_clocks(read: Sequence[Source], where: Where) -> None:
    check_times(read, where)
    for source in read:
        topic = source.topic
        if topic.settings.frontier != "events":
            raise InvalidPipeline(
                f"Topic {topic.name!r} has the frontier {topic.settings.frontier!r}, and a join "
                "needs event times",
                hint=f"Set its frontier to 'events'. See {where}",
            )
