"""Two streams joined: rows with the same key that happened within a while of each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Literal, get_args

from headrace.errors import InvalidPipeline
from headrace.pipeline.expressions import not_there
from headrace.pipeline.stream import Late, Source, Stream, check_new_names, has_results, sources
from headrace.pipeline.where import Where, caller
from headrace.schema.ddl import format_type

How = Literal["inner", "left", "right", "full", "anti"]
On = str | Sequence[str] | Mapping[str, str]
"""The columns that have to be equal: names that both have, or the left's with the right's."""

JOINED_AT = "joined_at"
SIDE = "side"

LIMIT = 1_000_000
"""So many rows of a key may be held of each side, unless more or fewer are asked for."""


@dataclass(frozen=True)
class Join(Stream):
    """Pairs of rows, one of each stream, and of an outer join the rows that have no other.

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
    """So many rows of a key there may be, of each side, in the time for which they are held."""
    is_result = True

    @property
    def upstream(self) -> tuple[Stream, ...]:
        return self.left, self.right

    @property
    def keeps_left(self) -> bool:
        """Whether a left row is told of that has no right one."""
        return self.how in ("left", "full", "anti")

    @property
    def keeps_right(self) -> bool:
        return self.how in ("right", "full")

    @property
    def from_right(self) -> tuple[tuple[str, str], ...]:
        """The columns of the right stream that a pair has, and what they are called there."""
        equal = {name for _, name in self.on}
        return tuple((n, self.prefix + n) for n in self.right.columns if n not in equal)

    @property
    def late(self) -> Late:
        """The rows of either side that came too late, with their `side` and how late they were."""
        columns = (*self.left.columns, *(name for _, name in self.from_right))
        return Late((*columns, SIDE, "watermark", "late_by"), self.where, self)


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
    """Pairs of rows that have the same key and happened within a while of each other.

    A right row matches if it happened at most `after` later than the left one, or `before` earlier.
    A row may be at most `delay` behind the highest event time in its topic; after that it is in
    `late`. Of an outer or anti join, a row without another is told of once, when none can come.

    The columns are those of the left and, with `prefix` in front, of the right, which lacks those
    that are equal; `joined_at` is the event time at which it was clear: that of the later row, or
    the end of the wait.

    A row is matched with all that are held of its key, so a key that half of all rows have makes
    more pairs than anybody wants. If one key has more than `limit` rows on a side, in as long as
    they are held, the pipeline stops before it joins them, and says which.
    """
    where = caller()
    equal = equal_columns(on, left.columns, right.columns, where)
    for name, span in (("before", before), ("after", after), ("delay", delay)):
        if span < timedelta(0):
            raise InvalidPipeline(
                f"{name} cannot be negative: {span}",
                hint=f"A right row that came first is within `before`. See {where}",
            )
    if limit < 1:
        raise InvalidPipeline(
            f"limit cannot be {limit}", hint=f"It is a number of rows of one key. See {where}"
        )
    if how not in get_args(How):
        raise InvalidPipeline(
            f"how cannot be {how!r}", hint=f"Use {', '.join(get_args(How))}. See {where}"
        )
    if has_results(left) or has_results(right):
        raise InvalidPipeline(
            "Results have no event time of their own to be joined by",
            hint=f"Publish them to a topic and join that. See {where}",
        )
    _check_clocks((*sources(left), *sources(right)), where)
    made = Join((), where, left, right, equal, before, after, how, delay, prefix, limit)
    names = [*left.columns, *(name for _, name in made.from_right)]
    check_new_names([name for _, name in made.from_right], where)
    check_apart([*names, JOINED_AT, SIDE], where)
    columns = (*(left.columns if how == "anti" else names), JOINED_AT)
    return replace(made, columns=columns)


def equal_columns(
    on: On, left: Sequence[str], right: Sequence[str], where: Where
) -> tuple[tuple[str, str], ...]:
    """The pairs of columns that have to be equal."""
    if isinstance(on, str):
        on = [on]
    pairs = tuple(on.items()) if isinstance(on, Mapping) else tuple((name, name) for name in on)
    if not pairs:
        raise InvalidPipeline(
            "A join needs columns that are equal", hint=f"on='id', or on={{...}}. See {where}"
        )
    for side, name, columns in (
        *(("left", mine, left) for mine, _ in pairs),
        *(("right", theirs, right) for _, theirs in pairs),
    ):
        if name not in columns:
            raise not_there(f"The {side} of the join has no column {name!r}", name, columns, where)
    return pairs


def check_apart(names: Sequence[str], where: Where) -> None:
    """Return if all columns of a join have names of their own."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidPipeline(
            f"Both sides of the join have a column {', '.join(map(repr, twice))}",
            hint=f"prefix='right_' gives those of the right side another name. See {where}",
        )


def check_times(read: Sequence[Source], where: Where) -> None:
    """Return if the event times of topics can be compared."""
    kinds = {}
    for topic in (source.topic for source in read):
        assert topic.schema is not None
        assert topic.event_time is not None
        kinds[topic.name] = format_type(topic.schema.field(topic.event_time).type)
    if len(set(kinds.values())) > 1:
        told = ", ".join(f"{name!r} has {kind}" for name, kind in kinds.items())
        raise InvalidPipeline(
            f"Event times of different types cannot be compared: {told}",
            hint=f"A moment is a timestamp; timestamp_ntz is what a clock shows somewhere. "
            f"Let both topics have the same. See {where}",
        )


def _check_clocks(read: Sequence[Source], where: Where) -> None:
    check_times(read, where)
    for source in read:
        topic = source.topic
        if topic.settings.frontier != "events":
            raise InvalidPipeline(
                f"Topic {topic.name!r} goes by {topic.settings.frontier}, and joins by event time",
                hint=f"Let its frontier be 'events'. See {where}",
            )
