"""Conditions of a join: equal columns, bounds of the event times, filters of one stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from sqlglot import exp

from headrace.errors import InvalidPipeline
from headrace.language.sql.names import Resolved, Side
from headrace.language.sql.relations import Relation
from headrace.language.sql.tokens import Piece
from headrace.language.sql.windows import event_times, span_of
from headrace.pipeline.stream import Stream
from headrace.pipeline.tables import Table

BOUND = "ON a.key = b.key AND b.time BETWEEN a.time AND a.time + INTERVAL '1' HOUR"
_MICROSECOND = timedelta(microseconds=1)


@dataclass
class Condition:
    """The equal columns of a join, the bounds of its times, and the rows that each side keeps."""

    on: list[tuple[str, str]] = field(default_factory=list)
    low: timedelta | None = None
    high: timedelta | None = None
    filters: tuple[list[Piece], list[Piece]] = field(default_factory=lambda: ([], []))

    def at_least(self, span: timedelta) -> None:
        """The right row happens at least this long after the left one."""
        self.low = span if self.low is None else max(self.low, span)

    def at_most(self, span: timedelta) -> None:
        self.high = span if self.high is None else min(self.high, span)


def times_of(stream: Stream) -> set[str]:
    return {name.lower() for name in event_times(stream)}


def read_condition(
    condition: Condition,
    resolved: Resolved,
    piece: Piece,
    sides: Sequence[Side],
    relations: Sequence[Relation],
    may_filter: set[int],
) -> None:
    """Read the conditions of ON or WHERE, and refuse those that need both rows."""
    times = [times_of(relation.stream) for relation in relations]
    for part in piece.conditions():
        reads = resolved.sides_of(part)
        tree = part.tree()
        if len(reads) == 2 and _bound(condition, tree, resolved, times):
            continue
        pair = _equal(part, tree, resolved, sides) if len(reads) == 2 else None
        if pair is not None:
            if pair not in condition.on:
                condition.on.append(pair)
            continue
        for number in reads if len(reads) == 1 else ():
            part.check_columns(sides[number].columns)
            if number in may_filter and not isinstance(relations[number].stream, Table):
                condition.filters[number].append(part)
                break
        else:
            part.check_columns([name for side in sides for name in side.columns])
            part.refuse(
                f"{part.text!r} cannot be a condition of this join",
                f"Write {BOUND}; filter a stream before it is joined, or in a query around it",
            )


def _equal(
    part: Piece, tree: Any, resolved: Resolved, sides: Sequence[Side]
) -> tuple[str, str] | None:
    """The columns of a.x = b.y, in the order of the sides."""
    if not isinstance(tree, exp.EQ) or len(part) != 3:
        return None
    named = {resolved.sides[token.start]: token.text for token in (part.tokens[0], part.tokens[2])}
    mine, theirs = (sides[number].column(named[number]) for number in (0, 1))
    return (mine, theirs) if mine is not None and theirs is not None else None


def _bound(condition: Condition, tree: Any, resolved: Resolved, times: list[set[str]]) -> bool:
    """Read a bound of the event times, if a condition is one."""
    match tree:
        case exp.Between():
            found = [(tree.args["low"], tree.this, False), (tree.this, tree.args["high"], False)]
        case exp.GTE() | exp.GT():
            found = [(tree.expression, tree.this, isinstance(tree, exp.GT))]
        case exp.LTE() | exp.LT():
            found = [(tree.this, tree.expression, isinstance(tree, exp.LT))]
        case exp.EQ():
            found = [(tree.this, tree.expression, False), (tree.expression, tree.this, False)]
        case _:
            return False
    moments = [(_moment(a, resolved, times), _moment(b, resolved, times), s) for a, b, s in found]
    for first, second, _ in moments:
        if first is None or second is None or first[0] == second[0]:
            return False
    for first, second, strict in moments:
        assert first is not None
        assert second is not None
        span = first[1] - second[1] + strict * _MICROSECOND
        if second[0] == 1:
            condition.at_least(span)
        else:
            condition.at_most(-span)
    return True


def _moment(node: Any, resolved: Resolved, times: list[set[str]]) -> tuple[int, timedelta] | None:
    """The side of an event time, and the interval that is added to it."""
    shift = timedelta(0)
    while isinstance(node, exp.Paren | exp.Add | exp.Sub):
        if not isinstance(node, exp.Paren):
            if not isinstance(node.expression, exp.Interval):
                return None
            sign = -1 if isinstance(node, exp.Sub) else 1
            unit = node.expression.args.get("unit")
            try:
                shift += sign * span_of(f"{node.expression.this.name} {unit or ''}".strip())
            except InvalidPipeline:
                return None
        node = node.this
    if not isinstance(node, exp.Column) or len(node.parts) != 1:
        return None
    side = resolved.sides.get(node.parts[0].meta.get("start", -1))
    return (side, shift) if side is not None and node.name.lower() in times[side] else None
