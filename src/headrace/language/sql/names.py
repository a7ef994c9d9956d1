"""Resolve columns that are qualified by their stream, and the stream of each column of a join."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlglot import Token, TokenType

from headrace.language.sql.tokens import Piece, is_name

_NO_COLUMN_AFTER = (TokenType.DOT, TokenType.ALIAS, TokenType.STRING, TokenType.NUMBER)


@dataclass(frozen=True)
class Side:
    """The columns of a stream in FROM, and the names that may qualify them."""

    names: frozenset[str]
    columns: tuple[str, ...]

    def column(self, name: str) -> str | None:
        """The column of that name, whatever its case."""
        return next((one for one in self.columns if one.lower() == name.lower()), None)


@dataclass(frozen=True)
class Resolved:
    """Tokens without qualifiers. `sides` has the number of the stream of each column, by offset."""

    piece: Piece
    sides: dict[int, int]

    def sides_of(self, piece: Piece) -> set[int]:
        """The streams whose columns a part of the piece reads."""
        found = (self.sides.get(token.start) for token in piece.tokens)
        return {side for side in found if side is not None}


def resolve(piece: Piece, sides: Sequence[Side], equal: Collection[str] = ()) -> Resolved:
    """Drop the qualifiers of columns, and note the stream of each.

    A column that several streams have needs a qualifier, unless it is one of those that are equal.
    """
    tokens: list[Token] = []
    renamed: dict[int, str] = {}
    found: dict[int, int] = {}
    given = iter(enumerate(piece.tokens))
    for at, token in given:
        here = piece.part(at)
        number = _qualifier(here, sides) if not _follows(piece, at, TokenType.DOT) else None
        if number is not None:
            column = piece.tokens[at + 2]
            token = _merged(token, column)
            renamed[token.start] = piece.part(at + 2, at + 3).text
            found[token.start] = number
            next(given), next(given)
        elif len(sides) > 1 and is_name(token) and not _follows(piece, at, *_NO_COLUMN_AFTER):
            owner = _owner(here, sides, equal)
            if owner is not None:
                found[token.start] = owner
        tokens.append(token)
    return Resolved(piece.script.rewritten(tokens, renamed), found)


def _follows(piece: Piece, at: int, *kinds: TokenType) -> bool:
    return at > 0 and piece.tokens[at - 1].token_type in kinds


def _qualifier(here: Piece, sides: Sequence[Side]) -> int | None:
    """The stream that qualifies the column here, if one does."""
    if len(here) < 3 or here.tokens[1].token_type != TokenType.DOT or not is_name(here.tokens[0]):
        return None
    first, _, second = here.tokens[:3]
    number = next((n for n, side in enumerate(sides) if first.text.lower() in side.names), None)
    if number is None:
        return None
    if second.token_type == TokenType.STAR:
        return number if len(sides) == 1 else None
    if not is_name(second) or sides[number].column(second.text) is not None:
        return number if is_name(second) else None
    if any(side.column(first.text) for side in sides):  # a field of a struct
        return None
    near = difflib.get_close_matches(second.text, sides[number].columns, 1)
    here.refuse(
        f"There is no column {second.text!r} in {first.text}",
        f"Did you mean '{first.text}.{near[0]}'?"
        if near
        else f"There are: {', '.join(sides[number].columns)}",
    )


def _owner(here: Piece, sides: Sequence[Side], equal: Collection[str]) -> int | None:
    """The only stream that has the column here; None if it is not a column."""
    name = here.tokens[0].text
    if len(here) > 1 and here.tokens[1].token_type == TokenType.L_PAREN:
        return None
    owners = [number for number, side in enumerate(sides) if side.column(name) is not None]
    if len(owners) > 1 and name.lower() not in equal:
        names = [min(sides[number].names) for number in owners]
        here.refuse(
            f"Several streams have a column {name!r}",
            f"Write {' or '.join(f'{one}.{name}' for one in names)}",
        )
    return owners[0] if owners else None


def _merged(first: Token, last: Token) -> Token:
    """One token in place of `stream.column`."""
    quoted = last.token_type in (TokenType.IDENTIFIER, TokenType.STAR)
    kind = last.token_type if quoted else TokenType.VAR
    return Token(kind, last.text, first.line, first.col, first.start, last.end)
