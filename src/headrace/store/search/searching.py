"""Searching: any number of readers, on connections that cannot write and that have limits."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.closing import Closing
from headrace.errors import AmbiguousView, InvalidQuery, UnknownView
from headrace.schema.python_rows import to_values
from headrace.sqlite import Failures
from headrace.store.location import stores_folder
from headrace.store.search.index import PATIENCE
from headrace.store.search.query import to_fts5
from headrace.store.sqlite.asker import Asker
from headrace.store.sqlite.stored import read_only, reading
from headrace.store.sqlite.typed import parse_arrow
from headrace.store.sqlite.values import from_sqlite

_ENDING = ".search.db"
_TRIES = 5
"""Searches that begin again since the index was switched meanwhile."""
_SNIPPET_WORDS = 16


@dataclass(frozen=True)
class Hit:
    """A row that was found: how well it matches, and where.

    Better matches have higher scores. The `snippet` is the best part of its text, with the words
    that were found between marks.
    """

    score: float
    snippet: str
    row: Mapping[str, Any]


@dataclass(frozen=True)
class Found:
    """The best matches first. `more` is True if there are more than were asked for."""

    hits: tuple[Hit, ...]
    more: bool


@dataclass(frozen=True)
class _Live:
    """The live version of an index."""

    number: int
    columns: tuple[tuple[str, str], ...]
    searched: tuple[str, ...]

    @property
    def stored(self) -> dict[str, str]:
        """The searched columns, and their names in the file."""
        places = {name: f"c{place}" for place, (name, _) in enumerate(self.columns)}
        return {name: places[name] for name in self.searched}


class SearchIndex(Closing):
    """The search index of one view, open for reading."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._asker = Asker()
        self._lock = threading.Lock()
        self._failures = Failures(
            path, str(path), PATIENCE, busy="Try again", full="Free some space",
            damaged="Remove the file: the index is built again from the view",
            corrupt=InvalidQuery, other=InvalidQuery,
        )  # fmt: skip

    def search(
        self,
        text: str,
        *,
        limit: int = 20,
        weights: Mapping[str, float] | None = None,
        marks: tuple[str, str] = ("[", "]"),
        seconds: float | None = 30.0,
    ) -> Found:
        """The rows that match a query in words, the best first.

        Words are joined by "and"; there are "phrases", prefixes (sho*), columns (title:shoe), OR
        and exclusions (-suede). A match in a column counts as often as its weight says.
        """
        if limit < 1:
            raise InvalidQuery(f"limit cannot be {limit}", hint="Ask for at least one row")
        for _ in range(_TRIES):
            live = self._live()
            sql, values = _sql(live, text, limit, weights or {}, marks)
            question = {
                "databases": {"main": read_only(self._path)},
                "sql": sql,
                "values": values,
                "limit": limit,
                "seconds": seconds,
            }
            with self._lock:
                answer = self._asker.ask(question)
            if "message" not in answer:
                return _found(live, answer)
            if self._live().number == live.number:
                break
        raise InvalidQuery(f"{text!r} cannot be searched for: {answer['message']}")

    def close(self) -> None:
        self._asker.close()

    def _live(self) -> _Live:
        with self._failures.translated(), reading(self._path) as db:
            sql = "SELECT number, columns, searched FROM version WHERE live"
            rows = [tuple(row) for row in db.execute(sql)]
        if not rows:
            raise UnknownView(
                f"The search index {self._path} is being built for the first time",
                hint="headrace stores list shows how far it is",
            )
        ((number, columns, searched),) = rows
        return _Live(
            int(str(number)),
            tuple((name, kind) for name, kind in json.loads(str(columns))),
            tuple(json.loads(str(searched))),
        )


def open_search(
    view: str, log: str | Path = "file:./data", *, app: str | None = None
) -> SearchIndex:
    """Open the search index of a view, to search it; in a `with` block.

    with open_search("products", "file:./data") as index:
        for hit in index.search("blue sho*").hits:
            print(hit.score, hit.snippet)
    """
    folder = stores_folder(str(log))
    found = sorted(folder.glob(f"{app or '*'}/*{_ENDING}"))
    named = [path for path in found if path.name == f"{view}{_ENDING}"] or [
        path for path in found if f"{path.parent.name}.{path.name}" == f"{view}{_ENDING}"
    ]
    if len(named) > 1:
        apps = ", ".join(path.parent.name for path in named)
        raise AmbiguousView(
            f"Several applications have a search index of a view {view!r}: {apps}",
            hint=f"Write {named[0].parent.name}.{view}, or choose an application (--app, app=...)",
        )
    if not named:
        names = ", ".join(sorted(path.name.removesuffix(_ENDING) for path in found))
        raise UnknownView(
            f"There is no search index of a view {view!r}",
            hint=f"There are: {names}"
            if names
            else "A view has one with app.view(..., store='search:'), once its application has run",
        )
    return SearchIndex(named[0])


def _sql(
    live: _Live, text: str, limit: int, weights: Mapping[str, float], marks: tuple[str, str]
) -> tuple[str, Sequence[Any]]:
    """The query, in SQL of ours alone: the user's words are a value."""
    for name in weights:
        if name not in live.searched:
            raise InvalidQuery(
                f"There is no column {name!r} to give a weight",
                hint=f"There are: {', '.join(live.searched)}",
            )
    rows, index = f"rows_{live.number}", f"text_{live.number}"
    weighed = ", ".join(repr(float(weights.get(name, 1.0))) for name in live.searched)
    listed = ", ".join(f"r.c{place}" for place in range(len(live.columns)))
    # FTS5 sorts by its column `rank` itself, and only the rows that are asked for get a snippet.
    sql = (
        f"SELECT -{index}.rank, snippet({index}, -1, ?, ?, '…', {_SNIPPET_WORDS}), {listed} "
        f"FROM {index} JOIN {rows} r ON r.id = {index}.rowid "
        f"WHERE {index} MATCH ? AND rank MATCH ? ORDER BY {index}.rank LIMIT ?"
    )
    return sql, (*marks, to_fts5(text, live.stored), f"bm25({weighed})", limit + 1)


def _found(live: _Live, answer: Mapping[str, Any]) -> Found:
    rows = answer["rows"]
    columns = list(zip(*rows, strict=True))[2:] if rows else [()] * len(live.columns)
    values = [
        to_values(from_sqlite(column, parse_arrow(kind)))
        for column, (_, kind) in zip(columns, live.columns, strict=True)
    ]
    names = [name for name, _ in live.columns]
    hits = [
        Hit(float(row[0]), str(row[1]), dict(zip(names, cells, strict=True)))
        for row, *cells in zip(rows, *values, strict=True)
    ]
    return Found(tuple(hits), bool(answer["more"]))
