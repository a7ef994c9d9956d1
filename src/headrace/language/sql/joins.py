"""JOIN: two streams within a time bound, a stream with a table, or tables with each other.

Columns are chosen and rows filtered before the join, which saves a step after it. A query around
the join does the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from sqlglot import exp

from headrace.language.sql.clauses import Item, Select, cut
from headrace.language.sql.join_conditions import BOUND, Condition, read_condition, times_of
from headrace.language.sql.names import Side, resolve
from headrace.language.sql.relations import JoinClause, Relation
from headrace.language.sql.terms import Terms
from headrace.language.sql.tokens import Piece
from headrace.language.sql.windows import event_times
from headrace.operators.stream_join.declare import join
from headrace.operators.table_join.declare import join_tables
from headrace.operators.table_lookup.declare import enrich
from headrace.pipeline.row_steps import filter, project
from headrace.pipeline.stream import Stream
from headrace.pipeline.tables import Table
from headrace.pipeline.where import declared_at

_HOW = {
    frozenset[str](): "inner", frozenset({"INNER"}): "inner",
    frozenset({"LEFT"}): "left", frozenset({"LEFT", "OUTER"}): "left",
    frozenset({"RIGHT"}): "right", frozenset({"RIGHT", "OUTER"}): "right",
    frozenset({"FULL"}): "full", frozenset({"FULL", "OUTER"}): "full",
    frozenset({"LEFT", "ANTI"}): "anti", frozenset({"ANTI"}): "anti",
}  # fmt: skip
_FILTERED = {"inner": {0, 1}, "left": {1}, "right": {0}, "full": set[int](), "anti": {1}}
"""The sides whose rows ON may filter before the join, without a change of its result."""
_KEPT = {"inner": {0, 1}, "left": {0}, "right": {1}, "full": set[int](), "anti": {0}}
"""The sides whose rows WHERE may filter before the join."""
_NULLABLE = {"inner": (), "left": (1,), "right": (0,), "full": (0, 1), "anti": ()}
"""The sides that are null where no row matches."""
_AS_OF = "JOIN table FOR SYSTEM_TIME AS OF stream.event_time ON ..."
_AROUND = "in a query around the join: SELECT ... FROM (SELECT ... JOIN ...)"
_NOW = ("PROCTIME()", "NOW()", "CURRENT_TIMESTAMP", "CURRENT_TIMESTAMP()")


def joined(query: Piece, first: Relation, joins: list[JoinClause], terms: Terms) -> Stream:
    """The join that a SELECT describes."""
    relations = [first, *(one.right for one in joins)]
    _check_relations(relations)
    if len(joins) > 1:
        return _many(query, relations, joins)
    (clause,) = joins
    how = _HOW.get(clause.words)
    if how is None:
        words = " ".join(sorted(clause.words))
        clause.at.refuse(f"There is no {words} JOIN of streams", f"Use {', '.join(_names())}")
    sides = [relation.side for relation in relations]
    condition = Condition([(name, name) for name in clause.using])
    if clause.on is not None:
        resolved = resolve(clause.on, sides)
        read_condition(condition, resolved, resolved.piece, sides, relations, _FILTERED[how])
    select = cut(query, sides, {mine.lower() for mine, theirs in condition.on if mine == theirs})
    if select.where is not None:
        read_condition(condition, select.resolved, select.where, sides, relations, _KEPT[how])
    if select.group or any(item.made.find(exp.AggFunc) for item in select.items):
        at = select.group[0] if select.group else select.items[0].piece
        at.refuse("A join and an aggregation are two steps", f"Aggregate {_AROUND}")
    if not condition.on:
        clause.at.refuse("The join has no columns that are equal", f"Write {BOUND}")
    streams = [_filtered(one, condition.filters[n]) for n, one in enumerate(relations)]
    columns = _Columns.of(select, condition.on, streams, how)
    left, right = columns.streams
    prefix = columns.prefix(relations[1].alias)
    on = dict(columns.on)
    with declared_at(query.where):
        if isinstance(left, Table) and isinstance(right, Table):
            if how == "anti":
                clause.at.refuse("Tables have no anti join", "Use LEFT JOIN, and read the nulls")
            return join_tables(left, right, on=on, how=how, prefix=prefix)  # type: ignore[arg-type]
        if isinstance(right, Table):
            return _looked_up(clause, how, left, right, on, prefix, terms, relations)
        before, after = _bounds(condition, clause)
        delay = terms.delay(clause.at, left, right)
        made: Any = {"on": on, "before": before, "after": after, "how": how, "delay": delay}
        return join(left, right, **made, prefix=prefix)


def _names() -> list[str]:
    return ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT ANTI JOIN"]


def _check_relations(relations: Sequence[Relation]) -> None:
    for number, one in enumerate(relations):
        if one.window is not None:
            one.window.piece.refuse("Windows cannot be joined", f"Bound the times instead: {BOUND}")
        is_table, of_tables = (isinstance(r.stream, Table) for r in (one, relations[0]))
        if number and one.as_of is None and is_table and not of_tables:
            one.piece.refuse(
                "A table has versions, and the join does not say of which time",
                f"Write {_AS_OF}",
            )
        if one.as_of is not None and (not number or not is_table or of_tables):
            one.piece.refuse(
                "FOR SYSTEM_TIME AS OF looks up a table for a stream",
                "A table has a PRIMARY KEY in CREATE TABLE, or is made by hr.table()",
            )
        if number and of_tables and not is_table:
            one.piece.refuse("A table is joined to a stream", "Name the stream first")
        if any(before.names & one.names for before in relations[:number]):
            one.piece.refuse(f"Two streams are called {one.alias!r}", "Name one with AS")


def _many(query: Piece, relations: Sequence[Relation], joins: Sequence[JoinClause]) -> Stream:
    """More than two tables, each found by its key."""
    tables = [one.stream for one in relations]
    if not all(isinstance(one, Table) for one in tables):
        joins[1].at.refuse(
            "Two joins are two steps", "Join the first two in brackets: FROM (SELECT ... JOIN ...)"
        )
    kinds = {_HOW.get(one.words) for one in joins}
    sides: list[Side] = [relations[0].side]
    pairs: list[dict[str, str]] = []
    columns = list(tables[0].columns)
    prefixes = []
    for relation, clause in zip(relations[1:], joins, strict=True):
        condition = Condition([(name, name) for name in clause.using])
        both = [Side(frozenset[str]().union(*(s.names for s in sides)), tuple(columns))]
        both.append(relation.side)
        if clause.on is not None:
            resolved = resolve(clause.on, both)
            read_condition(
                condition, resolved, resolved.piece, both, [relations[0], relation], set()
            )
        pairs.append(dict(condition.on))
        rest = [n for n in relation.stream.columns if n not in dict(condition.on).values()]
        clash = any(name in columns for name in rest)
        prefixes.append(f"{relation.alias}_" if clash else "")
        columns += [prefixes[-1] + name for name in rest]
        sides.append(relation.side)
    select = cut(query, sides, columns)
    if [item.piece.text for item in select.items] != ["*"] or select.where or select.group:
        query.refuse("More than two tables are joined as they are", "Write SELECT * FROM ... JOIN")
    how: Any = kinds.pop() if len(kinds) == 1 else None
    if how not in ("inner", "left"):
        joins[0].at.refuse(
            "More than two tables need the same kind of join", "Use JOIN or LEFT JOIN for all"
        )
    with declared_at(query.where):
        return join_tables(*tables, on=pairs, how=how, prefix=prefixes)  # type: ignore[arg-type]


def _looked_up(
    clause: JoinClause,
    how: str,
    left: Stream,
    right: Table,
    on: dict[str, str],
    prefix: str,
    terms: Terms,
    relations: Sequence[Relation],
) -> Stream:
    as_of = clause.right.as_of
    assert as_of is not None
    if how not in ("inner", "left"):
        clause.at.refuse("A table is looked up for each row", "Use JOIN or LEFT JOIN")
    made: Any = {"on": on, "how": how, "prefix": prefix}
    if as_of.text.upper() in _NOW:
        return enrich(left, right, mode="latest", **made)
    time = resolve(as_of, [relations[0].side]).piece
    if time.name is None or time.name.lower() not in times_of(relations[0].stream):
        as_of.refuse(
            f"A table is looked up at the event time, and {as_of.text!r} is not it",
            f"Write {' or '.join(sorted(event_times(relations[0].stream)))}; PROCTIME() is for the "
            "latest version",
        )
    return enrich(left, right, wait=terms.span("wait", clause.right.piece), **made)


def _bounds(condition: Condition, clause: JoinClause) -> tuple[timedelta, timedelta]:
    """The time bound of the right row, before and after the left one."""
    low, high = condition.low, condition.high
    if low is None or high is None:
        clause.at.refuse(
            "The join has no bound on the event times, so every row would have to be kept for ever",
            f"Write {BOUND}",
        )
    if low > timedelta(0) or high < timedelta(0):
        clause.at.refuse(
            "The bounds of a join have to include rows of the same moment",
            f"Write {BOUND}, and filter {_AROUND}",
        )
    return -low, high


def _filtered(relation: Relation, conditions: Sequence[Piece]) -> Stream:
    stream = relation.stream
    for piece in conditions:
        with declared_at(piece.where):
            stream = filter(stream, piece.text)
    return stream


@dataclass
class _Columns:
    """The streams of a join with the columns that SELECT names, and the equal ones of both."""

    streams: list[Stream]
    on: list[tuple[str, str]]
    all_of_them: bool

    @classmethod
    def of(
        cls, select: Select, on: list[tuple[str, str]], streams: list[Stream], how: str
    ) -> _Columns:
        stars = [item for item in select.items if item.made.find(exp.Star)]
        if stars and len(select.items) == 1 and stars[0].piece.text == "*":
            return cls(streams, on, True)
        if stars:
            stars[0].piece.refuse(
                f"{stars[0].piece.text!r} cannot be selected with others from a join",
                "Use * alone, or name the columns",
            )
        mine: list[tuple[str, str]] = []
        theirs = [(name, f"`{name}`") for _, name in on]
        named = {own: own for own, _ in on}
        for item in select.items:
            number, name = _side_of(item, select, streams)
            column = (item.piece.name or "").lower()
            equal = next((own for own, one in on if one.lower() == column), None)
            if number == 1 and how == "anti":
                item.piece.refuse(
                    "An anti join has only rows of the first stream", "Select its columns"
                )
            if number == 1 and equal is not None:
                if how != "inner" or any(made.strip("`") == equal for _, made in mine):
                    item.piece.refuse(
                        f"{item.piece.text!r} is {equal!r} of the first stream", "Select that"
                    )
                number, made = 0, f"`{equal}`"
            else:
                made = f"`{item.piece.name}`" if item.alias is None else item.piece.text
            if made.strip("`") != item.piece.name and number in _NULLABLE[how]:
                item.piece.refuse(
                    f"{item.piece.text!r} would be null where no row matches",
                    f"Select the columns, and compute it {_AROUND}",
                )
            if number == 0:
                plain = made.strip("`").lower()
                named |= {own: name for own in named if own.lower() == plain}
            (mine, theirs)[number].append((name, made))
        chosen = {name for name, _ in mine}
        mine += [(own, f"`{own}`") for own, name in named.items() if name not in chosen]
        left = _project(select.whole, streams[0], mine, {made.strip("`"): n for n, made in mine})
        right = _project(select.whole, streams[1], theirs, {})
        return cls([left, right], [(named[own], one) for own, one in on], False)

    def prefix(self, alias: str) -> str:
        """A prefix for the columns of the right stream, so that none is in both."""
        equal = {theirs for _, theirs in self.on}
        rest = [name for name in self.streams[1].columns if name not in equal]
        clash = self.all_of_them and any(name in self.streams[0].columns for name in rest)
        return f"{alias}_" if clash else ""


def _side_of(item: Item, select: Select, streams: Sequence[Stream]) -> tuple[int, str]:
    """The stream that an item of SELECT is computed from, and its name."""
    reads = select.resolved.sides_of(item.piece)
    item.piece.check_columns([name for stream in streams for name in stream.columns])
    if len(reads) > 1:
        item.piece.refuse(
            f"{item.piece.text!r} needs columns of both streams",
            f"Select the columns, and compute it {_AROUND}",
        )
    if item.name is None:
        item.piece.refuse(f"{item.piece.text!r} needs a name", f"Write {item.piece.text} AS name")
    return min(reads, default=0), item.name


def _project(
    whole: Piece, stream: Stream, columns: list[tuple[str, str]], renamed: dict[str, str]
) -> Stream:
    """A stream or table with these columns."""
    if not isinstance(stream, Table):
        return project(stream, columns, whole.where)
    plain = {made.strip("`").lower() for _, made in columns}
    if not plain.issuperset(name.lower() for name in stream.key) or stream.deleted is not None:
        whole.refuse(
            f"The key of a table, {', '.join(stream.key)}, is part of a join with it",
            "Select all of it, or write SELECT *",
        )
    key = tuple(renamed.get(name, name) for name in stream.key)
    rows = project(stream.input, columns, whole.where)
    return replace(stream, columns=rows.columns, input=rows, key=key)
