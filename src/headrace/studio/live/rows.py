"""Rows of a view for pages and feeds: the newest ones, at a cost that does not grow with it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from headrace.errors import UnknownView
from headrace.pipeline.time import WINDOW_END, WINDOW_START
from headrace.plan.law import Law
from headrace.plan.metadata import REVISION
from headrace.store import Views
from headrace.store.sqlite.database import LIVE, failures
from headrace.store.sqlite.recent import Recent, recent
from headrace.store.sqlite.stored import PATIENCE, reading
from headrace.store.sqlite.values import quoted

STATE = "_state"
_NUMBERS = ("int", "uint", "float", "double", "half")
_WINDOWS = 60
"""Windows that a chart shows at most."""


@dataclass(frozen=True)
class Described:
    """A view: its columns with their Arrow types, its key, and how far it is."""

    app: str
    name: str
    step: str
    key: tuple[str, ...]
    types: dict[str, str]
    columns: tuple[str, ...]
    emit: str
    frontier: int | None
    watermark: int | None
    recent: Recent

    @property
    def windowed(self) -> bool:
        return self.emit != LIVE and WINDOW_START in self.columns

    @property
    def numbers(self) -> tuple[str, ...]:
        """The columns with numbers that are results, in order."""
        return tuple(
            name
            for name in self.columns
            if self.types.get(name, "").startswith(_NUMBERS)
            and name not in self.key
            and not name.startswith("_")
        )

    @property
    def right(self) -> tuple[str, ...]:
        """The columns that a table aligns to the right."""
        return tuple(
            name
            for name in self.columns
            if self.types.get(name, "").startswith((*_NUMBERS, "decimal"))
        )


@dataclass(frozen=True)
class Window:
    """A window of a view: its ends as the view shows them, and the sum of a column."""

    start: str
    end: str
    total: float


@contextlib.contextmanager
def opened(views: Views, app: str) -> Iterator[apsw.Connection]:
    """A snapshot of an application's database."""
    path = database(views, app)
    if not path.exists():
        raise UnknownView(
            f"There is no application {app[:80]!r} with views",
            hint=f"There are: {', '.join(views.apps()) or 'none'}",
        )
    with failures(path, PATIENCE).translated(), reading(path) as db:
        yield db


def database(views: Views, app: str) -> Path:
    """The database of an application's views. No name leads out of their folder."""
    return views.folder / f"{Path(app).name}.db"


def described(db: apsw.Connection, app: str, view: str) -> Described:
    """A view by its name. It costs the same for any number of rows."""
    found = list(
        db.execute(
            "SELECT v.step, v.key, v.columns, v.emit, v.delay, s.frontier, m.sql "
            "FROM _headrace_view v JOIN _headrace_step s ON s.name = v.step "
            "JOIN sqlite_schema m ON m.name = v.name WHERE v.name = ?",
            (view,),
        )
    )
    if not found:
        names = sorted(str(name) for (name,) in db.execute("SELECT name FROM _headrace_view"))
        raise UnknownView(
            f"Application {app!r} has no view {view[:80]!r}",
            hint=f"There are: {', '.join(names) or 'none'}",
        )
    ((step, key, types, emit, delay, frontier, sql),) = found
    columns = db.execute(f"PRAGMA table_xinfo({quoted(view)})")
    reached = None if frontier is None else int(str(frontier))
    return Described(
        app,
        view,
        str(step),
        tuple(json.loads(str(key))),
        dict(json.loads(str(types))),
        tuple(str(name) for _, name, *_ in columns),
        str(emit),
        reached,
        None if reached is None else reached - int(str(delay)),
        recent(str(step), str(sql)),
    )


def newest(db: apsw.Connection, view: Described, limit: int) -> list[tuple[Any, ...]]:
    """The rows of the latest windows, the last first; without windows, the last changed first."""
    order = ", ".join(quoted(name) for name in view.key if name != WINDOW_START)
    if view.windowed:
        first = f"{WINDOW_START} DESC" + (f", {order}" if order else "")
    else:
        first = f"{REVISION} DESC, {order}" if REVISION in view.columns else order
    bound = view.recent.bound(db, limit) if view.windowed else None
    rows = db.execute(f"SELECT * FROM ({view.recent.since(bound)}) ORDER BY {first} LIMIT {limit}")
    return [tuple(row) for row in rows]


def windows(db: apsw.Connection, view: Described, column: str) -> list[Window]:
    """The sums of a column in the latest windows, the oldest first."""
    last = view.recent.ends(db, _WINDOWS)
    rows = db.execute(
        f"SELECT {WINDOW_START}, {WINDOW_END}, sum({quoted(column)}) "
        f"FROM ({view.recent.since(min(last, default=None))}) "
        f"GROUP BY 1, 2 ORDER BY 1 DESC, 2 DESC LIMIT {_WINDOWS}"
    )
    found = [Window(str(start), str(end), float(total or 0)) for start, end, total in rows]
    return found[::-1]


def largest(
    db: apsw.Connection, view: Described, column: str, window: Window, limit: int
) -> list[dict[str, Any]]:
    """The rows of a window with the largest values of a column, those first."""
    key = ", ".join(quoted(name) for name in view.key)
    # The newest window at least is within the bound.
    bound = min(view.recent.ends(db, _WINDOWS), default=None)
    rows = db.execute(
        f"SELECT * FROM ({view.recent.since(bound)}) WHERE {WINDOW_START} = ? AND {WINDOW_END} = ? "
        f"ORDER BY {quoted(column)} DESC, {key} LIMIT {limit}",
        (window.start, window.end),
    )
    return [dict(zip(view.columns, row, strict=True)) for row in rows]


def row_of(db: apsw.Connection, view: Described, key: Sequence[str]) -> tuple[Any, ...] | None:
    """The row whose key has these texts."""
    if len(key) != len(view.key):
        return None
    values = [
        _stored(text, view.types.get(name, "")) for name, text in zip(view.key, key, strict=True)
    ]
    match = " AND ".join(f"{quoted(name)} = ?" for name in view.key)
    found = db.execute(f"SELECT * FROM {quoted(view.name)} WHERE {match} LIMIT 1", values)
    return next((tuple(row) for row in found), None)


def progress(db: apsw.Connection, view: Described) -> tuple[int, Law]:
    """The number of rows of a view, and the law of its input."""
    rows = db.execute(f"SELECT count(*) FROM {quoted(view.name)}").get
    law = db.execute(
        "SELECT s.law FROM _headrace_step s JOIN _headrace_view v ON v.step = s.name "
        "WHERE v.name = ?",
        (view.name,),
    ).get
    return int(rows), Law(**json.loads(str(law)))


def _stored(text: str, kind: str) -> str | int | float:
    """A text from an address as a view has its value."""
    try:
        if kind.startswith(("int", "uint", "bool")):
            return int(text)
        return float(text) if kind in ("float", "double") else text
    except ValueError:
        return text
