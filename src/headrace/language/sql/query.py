"""Make a stream of a query."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import TokenType, exp

from headrace.language.sql.clauses import Item, Select, around_from, cut, refuse_nested
from headrace.language.sql.grouping import aggregated
from headrace.language.sql.joins import joined
from headrace.language.sql.ranking import Ranked, chosen, ranked, ranks_results
from headrace.language.sql.relations import Scope, check_readable, read_from
from headrace.language.sql.tokens import Piece
from headrace.language.sql.windows import WINDOW_TIME, window_time
from headrace.pipeline.row_steps import explode, filter, merge, project
from headrace.pipeline.stream import Stream
from headrace.pipeline.tables import Table
from headrace.pipeline.where import declared_at


def stream_of(query: Piece, scope: Scope) -> Stream:
    """The stream that a query describes."""
    made = _query(query, scope)
    if isinstance(made, Ranked):
        made.refuse_alone()
    return made


def _query(query: Piece, scope: Scope) -> Stream:
    inside = query.brackets(0)
    if inside is not None and len(inside) + 2 == len(query):
        return _query(inside, scope)
    if query.is_word(0, "WITH"):
        query, scope = _with(query, scope)
    _refuse_other_sets(query)
    parts = query.split(TokenType.UNION)
    if len(parts) == 1:
        return _select(query, scope)
    return _union(query, parts, scope)


def _with(query: Piece, scope: Scope) -> tuple[Piece, Scope]:
    """The query after WITH, and a scope with the names of WITH."""
    streams = dict(scope.streams)
    at = 1
    while True:
        inside = query.brackets(at + 2)
        name = query.part(at, at + 1).name
        if name is None or not query.is_word(at + 1, "AS") or inside is None:
            query.part(at).refuse("This WITH cannot be read", "Write WITH name AS (SELECT ...)")
        streams[name] = _query(inside, Scope(streams, scope.terms))
        at += len(inside) + 4
        if at >= len(query) or query.tokens[at].token_type != TokenType.COMMA:
            return query.part(at), Scope(streams, scope.terms)
        at += 1


def _refuse_other_sets(query: Piece) -> None:
    for at, token in query.outside((TokenType.INTERSECT, TokenType.EXCEPT)):
        if query.tokens[at - 1].token_type != TokenType.STAR:
            query.part(at).refuse(
                f"{token.text.upper()} would have to remember every row forever",
                "Only UNION ALL merges streams",
            )


def _union(query: Piece, parts: list[Piece], scope: Scope) -> Stream:
    first, *rest = parts
    streams = [_part(first, scope)]
    for part in rest:
        if not part.is_word(0, "ALL"):
            Piece(part.script, part.start - 1, part.stop).refuse(
                "UNION would have to remember every row forever", "Write UNION ALL"
            )
        by_name = part.is_word(1, "BY") and part.is_word(2, "NAME")
        branch = part.part(3 if by_name else 1)
        made = _part(branch, scope)
        names = [name.lower() for name in made.columns]
        if not by_name and names != [name.lower() for name in streams[0].columns]:
            branch.refuse(
                f"The columns of a UNION ALL have to be the same, in the same order: "
                f"{', '.join(streams[0].columns)} and {', '.join(made.columns)}",
                "Select them in one order, or write UNION ALL BY NAME",
            )
        streams.append(made)
    with declared_at(query.where):
        return merge(*streams)


def _part(query: Piece, scope: Scope) -> Stream:
    """A part of a UNION."""
    made = _query(query, scope)
    check_readable(made, query)
    return made


def _select(query: Piece, scope: Scope) -> Stream:
    first, joins = read_from(around_from(query)[1], scope, _query)
    if joins:
        for relation in (first, *(join.right for join in joins)):
            check_readable(relation.stream, relation.piece)
        return joined(query, first, joins, scope.terms)
    select = cut(query, [first.side])
    stream = first.stream
    if isinstance(stream, Ranked):
        return chosen(select, stream, scope.terms, _projected)
    orders = [item for item in select.items if item.over is not None]
    if orders and ranks_results(orders[0], stream):
        return ranked(select, orders[0], stream, stream)
    check_readable(stream, first.piece)
    if isinstance(stream, Table):
        first.piece.refuse(
            f"{first.piece.text!r} is a table, which changes with every row of its topic",
            "Join it: JOIN ... FOR SYSTEM_TIME AS OF the event time, or JOIN with another table",
        )
    for array, into in select.laterals:
        stream = _exploded(stream, array, into)
    if select.where is not None:
        refuse_nested(select.where)
        select.where.check_columns(stream.columns)
        with declared_at(select.where.where):
            stream = filter(stream, select.where.text)
    if orders and not select.group:
        rest = [item for item in select.items if item is not orders[0]]
        rows = _projected(replace(select, items=rest), stream) if rest else stream
        return ranked(select, orders[0], stream, rows)
    found = [item for item in select.items if item.made.find(exp.AggFunc)]
    if select.group:
        return aggregated(select, stream, first.window, scope.terms)
    if first.window is not None:
        first.window.piece.refuse(
            "A window without GROUP BY only adds columns to the rows",
            "Add GROUP BY window_start, window_end and an aggregate",
        )
    if found:
        found[0].piece.refuse(
            f"{found[0].piece.text} of a whole stream would never be final",
            "Group by a window: GROUP BY TUMBLE(event_time, INTERVAL '1 minute')",
        )
    return _projected(select, stream)


def _projected(select: Select, stream: Stream) -> Stream:
    """Select the columns of SELECT, which may explode an array."""
    arrays = [item for item in select.items if isinstance(item.made, exp.Explode)]
    for item in arrays[1:]:
        item.piece.refuse("Two arrays cannot be exploded at once", "Explode one in a subquery")
    stars = [item for item in select.items if item.piece.text == "*"]
    others = [item for item in select.items if item not in (*arrays, *stars)]
    for item in others:
        _check_item(item, stream)
    before = stream.columns
    for item in arrays:
        call = item.call
        if call is None or len(call[1]) != 1 or call[0] != "EXPLODE" or item.alias is None:
            item.piece.refuse(
                f"{item.piece.text} does not put the elements of an array under one name",
                "Write EXPLODE(array) AS name",
            )
        stream = _exploded(stream, call[1][0], item.alias)
    where = select.whole.where
    if not stars:
        return project(stream, [_column(item, stream) for item in select.items], where)
    if select.items[0] is not stars[0] or len(stars) > 1:
        stars[-1].piece.refuse("* has to be the first item of SELECT", "Move it to the front")
    for item in others:
        if item.name in before:
            item.piece.refuse(f"{item.name!r} is in * already", "Name all columns that you want")
    kept = [(name, f"`{name}`") for name in before]
    made = [_column(item, stream) for item in select.items[1:]]
    return project(stream, [*kept, *made], where) if others else stream


def _check_item(item: Item, stream: Stream) -> None:
    if item.made.find(exp.Star):
        item.piece.refuse(f"{item.piece.text!r} cannot be selected", "Use *, or name the columns")
    if item.name is None:
        item.piece.refuse(f"{item.piece.text!r} needs a name", f"Write {item.piece.text} AS name")
    if _window_time(item, stream) is None:
        item.piece.check_columns(stream.columns)


def _window_time(item: Item, stream: Stream) -> str | None:
    """The event time of a window, if an item is just that."""
    return window_time(stream) if (item.piece.name or "").lower() == WINDOW_TIME else None


def _column(item: Item, stream: Stream) -> tuple[str, str]:
    """The name and the expression of a column, as in `select` and `derive`."""
    assert item.name is not None
    time = _window_time(item, stream)
    if time is not None:
        return item.name, time
    kept = item.alias is None or isinstance(item.made, exp.Explode)
    return item.name, f"`{item.name}`" if kept else item.piece.text


def _exploded(stream: Stream, array: Piece, into: str) -> Stream:
    array.check_columns(stream.columns)
    if into in stream.columns:
        array.refuse(f"There is a column {into!r} already", "Give the elements another name")
    with declared_at(array.where):
        return explode(stream, array.text, into=into)
