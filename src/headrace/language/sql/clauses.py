"""Split a SELECT into its clauses, and refuse those that have no meaning in a stream."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlglot import Token, TokenType, exp

from headrace.language.sql.names import Resolved, Side, resolve
from headrace.language.sql.tokens import Piece

_READ = "Do it when you read the view: headrace views query"
_ONE = "JOIN puts two streams together, and UNION ALL merges several"
_REFUSED: dict[str, tuple[tuple[TokenType, ...], str, str]] = {
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
    "qualify": (
        (TokenType.QUALIFY,),
        "A stream does not support QUALIFY",
        "Write SELECT * FROM (SELECT *, ROW_NUMBER() OVER (...) AS n FROM ...) WHERE n <= 3",
    ),
    "windows": ((TokenType.WINDOW,), "A stream has no windows of rows", _READ),
}  # fmt: skip
_UNDERSTOOD = {"expressions", "from", "from_", "laterals", "where", "group", *_REFUSED}
_AFTER_FROM = (
    TokenType.WHERE, TokenType.GROUP_BY, TokenType.LATERAL, TokenType.CLUSTER_BY,
    TokenType.DISTRIBUTE_BY, *(kind for kinds, _, _ in _REFUSED.values() for kind in kinds),
)  # fmt: skip


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
        return self.piece.tokens[0].text.upper(), inside.listed()

    @property
    def over(self) -> Piece | None:
        """The window of a bare ROW_NUMBER(); None for any other item."""
        return _row_number(self.piece)


@dataclass(frozen=True)
class Select:
    """The clauses of a SELECT, without qualifiers: `resolved` has the streams of columns."""

    whole: Piece
    items: list[Item]
    laterals: list[tuple[Piece, str]]
    where: Piece | None
    group: list[Piece]
    resolved: Resolved


def around_from(select: Piece) -> tuple[Piece, Piece, Piece]:
    """Split a SELECT into what is before FROM, in FROM, and after it."""
    if not select.is_word(0, "SELECT"):
        select.refuse("A stream is made by a SELECT", "Begin with SELECT or WITH")
    start = select.find(TokenType.FROM)
    if start is None:
        select.tree()
        select.refuse("SELECT does not say which stream to read", "Add FROM and its name")
    end = select.find(*_AFTER_FROM, after=start + 1)
    end = len(select) if end is None else end
    if end == start + 1:
        select.part(start).refuse("FROM does not name a stream", "Add its name")
    return select.part(0, start), select.part(start + 1, end), select.part(end)


def cut(select: Piece, sides: list[Side], equal: Collection[str] = ()) -> Select:
    """Split a SELECT into its clauses; refuse one that a stream does not support.

    sqlglot reads it with a single name in FROM, which has been read before.
    """
    before, source, after = around_from(select)
    at = source.tokens[0]
    name = Token(TokenType.VAR, "stream", at.line, at.col, at.start, at.end)
    start = select.tokens[len(before)]
    plain = select.script.rewritten([*before.tokens, start, name, *after.tokens], {})
    resolved = resolve(plain, sides, equal)
    plain = resolved.piece
    tree = plain.tree()
    _refuse_clauses(plain, tree)
    found = plain.find(TokenType.FROM)
    assert found is not None
    laterals, where, group = _after_from(plain.part(found + 2))
    return Select(
        select,
        _items(plain.part(1, found), tree.expressions),
        [_lateral(piece) for piece in laterals],
        where,
        group.listed() if group is not None else [],
        resolved,
    )


def _refuse_clauses(select: Piece, tree: Any) -> None:
    there = {name for name, value in tree.args.items() if value}
    for name in sorted(there & set(_REFUSED)):
        kinds, message, hint = _REFUSED[name]
        select.part(select.find(*kinds) or 0).refuse(message, hint)
    for name in sorted(there - _UNDERSTOOD):
        word = name.strip("_").upper()
        select.refuse(f"A stream does not support {word} in a SELECT", "Leave it out")


def _after_from(rest: Piece) -> tuple[list[Piece], Piece | None, Piece | None]:
    """The lateral views, the condition, and the GROUP BY list."""
    group_at = rest.find(TokenType.GROUP_BY)
    group = None if group_at is None else rest.part(group_at + 1)
    rest = rest.part(0, group_at if group_at is not None else len(rest))
    where_at = rest.find(TokenType.WHERE)
    where = None if where_at is None else rest.part(where_at + 1)
    rest = rest.part(0, where_at if where_at is not None else len(rest))
    return rest.split(TokenType.LATERAL)[1:], where, group


def _lateral(piece: Piece) -> tuple[Piece, str]:
    """The array, and the column for its elements."""
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
    return inside, names[-1].text


def _items(listed: Piece, made: list[Any]) -> list[Item]:
    listed = listed.part(1) if listed.is_word(0, "ALL") else listed
    pieces = listed.listed()
    if len(pieces) != len(made):
        listed.refuse("This list of columns cannot be read", "It has to be Spark SQL")
    return [_item(piece, one) for piece, one in zip(pieces, made, strict=True)]


def _item(piece: Piece, made: Any) -> Item:
    named = made.alias if isinstance(made, exp.Alias) else None
    if named is None or _row_number(piece.part(0, len(piece) - _words_of_alias(piece))) is None:
        refuse_nested(piece)
    if isinstance(made, exp.Aliases):
        piece.refuse("Only one name can be given here", "Write EXPLODE(array) AS name")
    if not isinstance(made, exp.Alias):
        return Item(piece, made, None)
    return Item(piece.part(0, len(piece) - _words_of_alias(piece)), made.this, made.alias)


def _words_of_alias(piece: Piece) -> int:
    return 2 if piece.is_word(len(piece) - 2, "AS") else 1


def _row_number(piece: Piece) -> Piece | None:
    """The contents of the brackets in ROW_NUMBER() OVER (...), if the piece is just that."""
    inside = piece.brackets(4)
    plain = piece.is_word(0, "ROW_NUMBER") and piece.is_word(3, "OVER") and inside is not None
    return inside if plain and inside is not None and len(inside) + 6 == len(piece) else None


def refuse_nested(piece: Piece) -> None:
    """Refuse subqueries and OVER in an expression."""
    for at, token in enumerate(piece.tokens):
        if token.token_type == TokenType.SELECT:
            piece.part(at).refuse("A query cannot be part of an expression", _ONE)
        if token.token_type == TokenType.OVER:
            piece.part(at).refuse(
                "OVER needs an order of rows, which a stream does not have",
                "Group by a window: SLIDE looks back from each event. ROW_NUMBER() OVER (...) AS n "
                "is read in a subquery with WHERE n <= 3 around it",
            )
