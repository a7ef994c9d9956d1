"""Rows of a view for pages and feeds: the newest ones, at a cost that does not grow with the view.

A view of windows is an SQL view of one table, which has an index by the end of the window. In a
WHERE, SQLite takes a name for the table's column before the view's, so a bound on the end of the
window uses that index.
"""

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
from headrace.store.sqlite.database import LIVE, failures, panes_of, slots_of
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
    select: str
    table: str | None
    """The table with an index by the end of the window, if there is one."""

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
    _, _, select = str(sql).partition(" AS ")
    columns = db.execute(f"PRAGMA table_xinfo({quoted(view)})")
    tables = (quoted(panes_of(str(step))), quoted(slots_of(str(step))))
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
        select,
        next((table for table in tables if f" FROM {table}" in str(sql)), None),
    )


def newest(db: apsw.Connection, view: Described, limit: int) -> list[tuple[Any, ...]]:
    """The rows of the latest windows, the last first; without windows, the last changed first."""
    order = ", ".join(quoted(name) for name in view.key if name != WINDOW_START)
    if view.windowed:
        first = f"{WINDOW_START} DESC" + (f", {order}" if order else "")
    else:
        first = f"{REVISION} DESC, {order}" if REVISION in view.columns else order
    bound = _bound(db, view, limit)
    rows = db.execute(f"SELECT * FROM ({_since(view, bound)}) ORDER BY {first} LIMIT {limit}")
    return [tuple(row) for row in rows]


def windows(db: apsw.Connection, view: Described, column: str) -> list[Window]:
    """The sums of a column in the latest windows, the oldest first."""
    last = _last_ends(db, view)
    rows = db.execute(
        f"SELECT {WINDOW_START}, {WINDOW_END}, sum({quoted(column)}) "
        f"FROM ({_since(view, min(last, default=None))}) "
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
    bound = min(_last_ends(db, view), default=None)
    rows = db.execute(
        f"SELECT * FROM ({_since(view, bound)}) WHERE {WINDOW_START} = ? AND {WINDOW_END} = ? "
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


def _since(view: Described, bound: int | None) -> str:
    """The view's SELECT, from the windows on that end at a moment or later."""
    if bound is None or view.table is None:
        return view.select
    joint = "AND" if _condition(view) else "WHERE"
    return f"{view.select} {joint} {WINDOW_END} >= {bound}"


def _condition(view: Described) -> str:
    """The WHERE of a view of one table, if it has one."""
    return view.select.rpartition(f" FROM {view.table}")[2]


def _bound(db: apsw.Connection, view: Described, limit: int) -> int | None:
    """An end such that as many rows have a window that ends then or later."""
    if view.table is None or not view.windowed:
        return None
    # Where only final rows are shown, the others are in the table nevertheless.
    found = db.execute(
        f"SELECT {WINDOW_END} FROM {view.table} {_condition(view)} "
        f"ORDER BY {WINDOW_END} DESC LIMIT 1 OFFSET {limit}"
    ).get
    return None if found is None else int(found)


def _last_ends(db: apsw.Connection, view: Described) -> list[int]:
    """The ends of the latest windows, by one step in the index for each."""
    ends: list[int] = []
    while view.table is not None and len(ends) < _WINDOWS:
        before = (ends[-1],) if ends else (1 << 62,)
        sql = f"SELECT max({WINDOW_END}) FROM {view.table} WHERE {WINDOW_END} < ?"
        end = db.execute(sql, before).get
        if end is None:
            break
        ends.append(int(end))
    return ends
