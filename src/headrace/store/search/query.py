"""Queries in words, as FTS5 understands them.

    blue shoe            rows with both words
    "blue shoe"          the words side by side, in this order
    sho*                 words that begin so
    title:shoe           only in one column
    red OR blue shoe     either of two words, and shoe
    shoe -suede          rows without a word

Every word reaches FTS5 in quotes, so that no text can be an instruction.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.errors import InvalidQuery

MOST_TERMS = 100

_TOKEN = re.compile(
    r"""(?P<minus>-?)
        (?:(?P<column>[^\W\d][^\s":*]*):(?=[^\s:/]))?
        (?:"(?P<phrase>[^"]*)(?P<closed>"?)|(?P<word>[^\s"]+))
        (?P<star>\*?)""",
    re.VERBOSE,
)
_LETTER = re.compile(r"\w")
_EXAMPLES = 'Write words: blue shoe, "blue shoe", sho*, title:shoe, red OR blue, shoe -suede'


@dataclass(frozen=True)
class _Term:
    """A word or phrase as FTS5 reads it."""

    text: str
    excluded: bool


def to_fts5(text: str, columns: Mapping[str, str]) -> str:
    """A query in words as an expression of FTS5, given the searched columns and their names there.

    Raises `InvalidQuery`, which says in words what is wrong.
    """
    clauses: list[list[_Term]] = []
    excluded: list[_Term] = []
    joins = False
    count = 0
    for found in _TOKEN.finditer(text):
        if found["word"] == "OR" and not found["minus"] and not found["column"]:
            if joins or not clauses:
                raise _wrong("OR needs a word on either side")
            joins = True
            continue
        term = _term(found, columns)
        if term is None:
            continue
        count += 1
        if term.excluded:
            if joins:
                raise _wrong("OR cannot join a word that is excluded")
            excluded.append(term)
        elif joins:
            clauses[-1].append(term)
            joins = False
        else:
            clauses.append([term])
    if joins:
        raise _wrong("OR needs a word on either side")
    if count > MOST_TERMS:
        raise InvalidQuery(f"The query has {count} words", hint=f"Search for at most {MOST_TERMS}")
    if not clauses:
        raise _wrong("There is no word to search for" if not excluded else "All words are excluded")
    wanted = " AND ".join(f"({' OR '.join(term.text for term in terms)})" for terms in clauses)
    if not excluded:
        return wanted
    return f"({wanted}) NOT ({' OR '.join(term.text for term in excluded)})"


def _term(found: re.Match[str], columns: Mapping[str, str]) -> _Term | None:
    """One word or phrase; None if nothing in it can be found, such as punctuation."""
    if found["phrase"] is not None and not found["closed"]:
        raise _wrong("A quotation mark is not closed")
    words = found["phrase"] if found["phrase"] is not None else found["word"]
    star = found["star"]
    if found["phrase"] is None and words.endswith("*"):
        words, star = words.rstrip("*"), "*"
    if not _LETTER.search(words):
        return None
    quoted = '"' + words.replace('"', '""').replace("\0", " ") + '"' + (" *" if star else "")
    if (name := found["column"]) is not None:
        quoted = f"{{{_column(name, columns)}}} : {quoted}"
    return _Term(quoted, bool(found["minus"]))


def _column(name: str, columns: Mapping[str, str]) -> str:
    if name in columns:
        return columns[name]
    alike = [stored for known, stored in columns.items() if known.lower() == name.lower()]
    if len(alike) == 1:
        return alike[0]
    raise InvalidQuery(
        f"There is no column {name!r} to search",
        hint=f"There are: {', '.join(columns)}. To search for a colon, put the words in quotes",
    )


def _wrong(what: str) -> InvalidQuery:
    return InvalidQuery(what, hint=_EXAMPLES)
