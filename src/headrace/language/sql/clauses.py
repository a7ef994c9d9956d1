"""Split a SELECT into its clauses, and refuse those that have no meaning in a stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlglot import TokenType, exp

from headrace.language.sql.tokens import Piece

_READ = "Do it when you read the view: headrace views query"
_ONE = "A query reads one stream. UNION ALL merges several"
_REFUSED: dict[str, tuple[tuple[TokenType, ...], str, str]] = {
    "joins": ((TokenType.JOIN, TokenType.COMMA), "Streams cannot be joined in SQL", _ONE),
    "order": ((TokenType.ORDER_BY,), "A stream is in time order, and has no ORDER BY", _READ),
    "sort": ((TokenType.SORT_BY,), "A stream is in time order, and has no SORT BY", _READ),
    "limit": ((TokenType.LIMIT, TokenType.FETCH), "A stream has no end, so no LIMIT", _READ),
    "offset": ((TokenType.OFFSET,), "A stream has no end, so no OFFSET", _READ),
    "having": (
        (TokenType.HAVING,),
        "HAVING would have to retract results when they change",
        _READ,
    ),
    "distinct": (
        (TokenType.DISTINCT,),
        "DISTINCT would have to remember every row forever",
        "Group by the columns and a window instead",
    ),
    "qualify": ((TokenType.QUALIFY,), "QUALIFY has no meaning in a stream", _READ),
    "windows": ((TokenType.WINDOW,), "A stream has no windows of rows", _READ),
}  # fmt: skip
_UNDERSTOOD = {"expressions", "from", "from_", "laterals", "where", "group", *_REFUSED}


@dataclass(frozen=True)
class Item:
    """An item of SELECT: an expression, its sqlglot tree, and the name after AS."""

    piece: Piece
    made: Any
    alias: str | None

    @property
    def name(self) -> str | None:
        """The name of the column, if it has one."""
        return self.alias if self.alias is not None else self.piece.name

    @property
    def call(self) -> tuple[str, list[Piece]] | None:
        """The function and its arguments, if the item is just a call."""
        inside = self.piece.brackets(1)
        if inside is None or len(inside) + 3 != len(self.piece):
            return None
        return self.piece.tokens[0].text.upper(), inside.split(TokenType.COMMA)


@dataclass(frozen=True)
class Select:
    """The clauses of a SELECT. `source` is the name of a stream, or a query in brackets."""

    whole: Piece
    items: list[Item]
    source: Piece
    prefixes: frozenset[str]
    laterals: list[tuple[Piece, str]]
    where: Piece | None
    group: list[Piece]


def cut(select: Piece) -> Select:
    """Split a SELECT into its clauses; refuse one that a stream does not support."""
    if not select.is_word(0, "SELECT"):
        select.refuse("A stream is made by a SELECT", "Begin with SELECT or WITH")
    tree = select.tree()
    _refuse_clauses(select, tree)
    start = select.find(TokenType.FROM)
    if start is None:
        select.refuse("SELECT does not say which stream to read", "Add FROM and its name")
    source, laterals, where, group = _after_from(select.part(start + 1))
    prefixes, source = _prefixes(source)
    exploded = [_lateral(piece) for piece in laterals]
    return Select(
        select,
        _items(select.part(1, start), tree.expressions),
        source,
        frozenset(prefixes | {table for _, _, table in exploded}),
        [(array, into) for array, into, _ in exploded],
        where,
        group.split(TokenType.COMMA) if group is not None else [],
    )


def _refuse_clauses(select: Piece, tree: Any) -> None:
    there = {name for name, value in tree.args.items() if value}
    for name in sorted(there & set(_REFUSED)):
        kinds, message, hint = _REFUSED[name]
        start = select.find(TokenType.FROM) if name == "joins" else 0
        at = select.find(*kinds, after=start or 0)
        select.part(at or 0).refuse(message, hint)
    for name in sorted(there - _UNDERSTOOD):
        word = name.strip("_").upper()
        select.refuse(f"A stream does not support {word} in a SELECT", "Leave it out")


def _after_from(rest: Piece) -> tuple[Piece, list[Piece], Piece | None, Piece | None]:
    """The source, the lateral views, the condition, and the GROUP BY list."""
    group_at = rest.find(TokenType.GROUP_BY)
    group = None if group_at is None else rest.part(group_at + 1)
    rest = rest.part(0, group_at if group_at is not None else len(rest))
    where_at = rest.find(TokenType.WHERE)
    where = None if where_at is None else rest.part(where_at + 1)
    rest = rest.part(0, where_at if where_at is not None else len(rest))
    source, *laterals = rest.split(TokenType.LATERAL)
    return source, laterals, where, group


def _prefixes(source: Piece) -> tuple[set[str], Piece]:
    """The names of the stream, which may not prefix its columns, and its source."""
    inside = source.brackets(0)
    taken = 1 if inside is None else len(inside) + 2
    while source.part(taken).tokens[:1] and source.tokens[taken].token_type == TokenType.DOT:
        taken += 2
    alias = source.part(taken + source.is_word(taken, "AS"))
    if len(alias) > 1 or (len(alias) == 1 and alias.name is None):
        alias.refuse(f"{alias.text!r} cannot follow the name of a stream", "Leave it out")
    names = {source.part(0, taken).text.strip("`"), *(token.text for token in alias.tokens)}
    return {name.lower() for name in names}, source.part(0, taken) if inside is None else inside


def _lateral(piece: Piece) -> tuple[Piece, str, str]:
    """The array, the column for its elements, and the name of the lateral view."""
    inside = piece.brackets(2)
    if not (piece.is_word(0, "VIEW") and piece.is_word(1, "EXPLODE")) or inside is None:
        piece.refuse(
            "A stream does not support this lateral view", "Use LATERAL VIEW EXPLODE(array)"
        )
    names = [token for token in piece.part(len(inside) + 4).tokens if token.text.upper() != "AS"]
    if not 1 <= len(names) <= 2:
        piece.refuse(
            "The elements of an array need one name",
            "Write LATERAL VIEW EXPLODE(tags) AS tag",
        )
    return inside, names[-1].text, names[0].text.lower()


def _items(listed: Piece, made: list[Any]) -> list[Item]:
    listed = listed.part(1) if listed.is_word(0, "ALL") else listed
    return [
        _item(piece, one) for piece, one in zip(listed.split(TokenType.COMMA), made, strict=True)
    ]


def _item(piece: Piece, made: Any) -> Item:
    refuse_nested(piece)
    if isinstance(made, exp.Aliases):
        piece.refuse("Only one name can be given here", "Write EXPLODE(array) AS name")
    if not isinstance(made, exp.Alias):
        return Item(piece, made, None)
    words = 2 if piece.is_word(len(piece) - 2, "AS") else 1
    return Item(piece.part(0, len(piece) - words), made.this, made.alias)


def refuse_nested(piece: Piece) -> None:
    """Refuse subqueries and OVER in an expression."""
    for at, token in enumerate(piece.tokens):
        if token.token_type == TokenType.SELECT:
            piece.part(at).refuse("A query cannot be part of an expression", _ONE)
        if token.token_type == TokenType.OVER:
            piece.part(at).refuse(
                "OVER needs an order of rows, which a stream does not have",
                "Group by a window: SLIDE looks back from each event",
            )
