"""Make a stream of a query."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import TokenType, exp

from headrace.language.sql.clauses import Item, Select, cut, refuse_nested
from headrace.language.sql.grouping import Terms, aggregated
from headrace.language.sql.tokens import Piece
from headrace.pipeline.row_steps import explode, filter, merge, project
from headrace.pipeline.stream import Stream, has_results
from headrace.pipeline.where import declared_at

Streams = Mapping[str, Stream]
"""The streams that queries may read, by name."""


@dataclass(frozen=True)
class Scope:
    """The names that a query can use. Only the outermost query has `terms`, and aggregates."""

    streams: Streams
    terms: Terms | None

    def inner(self, **more: Stream) -> Scope:
        return Scope({**self.streams, **more}, None)


def stream_of(query: Piece, scope: Scope) -> Stream:
    """The stream that a query describes."""
    query.tree()
    return _query(query, scope)


def _query(query: Piece, scope: Scope) -> Stream:
    inside = query.brackets(0)
    if inside is not None and len(inside) + 2 == len(query):
        return _query(inside, scope)
    if query.is_word(0, "WITH"):
        query, scope = _with(query, scope)
    _refuse_other_sets(query)
    parts = query.split(TokenType.UNION)
    if len(parts) == 1:
        return _select(cut(query), scope)
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
        streams[name] = _query(inside, Scope(streams, None))
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
    streams = [_query(first, scope.inner())]
    for part in rest:
        if not part.is_word(0, "ALL"):
            Piece(part.script, part.start - 1, part.stop).refuse(
                "UNION would have to remember every row forever", "Write UNION ALL"
            )
        by_name = part.is_word(1, "BY") and part.is_word(2, "NAME")
        branch = part.part(3 if by_name else 1)
        made = _query(branch, scope.inner())
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


def _select(select: Select, scope: Scope) -> Stream:
    stream = _source(select, scope)
    for array, into in select.laterals:
        stream = _exploded(stream, array, into, select)
    if select.where is not None:
        refuse_nested(select.where)
        select.where.check_columns(stream.columns, select.prefixes)
        with declared_at(select.where.where):
            stream = filter(stream, select.where.text)
    found = [item for item in select.items if item.made.find(exp.AggFunc)]
    if not select.group and not found:
        return _projected(select, stream)
    if scope.terms is None:
        select.whole.refuse(
            "Only the outermost query can aggregate",
            "Aggregate around it; to read results, publish them to a topic",
        )
    if not select.group:
        found[0].piece.refuse(
            f"{found[0].piece.text} of a whole stream would never be final",
            "Group by a window: GROUP BY TUMBLE(event_time, INTERVAL '1 minute')",
        )
    return aggregated(select, stream, scope.terms)


def _source(select: Select, scope: Scope) -> Stream:
    if select.source.is_word(0, "SELECT", "WITH") or select.source.brackets(0) is not None:
        return _query(select.source, scope.inner())
    name = "".join(token.text for token in select.source.tokens)
    known = {one.lower(): stream for one, stream in scope.streams.items()}
    stream = known.get(name.lower())
    if stream is None:
        near = difflib.get_close_matches(name, scope.streams, 1)
        select.source.refuse(
            f"There is no stream {name!r}",
            f"Did you mean {near[0]!r}?"
            if near
            else f"There are: {', '.join(scope.streams) or 'none'}",
        )
    if has_results(stream):
        select.source.refuse(
            f"{name!r} has results, which have no event time",
            "Publish it to a topic, and read the topic",
        )
    return stream


def _projected(select: Select, stream: Stream) -> Stream:
    """Select the columns of SELECT, which may explode an array."""
    arrays = [item for item in select.items if isinstance(item.made, exp.Explode)]
    for item in arrays[1:]:
        item.piece.refuse("Two arrays cannot be exploded at once", "Explode one in a subquery")
    stars = [item for item in select.items if item.piece.text == "*"]
    others = [item for item in select.items if item not in (*arrays, *stars)]
    for item in others:
        _check_item(item, stream, select)
    before = stream.columns
    for item in arrays:
        call = item.call
        if call is None or len(call[1]) != 1 or call[0] != "EXPLODE" or item.alias is None:
            item.piece.refuse(
                f"{item.piece.text} does not put the elements of an array under one name",
                "Write EXPLODE(array) AS name",
            )
        stream = _exploded(stream, call[1][0], item.alias, select)
    where = select.whole.where
    if not stars:
        return project(stream, [_column(item) for item in select.items], where)
    if select.items[0] is not stars[0] or len(stars) > 1:
        stars[-1].piece.refuse("* has to be the first item of SELECT", "Move it to the front")
    for item in others:
        if item.name in before:
            item.piece.refuse(f"{item.name!r} is in * already", "Name all columns that you want")
    kept = [(name, f"`{name}`") for name in before]
    return project(stream, [*kept, *map(_column, select.items[1:])], where) if others else stream


def _check_item(item: Item, stream: Stream, select: Select) -> None:
    if item.made.find(exp.Star):
        item.piece.refuse(f"{item.piece.text!r} cannot be selected", "Use *, or name the columns")
    if item.name is None:
        item.piece.refuse(f"{item.piece.text!r} needs a name", f"Write {item.piece.text} AS name")
    item.piece.check_columns(stream.columns, select.prefixes)


def _column(item: Item) -> tuple[str, str]:
    """The name and the expression of a column, as in `select` and `derive`."""
    assert item.name is not None
    kept = item.alias is None or isinstance(item.made, exp.Explode)
    return item.name, f"`{item.name}`" if kept else item.piece.text


def _exploded(stream: Stream, array: Piece, into: str, select: Select) -> Stream:
    array.check_columns(stream.columns, select.prefixes)
    if into in stream.columns:
        array.refuse(f"There is a column {into!r} already", "Give the elements another name")
    with declared_at(array.where):
        return explode(stream, array.text, into=into)
