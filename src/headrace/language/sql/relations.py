"""FROM: the streams that a query reads, window functions over them, and how they are joined."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from sqlglot import TokenType

from headrace.language.sql.names import Side
from headrace.language.sql.ranking import Ranked
from headrace.language.sql.terms import Terms
from headrace.language.sql.tokens import Piece
from headrace.language.sql.windows import (
    WINDOW_COLUMNS,
    WINDOW_TIME,
    TableWindow,
    is_window,
    table_window,
    window_time,
)
from headrace.pipeline import chains
from headrace.pipeline.stream import Stream

_OF_JOIN = ("INNER", "LEFT", "RIGHT", "FULL", "OUTER", "ANTI", "SEMI", "CROSS", "NATURAL")
_AS_OF = ("FOR", "SYSTEM_TIME", "AS", "OF")


@dataclass(frozen=True)
class Scope:
    """The streams that a query may read, by name, and its settings."""

    streams: Mapping[str, Stream]
    terms: Terms

    def stream(self, piece: Piece) -> Stream:
        """The stream of a name."""
        name = "".join(token.text for token in piece.tokens)
        stream = {one.lower(): made for one, made in self.streams.items()}.get(name.lower())
        if stream is None:
            near = difflib.get_close_matches(name, self.streams, 1)
            known = ", ".join(self.streams) or "none"
            piece.refuse(
                f"There is no stream {name!r}",
                f"Did you mean {near[0]!r}?" if near else f"There are: {known}",
            )
        return stream


@dataclass(frozen=True)
class Relation:
    """A stream in FROM: its names, the window over it, and what FOR SYSTEM_TIME AS OF says."""

    piece: Piece
    stream: Stream
    alias: str
    names: frozenset[str]
    window: TableWindow | None = None
    as_of: Piece | None = None

    @property
    def side(self) -> Side:
        """Its columns, and those of the window over it or before it."""
        before = () if window_time(self.stream) is None else (WINDOW_TIME,)
        more = before if self.window is None else WINDOW_COLUMNS
        return Side(self.names, (*self.stream.columns, *more))


@dataclass(frozen=True)
class JoinClause:
    """A stream that is joined: the words before JOIN, the condition, and the columns of USING."""

    at: Piece
    words: frozenset[str]
    right: Relation
    on: Piece | None
    using: tuple[str, ...]


Read = Callable[[Piece, Scope], Stream]


def read_from(clause: Piece, scope: Scope, read: Read) -> tuple[Relation, list[JoinClause]]:
    """Read a FROM clause. `read` makes the stream of a subquery."""
    starts = [at for at, _ in clause.outside((TokenType.JOIN, TokenType.COMMA))]
    found: list[JoinClause] = []
    begins = [*(_first_word(clause, at) for at in starts), len(clause)]
    first = _relation(clause.part(0, begins[0]), scope, read)
    for at, (begin, end) in zip(starts, pairwise(begins), strict=True):
        words = frozenset(token.text.upper() for token in clause.tokens[begin:at])
        rest = clause.part(at + 1, end)
        on = rest.find(TokenType.ON, TokenType.USING)
        right = _relation(rest.part(0, len(rest) if on is None else on), scope, read)
        listed = None if on is None else rest.brackets(on + 1)
        is_using = on is not None and rest.is_word(on, "USING") and listed is not None
        using = [part.text for part in listed.listed()] if is_using and listed else []
        condition = None if on is None or is_using else rest.part(on + 1)
        found.append(JoinClause(clause.part(begin), words, right, condition, tuple(using)))
    return first, found


def _first_word(clause: Piece, at: int) -> int:
    """The index of the first word of a join that has JOIN at an index."""
    while clause.is_word(at - 1, *_OF_JOIN) and at > 1:
        at -= 1
    return at


def _relation(piece: Piece, scope: Scope, read: Read) -> Relation:
    if not len(piece):
        piece.refuse("The name of a stream is missing here", "Add it, or a query in brackets")
    taken, stream, window = _source(piece, scope, read)
    rest = piece.part(taken)
    as_of, after = _as_of(rest)
    alias = rest.part(after) if as_of is None or after < len(rest) else rest.part(0, 0)
    if as_of is not None and not len(alias):
        alias = rest.part(0, _find_as_of(rest))
    alias = alias.part(1) if alias.is_word(0, "AS") else alias
    if len(alias) > 1 or (len(alias) == 1 and alias.name is None):
        alias.refuse(f"{alias.text!r} cannot follow the name of a stream", "Leave it out")
    own = piece.part(0, taken).text.strip("`") if window is None else ""
    named = alias.name or own.rpartition(".")[2]
    names = {name.lower() for name in (alias.name, own) if name}
    return Relation(piece, stream, named, frozenset(names), window, as_of)


def _source(piece: Piece, scope: Scope, read: Read) -> tuple[int, Stream, TableWindow | None]:
    """The number of tokens of a stream, the stream, and the window over it."""
    inside = piece.brackets(0)
    if inside is not None:
        return len(inside) + 2, read(inside, scope), None
    wrapped = piece.brackets(1) if piece.is_word(0, "TABLE") else None
    call = wrapped if wrapped is not None else _call(piece)
    if call is not None and (wrapped is None or is_window(call)):
        made = table_window(call, lambda data: _data(data, scope, read))
        return len(call) + (3 if wrapped is not None else 0), made.stream, made
    if wrapped is not None:
        wrapped.refuse(
            f"{wrapped.text!r} is not a window function",
            "Write TABLE(TUMBLE(TABLE stream, DESCRIPTOR(event_time), INTERVAL '1' MINUTE))",
        )
    taken = 1
    while taken < len(piece) and piece.tokens[taken].token_type == TokenType.DOT:
        taken += 2
    return taken, scope.stream(piece.part(0, taken)), None


def _call(piece: Piece) -> Piece | None:
    """A window function at the beginning of a piece, as newer versions of Flink allow it."""
    inside = piece.brackets(1)
    call = None if inside is None else piece.part(0, len(inside) + 3)
    return call if call is not None and is_window(call) else None


def _data(piece: Piece, scope: Scope, read: Read) -> Stream:
    """The stream that a window function reads: TABLE name, a name, or a query in brackets."""
    plain = piece.part(1) if piece.is_word(0, "TABLE") else piece
    inside = plain.brackets(0)
    stream = scope.stream(plain) if inside is None else read(inside, scope)
    check_readable(stream, plain)
    return stream


def check_readable(stream: Stream, piece: Piece) -> None:
    """Refuse rows that no step can read: numbers alone, and results that are never final."""
    if isinstance(stream, Ranked):
        stream.refuse_alone()
    chains.check_readable(stream, (piece.brackets(0) or piece).where)


def _find_as_of(rest: Piece) -> int:
    """The index of FOR SYSTEM_TIME AS OF, or else the length."""
    for at in range(len(rest)):
        if all(rest.is_word(at + n, word) for n, word in enumerate(_AS_OF)):
            return at
    return len(rest)


def _as_of(rest: Piece) -> tuple[Piece | None, int]:
    """The time after FOR SYSTEM_TIME AS OF, and the index of the token after it."""
    start = _find_as_of(rest) + len(_AS_OF)
    if start >= len(rest) + len(_AS_OF):
        return None, 0
    end = start + 1
    while end < len(rest) and rest.tokens[end].token_type == TokenType.DOT:
        end += 2
    inside = rest.brackets(end)
    end += 0 if inside is None else len(inside) + 2
    if start >= len(rest):
        rest.refuse("FOR SYSTEM_TIME AS OF does not say a time", "Write the stream's event time")
    return rest.part(start, end), end
