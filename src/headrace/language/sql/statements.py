"""Statements of a file: their forms, names, and the properties in WITH."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from sqlglot import TokenType

from headrace.errors import UserError
from headrace.language.sql.tokens import Piece
from headrace.language.sql.windows import span_of

FORMS = {
    "APPLICATION": "CREATE APPLICATION name [WITH (log = 'file:./data')]",
    "TOPIC": "CREATE TOPIC name (column TYPE, ...) WITH (event_time = 'column')",
    "TABLE": "CREATE TABLE name (column TYPE, ..., WATERMARK FOR column AS column - "
    "INTERVAL '5' SECOND) WITH ('connector' = 'kafka', 'topic' = 'name', 'format' = 'json')",
    "STREAM": "CREATE STREAM name AS SELECT ...",
    "VIEW": "CREATE VIEW name WITH (delay = '10 seconds', grace = '1 minute') AS SELECT ...",
    "PUBLISH": "PUBLISH name TO 'topic', or PUBLISH LATE OF view TO 'topic'",
}


@dataclass(frozen=True)
class Value:
    """The value of a property in WITH, and its position."""

    text: str
    piece: Piece


def name_at(statement: Piece, at: int, kind: str) -> tuple[str, int]:
    """Read a name, quoted or with dots; return it and the index of the next token."""
    start = at
    while at < len(statement) and (
        statement.tokens[at].token_type == TokenType.DOT
        or at == start
        or statement.tokens[at - 1].token_type == TokenType.DOT
    ):
        at += 1
    name = "".join(token.text for token in statement.tokens[start:at])
    if not name.strip("("):
        statement.part(start).refuse("A name is missing", f"Write {FORMS[kind]}")
    return name, at


def properties(
    statement: Piece, at: int, kind: str, known: tuple[str, ...] | None = None
) -> tuple[dict[str, Value], int]:
    """Read WITH (name = value, ...), if present; return it and the index of the next token."""
    if not statement.is_word(at, "WITH"):
        return {}, at
    inside = statement.brackets(at + 1)
    found: dict[str, Value] = {}
    for piece in [] if inside is None else inside.listed():
        if len(piece) != 3 or piece.tokens[1].token_type != TokenType.EQ:
            piece.refuse("This cannot be read as name = value", f"Write {FORMS[kind]}")
        name = piece.tokens[0].text.lower()
        if known is not None and name not in known:
            piece.refuse(f"There is no property {name!r} here", f"There are: {', '.join(known)}")
        if name in found:
            piece.refuse(f"{name!r} is given twice", "Remove one")
        found[name] = Value(piece.tokens[2].text, piece.part(2))
    if inside is None or not found:
        statement.part(at).refuse("WITH is empty", f"Write {FORMS[kind]}")
    return found, at + len(inside) + 3


def query_at(statement: Piece, at: int, kind: str) -> Piece:
    if not statement.is_word(at, "AS"):
        statement.part(at).refuse("AS and a query are missing here", f"Write {FORMS[kind]}")
    return statement.part(at + 1)


def check_end(statement: Piece, at: int, kind: str) -> None:
    if at < len(statement):
        rest = statement.part(at)
        rest.refuse(f"{rest.tokens[0].text!r} is not expected here", f"Write {FORMS[kind]}")


def span_at(value: Value) -> timedelta:
    with placed(value.piece):
        return span_of(value.text)


@contextlib.contextmanager
def placed(piece: Piece) -> Iterator[None]:
    """Add the line and column to an error that lacks them."""
    try:
        yield
    except UserError as error:
        where = piece.where
        if f"{where.file}:" in error.hint:
            raise
        hint = f"{error.hint}\nSee {where}" if error.hint else f"See {where}"
        raise type(error)(error.message, hint=hint, **error.details) from None
