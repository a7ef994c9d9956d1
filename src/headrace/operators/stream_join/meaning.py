"""Reference semantics of the stream-stream join, row by row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from headrace.clock import micros, to_datetime
from headrace.operators.stream_join.declare import JOINED_AT, Join
from headrace.oracle.events import Event
from headrace.oracle.excerpt import Excerpt
from headrace.oracle.rows import Fates, Row, rows_of, watermark_of


@dataclass(frozen=True)
class Side:
    """A row of one side, with its event time and the watermark at its arrival."""

    event: Event
    row: Row
    moment: int
    watermark: int | None


@dataclass
class Joined(Fates):
    """The results of a join, and the fate of every row."""

    pairs: list[Row] = field(default_factory=list)
    unmatched: list[Row] = field(default_factory=list)
    late: list[tuple[str, Side]] = field(default_factory=list)
    counted: int = 0

    @property
    def rows(self) -> list[Row]:
        return [*self.pairs, *self.unmatched]


def joined(join: Join, events: Iterable[Event], frontiers: dict[str, int | None]) -> Joined:
    """The rows of a join, at the given frontier of each topic."""
    found = Joined()
    sides: dict[str, list[Side]] = {"left": [], "right": []}
    ordered = sorted(events, key=lambda e: (e.commit, e.topic.name, e.partition, e.offset))
    for event, moment in found.living(ordered):
        watermark = None if event.frontier is None else event.frontier - micros(join.delay)
        for name, stream in (("left", join.left), ("right", join.right)):
            for row in rows_of(stream, event):
                side = Side(event, row, moment, watermark)
                if watermark is not None and moment <= watermark:
                    found.late.append((name, side))
                else:
                    sides[name].append(side)
                    found.counted += 1
    by_key: dict[tuple[Any, ...], list[Side]] = {}
    for right in sides["right"]:
        by_key.setdefault(tuple(right.row[theirs] for _, theirs in join.on), []).append(right)
    matched: set[int] = set()
    for left in sides["left"]:
        for right in by_key.get(tuple(left.row[mine] for mine, _ in join.on), ()):
            if _match(join, left, right):
                matched |= {id(left), id(right)}
                if join.how != "anti":
                    found.pairs.append(_pair(join, left, right))
    lonely_left = [side for side in sides["left"] if id(side) not in matched]
    lonely_right = [side for side in sides["right"] if id(side) not in matched]
    after, before = micros(join.after), micros(join.before)
    if join.keeps_left:
        closed = watermark_of(join.right, frontiers, join.delay)
        found.unmatched += [
            _alone(join, left=side, known=side.moment + after)
            for side in lonely_left
            if closed is not None and side.moment + after <= closed
        ]
    if join.keeps_right:
        closed = watermark_of(join.left, frontiers, join.delay)
        found.unmatched += [
            _alone(join, right=side, known=side.moment + before)
            for side in lonely_right
            if closed is not None and side.moment + before <= closed
        ]
    return found


def shown(join: Join, excerpt: Excerpt) -> list[Row]:
    """The rows of a join, unmatched ones last."""
    return joined(join, excerpt.events, excerpt.frontiers).rows


def _match(join: Join, left: Side, right: Side) -> bool:
    within = -micros(join.before) <= right.moment - left.moment <= micros(join.after)
    return within and all(
        left.row[mine] is not None and left.row[mine] == right.row[theirs]
        for mine, theirs in join.on
    )


def _pair(join: Join, left: Side, right: Side) -> Row:
    known = to_datetime(max(left.moment, right.moment))
    return {**left.row, **_renamed(join, right.row), JOINED_AT: known}


def _alone(join: Join, *, left: Side | None = None, right: Side | None = None, known: int) -> Row:
    """An unmatched row. A join column has the value of the side that exists."""
    if left is not None:
        row = dict(left.row)
        nulls = {} if join.how == "anti" else {name: None for _, name in join.from_right}
        return {**row, **nulls, JOINED_AT: to_datetime(known)}
    assert right is not None
    row = dict.fromkeys(join.left.columns)
    row |= {mine: right.row[theirs] for mine, theirs in join.on}
    return {**row, **_renamed(join, right.row), JOINED_AT: to_datetime(known)}


def _renamed(join: Join, row: Row) -> Row:
    return {name: row[column] for column, name in join.from_right}
