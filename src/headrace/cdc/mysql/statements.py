"""Statements in the binlog that change tables as a whole, and those that must not be there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<comment>/\*(?!M?!).*?\*/ | --\s[^\n]*\n? | \#[^\n]*\n?)
      | (?P<opened>/\*M?!\d*) | (?P<closed>\*/)
      | `(?P<quoted>(?:[^`]|``)+)`
      | (?P<text>'(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*")
      | (?P<word>[\w$]+)
      | (?P<mark>.)
    )""",
    re.VERBOSE | re.DOTALL,
)

_ROWS: Final = {"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH", "CALL"}
_PARTS: Final = {"TRUNCATE", "DROP", "EXCHANGE", "REORGANIZE", "COALESCE"}

Effect = Literal["emptied", "replaced", "changed", "rows"]


@dataclass(frozen=True)
class Statement:
    """The effect of a statement on tables, each a schema and a name.

    `emptied`: they have no rows now. `replaced`: they have others, without a change of each in the
    binlog. `changed`: their columns may be others. `rows`: it changed rows as a statement, and the
    binlog does not have them; no table is named, since it may have any number of them.
    """

    effect: Effect
    tables: tuple[tuple[str, str], ...] = ()
    schema: str | None = None
    """The database, if the statement drops all of one."""


def read_statement(text: str, schema: str) -> list[Statement]:
    """The effects of a statement that was run in a database, in order."""
    words = _Words(text, schema)
    first = words.next()
    if first in _ROWS:
        return [Statement("rows")]
    if first == "TRUNCATE":
        words.skip("TABLE")
        return [Statement("emptied", tuple(words.tables()))]
    if first == "DROP":
        words.skip("TEMPORARY")
        if words.skip("TABLE", "TABLES"):
            words.skip("IF")
            words.skip("EXISTS")
            return [Statement("emptied", tuple(words.tables()))]
        if words.skip("DATABASE", "SCHEMA"):
            words.skip("IF")
            words.skip("EXISTS")
            return [Statement("emptied", schema=words.name())]
        return []
    if first == "RENAME" and words.skip("TABLE", "TABLES"):
        return _renamed(words)
    if first == "CREATE":
        return _created(words)
    return _altered(words) if first == "ALTER" else []


def _renamed(words: _Words) -> list[Statement]:
    old, new = [], []
    while True:
        words.skip("IF")
        words.skip("EXISTS")
        old += words.tables(1)
        while not words.skip("TO") and words.next():
            pass
        new += words.tables(1)
        if not words.skip(","):
            return [Statement("emptied", tuple(old)), Statement("replaced", tuple(new))]


def _created(words: _Words) -> list[Statement]:
    replaced = words.skip("OR") and words.skip("REPLACE")
    if words.skip("TEMPORARY") or not words.skip("TABLE"):
        return []
    for word in ("IF", "NOT", "EXISTS"):
        words.skip(word)
    return [Statement("emptied" if replaced else "changed", tuple(words.tables(1)))]


def _altered(words: _Words) -> list[Statement]:
    for word in ("ONLINE", "IGNORE"):
        words.skip(word)
    if not words.skip("TABLE"):
        return []
    words.skip("IF")
    words.skip("EXISTS")
    table = tuple(words.tables(1))
    found = [Statement("changed", table)]
    before, depth = "", 0
    while word := words.next():
        depth += (word == "(") - (word == ")")
        if depth:
            continue
        if (word == "PARTITION" and before in _PARTS) or word == "TABLESPACE":
            found.append(Statement("replaced", table))
        if word == "RENAME" and not words.skip("COLUMN", "INDEX", "KEY"):
            words.skip("TO", "AS")
            found += [
                Statement("emptied", table),
                Statement("replaced", tuple(words.tables(1))),
            ]
        before = word
    return found


class _Words:
    """The words of a statement, in capitals, and marks; names keep their case."""

    def __init__(self, text: str, schema: str) -> None:
        self._schema = schema
        self._found: list[tuple[str, str]] = []
        for match in _TOKEN.finditer(text):
            kind = str(match.lastgroup)
            if kind in ("word", "mark", "quoted", "text"):
                self._found.append((kind, match[kind].strip()))
        self._at = 0

    def next(self) -> str:
        """The next word; empty at the end. Names in quotes and texts are passed as marks."""
        if self._at == len(self._found):
            return ""
        kind, word = self._found[self._at]
        self._at += 1
        return word.upper() if kind == "word" else word if kind == "mark" else "?"

    def skip(self, *words: str) -> bool:
        """Pass the next word if it is one of these."""
        if self._at < len(self._found):
            kind, word = self._found[self._at]
            if kind in ("word", "mark") and word.upper() in words:
                self._at += 1
                return True
        return False

    def name(self) -> str:
        if self._at == len(self._found):
            return ""
        kind, word = self._found[self._at]
        self._at += 1
        return word.replace("``", "`") if kind == "quoted" else word

    def tables(self, most: int = 1 << 30) -> list[tuple[str, str]]:
        """Names of tables with commas between them."""
        found: list[tuple[str, str]] = []
        while len(found) < most:
            name = self.name()
            if not name:
                break
            found.append((name, self.name()) if self.skip(".") else (self._schema, name))
            if len(found) == most or not self.skip(","):
                break
        return found
