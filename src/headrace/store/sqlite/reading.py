"""Reading views: any number of readers, at any time, on connections that cannot write."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from headrace.errors import InvalidQuery, MisusedHandle, UnknownView
from headrace.pipeline.time import WINDOW_END, WINDOW_START
from headrace.plan.law import Law
from headrace.plan.metadata import OPENED
from headrace.sqlite import Link, connect
from headrace.store.location import views_folder
from headrace.store.sqlite.database import (
    APPLICATION,
    FORMAT,
    LIVE,
    PREFIX,
    failures,
    groups_of,
    panes_of,
)
from headrace.store.sqlite.query_process import Asker
from headrace.store.sqlite.stored import read_only
from headrace.store.sqlite.values import quoted

Rows = list[dict[str, Any]]

_PATIENCE = 10.0
"""Seconds to wait for a database that is being created; later, writers block no reader."""

_ATTACHED = 125
"""SQLite's limit of databases attached to a connection."""

_WORDS = re.compile(
    r"""--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|"[^"]*"|`[^`]*`|\[[^\]]*\]|[^\W\d][\w$]*""", re.DOTALL
)
"""Anything that may be a name in SQL; false matches do no harm."""


@dataclass(frozen=True)
class ViewState:
    """A view and its progress.

    Rows whose window ended `delay` before the `frontier` have fired, those whose window ended
    `delay` and `grace` before it are final. Times are microseconds.
    """

    app: str
    name: str
    key: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    emit: str
    delay: int
    grace: int
    frontier: int | None
    rows: int
    law: Law

    @property
    def watermark(self) -> int | None:
        """The watermark: windows that end by then have fired."""
        return None if self.frontier is None else self.frontier - self.delay


@dataclass(frozen=True)
class Result:
    """The answer to a query."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    more: bool
    """True if there were more rows than the limit."""

    def dicts(self) -> list[dict[str, Any]]:
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


class Views:
    """The views of a log, of all applications or of one."""

    def __init__(self, url: str, app: str | None = None) -> None:
        self._folder = views_folder(url)
        self._app = app
        self._lock = threading.Lock()
        self._asker = Asker()
        self._closed = False

    def __enter__(self) -> Views:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        self._closed = True
        self._asker.close()

    def list(self) -> list[ViewState]:
        """All views, by name."""
        found = [state for app in self.apps() for state in self._states(app)]
        return sorted(found, key=lambda state: (state.name, state.app))

    def skipped(self) -> dict[Path, str]:
        """Files among the databases that cannot be read as views, each with the reason."""
        found = {path: _foreign(path) for path in self._paths()}
        return {path: reason for path, reason in found.items() if reason}

    def last_ends(self, app: str) -> dict[str, int]:
        """The end of the last window of each step of an application, if there is any.

        For a step that waits for the last of several duplicates, the start of the last group.
        """
        if app not in self.apps():
            return {}
        with self._opened(app) as db:
            tables = _tables(db)
            steps = [str(name) for (name,) in db.execute(f"SELECT name FROM {PREFIX}step")]
            found = {
                step: db.execute(f"SELECT max({column}) FROM {quoted(table)}").get
                for step in steps
                for table, column in ((panes_of(step), WINDOW_END), (groups_of(step), OPENED))
                if table in tables
            }
        return {step: int(end) for step, end in found.items() if end is not None}

    def state(self, view: str) -> ViewState:
        """One view."""
        found = {state.name: state for state in reversed(self.list())}
        if view not in found:
            raise UnknownView(
                f"There is no view {view!r}",
                hint=f"There are: {', '.join(sorted(found))}"
                if found
                else "A view exists once its application has run: headrace run MODULE:APP",
            )
        return found[view]

    def rows(self, view: str) -> Rows:
        """Every row of a view, by its key."""
        state = self.state(view)
        order = ", ".join(quoted(name) for name in state.key)
        return self._select(state, f"ORDER BY {order}").dicts()

    def newest(self, view: str, limit: int) -> Result:
        """The rows of the latest windows, the last first; without windows, the first by key."""
        state = self.state(view)
        order = ", ".join(quoted(name) for name in state.key if name != WINDOW_START)
        first = f"{WINDOW_START} DESC" + (f", {order}" if order else "")
        if state.emit == LIVE:
            first = order
        found = self._select(state, f"ORDER BY {first} LIMIT {limit + 1}")
        return Result(found.columns, found.rows[:limit], len(found.rows) > limit)

    def query(
        self,
        sql: str,
        values: Sequence[Any] = (),
        *,
        limit: int | None = 10_000,
        seconds: float | None = 30.0,
    ) -> Result:
        """Answer one SELECT on a snapshot, with limits of rows, time and memory.

        It runs in a process of its own, which can be killed.
        """
        if not sql.strip():
            raise InvalidQuery("The query is empty", hint="SELECT * FROM a view")
        question = {
            "databases": self._named(sql),
            "sql": sql,
            "values": tuple(values),
            "limit": limit,
            "seconds": seconds,
        }
        with self._lock:
            answer = self._asker.ask(question)
        if "message" in answer:
            views = ", ".join(state.name for state in self.list())
            hint = answer["hint"] or f"There are the views: {views or 'none yet'}"
            raise InvalidQuery(answer["message"], hint=hint)
        return Result(**answer)

    def _paths(self) -> Sequence[Path]:
        if self._closed:
            raise MisusedHandle("The views are closed", hint="Open them again: open_views()")
        found = sorted(self._folder.glob("*.db"))
        return [path for path in found if self._app in (None, path.stem)]

    def apps(self) -> Sequence[str]:
        """The applications that have a database of views."""
        return [path.stem for path in self._paths() if _foreign(path) is None]

    @contextlib.contextmanager
    def _opened(self, app: str) -> Iterator[apsw.Connection]:
        """A snapshot of a database of views."""
        path = self._folder / f"{app}.db"
        with failures(path, _PATIENCE).translated(), reading(path) as db:
            yield db

    def _select(self, state: ViewState, rest: str) -> Result:
        """Select rows of a view. Queries of headrace's own need no limits."""
        view = quoted(state.name)
        with self._opened(state.app) as db:
            columns = [str(name) for _, name, *_ in db.execute(f"PRAGMA table_xinfo({view})")]
            found = [tuple(row) for row in db.execute(f"SELECT * FROM {view} {rest}")]
        return Result(tuple(columns), found, False)

    def _named(self, sql: str) -> dict[str, str]:
        """The databases that a query may refer to, by their names in SQL.

        SQLite attaches 125 at most, so it gets only those that the text names, or names a table of.
        A name that two applications use refers to the first.
        """
        words = {word.strip("\"'`[]").lower() for word in _WORDS.findall(sql)}
        apps = self.apps()
        by_name = [app for app in apps if app.lower() in words]
        by_table = [app for app in apps if app not in by_name and words & self._table_names(app)]
        wanted = sorted([*by_name, *by_table][:_ATTACHED])
        # SQL ignores case. Of two names that differ by case alone, the text's spelling decides.
        owner = {app.lower(): app for app in sorted(wanted, key=lambda app: app in sql)}
        return {
            app if owner[app.lower()] == app else f"{app} ": read_only(self._folder / f"{app}.db")
            for app in wanted
        }

    def _states(self, app: str) -> Iterator[ViewState]:
        with self._opened(app) as db:
            for name, key, columns, emit, delay, grace, frontier, law in db.execute(
                "SELECT v.name, v.key, v.columns, v.emit, v.delay, v.grace, s.frontier, s.law "
                "FROM _headrace_view v JOIN _headrace_step s ON s.name = v.step"
            ):
                rows = db.execute(f"SELECT count(*) FROM {quoted(str(name))}").get
                yield ViewState(
                    app,
                    str(name),
                    tuple(json.loads(str(key))),
                    tuple((n, t) for n, t in json.loads(str(columns))),
                    str(emit),
                    int(str(delay)),
                    int(str(grace)),
                    None if frontier is None else int(str(frontier)),
                    int(rows),
                    Law(**json.loads(str(law))),
                )

    def _table_names(self, app: str) -> set[str]:
        with self._opened(app) as db:
            return {name.lower() for name in _tables(db)}


def open_views(log: str | Path, *, app: str | None = None) -> Views:
    """Open the views that applications keep of a log, such as `file:./data`."""
    return Views(str(log), app)


def _tables(db: apsw.Connection) -> set[str]:
    return {str(name) for (name,) in db.execute("SELECT name FROM sqlite_schema")}


@contextlib.contextmanager
def reading(path: Path) -> Iterator[apsw.Connection]:
    """A snapshot of a database, on a read-only connection."""
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    link = Link(
        f"The database {path}",
        lambda: connect(read_only(path), _PATIENCE, flags=flags),
        patience=_PATIENCE,
    )
    with contextlib.closing(link), link.snapshot() as db:
        yield db


def _foreign(path: Path) -> str | None:
    """The reason if a file is no database of views; None if it is, "" if it is being created."""
    try:
        with reading(path) as db:
            made_by = db.execute("PRAGMA application_id").get
            version = int(db.execute("PRAGMA user_version").get)
            if made_by == 0 and not db.execute("SELECT count(*) FROM sqlite_schema").get:
                return ""
    except apsw.Error as error:
        return str(error)
    if made_by != APPLICATION:
        return "it is not a database of views"
    return None if version <= FORMAT else f"a newer headrace made it, in format {version}"
