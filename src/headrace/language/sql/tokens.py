"""SQL as tokens with their line and column.

sqlglot parses the tokens. An expression keeps the text that the user wrote, so Spark gets the same
text as from a pipeline in Python.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise, zip_longest
from typing import Any, NoReturn

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, TokenError

from headrace.errors import InvalidPipeline
from headrace.pipeline.expressions import bound_names, check_columns, syntax_problem
from headrace.pipeline.where import Where, WhereInText

_OPEN = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE}
_CLOSE = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE}


@cache
def _spark() -> Dialect:
    """Spark's dialect of sqlglot, which is slow to load."""
    return Dialect.get_or_raise("spark")


class Script:
    """A text of SQL: a file, or a string in Python at `where`."""

    def __init__(self, text: str, where: Where, *, is_file: bool) -> None:
        self.text = text
        self._where = where
        self._is_file = is_file
        self.renamed: Mapping[int, str] = {}
        try:
            self.tokens = _with_session_as_function(_spark().tokenize(text))
        except TokenError:
            line = _last_line(text)
            raise InvalidPipeline(
                "A quote or a comment that begins here does not end",
                hint=f"Close it. See {self.place_in(line, 1)}",
            ) from None

    def rewritten(self, tokens: Sequence[Token], renamed: Mapping[int, str]) -> Piece:
        """Other tokens of the same text. Those that start at a key of `renamed` read as its value.

        Positions stay those of the text, so errors point at what the user wrote.
        """
        made = copy.copy(self)
        made.tokens, made.renamed = list(tokens), {**self.renamed, **renamed}
        return Piece(made, 0, len(tokens))

    @property
    def statements(self) -> list[Piece]:
        """The statements between semicolons."""
        ends = [n for n, t in enumerate(self.tokens) if t.token_type == TokenType.SEMICOLON]
        cuts = pairwise([-1, *ends, len(self.tokens)])
        found = [Piece(self, start + 1, stop) for start, stop in cuts if start + 1 < stop]
        for piece in found:
            piece.check_brackets()
        return found

    def place(self, offset: int) -> Where:
        """The line and column of a character."""
        before = self.text[:offset]
        return self.place_in(before.count("\n") + 1, offset - before.rfind("\n"))

    def place_in(self, line: int, column: int) -> Where:
        lines = self.text.split("\n")
        quoted = lines[line - 1] if line <= len(lines) else ""
        if self._is_file:
            return Where(self._where.file, line, column, quoted)
        outer = (self._where.file, self._where.line, None, None)
        return WhereInText(*outer, line, column, quoted)


@dataclass(frozen=True)
class Piece:
    """The tokens of a script from `start` up to, not including, `stop`."""

    script: Script
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    @cached_property
    def tokens(self) -> list[Token]:
        return self.script.tokens[self.start : self.stop]

    @property
    def where(self) -> Where:
        """The position of its first token; for an empty piece, where one is missing."""
        tokens = self.script.tokens
        if self.start < len(tokens):
            return self.script.place(tokens[self.start].start)
        return self.script.place(tokens[-1].end + 1 if tokens else 0)

    @cached_property
    def text(self) -> str:
        """The text on one line, without comments."""
        parts: list[str] = []
        end = self.tokens[0].start - 1 if self.tokens else 0
        for token in self.tokens:
            if token.start <= end:  # sqlglot turns 10L into a cast of several tokens
                continue
            gap = " " if token.start > end + 1 else ""
            written = self.script.text[token.start : token.end + 1]
            parts.append(gap + self.script.renamed.get(token.start, written))
            end = token.end
        return "".join(parts)

    @property
    def name(self) -> str | None:
        """The name of a column, if the piece is just that."""
        if len(self) != 1:
            return None
        token = self.tokens[0]
        return token.text if is_name(token) else None

    def part(self, start: int, stop: int | None = None) -> Piece:
        """A part of its tokens, by index."""
        end = self.stop if stop is None else self.start + stop
        return Piece(self.script, min(self.start + start, end), end)

    def is_word(self, at: int, *words: str) -> bool:
        """True if the token at an index is one of these words, unquoted."""
        if not 0 <= at < len(self):
            return False
        token = self.tokens[at]
        quoted = token.token_type in (TokenType.STRING, TokenType.IDENTIFIER)
        return not quoted and token.text.upper() in words

    def find(self, *kinds: TokenType, after: int = 0) -> int | None:
        """The index of the first token of these kinds outside of brackets."""
        return next((at for at, _ in self.outside(kinds) if at >= after), None)

    def outside(self, kinds: Collection[TokenType]) -> Iterator[tuple[int, Token]]:
        """The tokens of these kinds outside of brackets, with their indexes."""
        depth = 0
        for at, token in enumerate(self.tokens):
            depth -= token.token_type in _CLOSE
            if not depth and token.token_type in kinds and not self._is_part_of_a_word(at):
                yield at, token
            depth += token.token_type in _OPEN

    def split(self, *kinds: TokenType) -> list[Piece]:
        """The pieces between tokens of these kinds outside of brackets."""
        cuts = [-1, *(at for at, _ in self.outside(kinds)), len(self)]
        return [self.part(a + 1, b) for a, b in pairwise(cuts)]

    def listed(self) -> list[Piece]:
        """The pieces between commas outside of brackets. None of them is empty."""
        return self._filled(self.split(TokenType.COMMA)) if len(self) else []

    def _filled(self, pieces: list[Piece]) -> list[Piece]:
        for piece in pieces:
            if not len(piece):
                before = Piece(self.script, max(piece.start - 1, 0), piece.stop)
                before.refuse(f"Something is missing beside {before.text!r}", "Add or remove it")
        return pieces

    def brackets(self, at: int) -> Piece | None:
        """The contents of the parentheses that open at an index."""
        if at >= len(self) or self.tokens[at].token_type != TokenType.L_PAREN:
            return None
        close = self.part(at).find(TokenType.R_PAREN)
        return None if close is None else self.part(at + 1, at + close)

    def check_brackets(self) -> None:
        """Refuse brackets that do not match."""
        opened: list[int] = []
        for at, token in enumerate(self.tokens):
            if token.token_type in _OPEN:
                opened.append(at)
            elif token.token_type in _CLOSE:
                if not opened:
                    self.part(at).refuse("This bracket closes none", "Remove it")
                opened.pop()
        if opened:
            self.part(opened[-1]).refuse("This bracket is not closed", "Close it")

    def tree(self) -> Any:
        """Its sqlglot tree."""
        try:
            (made,) = _spark().parser().parse(self.tokens, self.script.text)
        except ParseError as error:
            self._refuse_syntax(error)
        return made

    def conditions(self) -> list[Piece]:
        """The conditions that AND joins, outside of brackets, CASE and BETWEEN."""
        if self.find(TokenType.OR) is not None:
            return [self]
        cuts, depth, between = [-1], 0, 0
        kinds = (TokenType.AND, TokenType.BETWEEN, TokenType.CASE, TokenType.END)
        for at, token in self.outside(kinds):
            depth += (token.token_type == TokenType.CASE) - (token.token_type == TokenType.END)
            if depth:
                continue
            if token.token_type == TokenType.AND and not between:
                cuts.append(at)
            between += (token.token_type == TokenType.BETWEEN) - (
                token.token_type == TokenType.AND and between > 0
            )
        return self._filled([self.part(a + 1, b) for a, b in pairwise([*cuts, len(self)])])

    def check_columns(self, columns: Collection[str]) -> None:
        """Refuse the first column that does not exist."""
        known = {name.lower() for name in columns}
        tree = self.tree()
        bound = bound_names(tree)
        for column in tree.find_all(exp.Column, bfs=False):
            part = column.parts[0]
            if part.name.lower() in known or part.name in bound:
                continue
            start = part.meta.get("start")
            where = self.where if start is None else self.script.place(start)
            check_columns(self.text, list(columns), where)

    def refuse(self, message: str, hint: str) -> NoReturn:
        """Raise an error at this position."""
        stop = "" if hint.endswith(("?", "...")) else "."
        raise InvalidPipeline(message, hint=f"{hint}{stop} See {self.where}")

    def _is_part_of_a_word(self, at: int) -> bool:
        """True if a token only looks like a clause: IS DISTINCT FROM, or a field `a.from`."""
        before = self.tokens[at - 1].token_type if at else None
        kind = self.tokens[at].token_type
        return before == TokenType.DOT or (before == TokenType.DISTINCT and kind == TokenType.FROM)

    def _refuse_syntax(self, error: ParseError) -> NoReturn:
        said = error.errors[0] if error.errors else {}
        at = (said.get("line"), said.get("col"))
        (found, *_) = [n for n, t in enumerate(self.tokens) if (t.line, t.col) == at] or [0]
        message = syntax_problem(said.get("description"), self.tokens[found].text)
        self.part(found).refuse(message, "It has to be Spark SQL")


def _with_session_as_function(tokens: list[Token]) -> list[Token]:
    """The same tokens, with SESSION( as a function and not as a keyword of sqlglot."""
    found = []
    for token, after in zip_longest(tokens, tokens[1:]):
        if (
            token.token_type == TokenType.SESSION
            and after is not None
            and after.token_type == TokenType.L_PAREN
        ):
            place = (token.line, token.col, token.start, token.end)
            token = Token(TokenType.VAR, token.text, *place)
        found.append(token)
    return found


def is_name(token: Token) -> bool:
    """True if a token can be a name: a word, or anything in backticks."""
    if token.token_type in (TokenType.STRING, TokenType.NUMBER):
        return False
    return token.token_type == TokenType.IDENTIFIER or token.text.replace("_", "a").isalnum()


def _last_line(text: str) -> int:
    """The line where an unclosed quote or comment begins."""
    lines = text.split("\n")
    good = 0
    for line in range(1, len(lines)):
        try:
            _spark().tokenize("\n".join(lines[:line]))
            good = line
        except TokenError:
            continue
    return good + 1
