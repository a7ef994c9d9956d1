"""Reading views: any number of readers, at any time, on connections that cannot write."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import apsw
import pyarrow as pa

from headrace.closing import Closing
from headrace.errors import AmbiguousView, InvalidQuery, MisusedHandle, UnknownView
from headrace.pipeline.time import WINDOW_END, WINDOW_START
from headrace.plan.law import Law
from headrace.plan.metadata import OPENED
from headrace.store.location import views_folder
from headrace.store.sqlite import typed
from headrace.store.sqlite.asker import Asker
from headrace.store.sqlite.database import (
    LIVE,
    PREFIX,
    failures,
    groups_of,
    panes_of,
)
from headrace.store.sqlite.recent import recent
from headrace.store.sqlite.result import Result, as_pandas, as_polars
from headrace.store.sqlite.stored import PATIENCE, foreign, read_only, reading
from headrace.store.sqlite.values import quoted

Rows = list[dict[str, Any]]

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


class Views(Closing):
    """The views of a log, of all applications or of one."""

    def __init__(self, url: str, app: str | None = None, *, folder: Path | None = None) -> None:
        self.folder = (folder or views_folder(url)).absolute()
        self._app = app
        self._lock = threading.Lock()
        self._asker = Asker()
        self._closed = False

    def close(self) -> None:
        self._closed = True
        self._asker.close()

    def list(self) -> list[ViewState]:
        """All views, by name."""
        found = [state for app in self.apps() for state in self._states(app)]
        return sorted(found, key=lambda state: (state.name, state.app))

    def skipped(self) -> dict[Path, str]:
        """Files among the databases that cannot be read as views, each with the reason."""
        found = {path: foreign(path) for path in self._paths()}
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
        """One view, by its name. If several applications have it, `application.view` is one."""
        states = self.list()
        found = [state for state in states if state.name == view] or [
            state for state in states if f"{state.app}.{state.name}" == view
        ]
        if len(found) > 1:
            apps = ", ".join(state.app for state in found)
            choices = " or ".join(f"{state.app}.{state.name}" for state in found[:2])
            raise AmbiguousView(
                f"Several applications have a view {view!r}: {apps}",
                hint=f"Write {choices}, or choose an application (--app, open_views(app=...))",
            )
        if not found:
            names = ", ".join(sorted({state.name for state in states}))
            raise UnknownView(
                f"There is no view {view!r}",
                hint=f"There are: {names}"
                if names
                else "A view exists once its application has run: headrace run MODULE:APP. "
                f"Looked in {self.folder}",
            )
        return found[0]

    def rows(self, view: str) -> Rows:
        """Every row of a view, by its key."""
        state = self.state(view)
        order = ", ".join(quoted(name) for name in state.key)
        return self._select(state, f"ORDER BY {order}").dicts()

    @contextlib.contextmanager
    def batches(self, view: str) -> Iterator[pa.RecordBatchReader]:
        """The rows of a view by key, in Arrow batches of one snapshot, for a `with` block.

        Only one batch is in memory at a time. Columns have their declared types; times are in UTC.
        """
        state = self.state(view)
        name, order = quoted(state.name), ", ".join(map(quoted, state.key))
        with self._opened(state.app) as db:
            sql = "SELECT columns FROM _headrace_view WHERE name = ?"
            declared = dict(json.loads(str(db.execute(sql, (state.name,)).get)))
            schema = typed.schema_of(_columns(db, state.name), declared)
            rows = db.execute(f"SELECT * FROM {name} ORDER BY {order}")
            yield pa.RecordBatchReader.from_batches(schema, typed.batches(rows, schema))

    def to_arrow(self, view: str) -> pa.Table:
        """Every row of a view by key, as an Arrow table with the view's declared types."""
        with self.batches(view) as found:
            return found.read_all()

    def to_pandas(self, view: str) -> Any:
        """Every row of a view by key, as a pandas DataFrame."""
        return as_pandas(self.to_arrow(view))

    def to_polars(self, view: str) -> Any:
        """Every row of a view by key, as a Polars DataFrame."""
        return as_polars(self.to_arrow(view))

    def newest(self, view: str, limit: int | None = None) -> Result:
        """The rows of the latest windows, the last first; without windows, the first by key."""
        state = self.state(view)
        order = ", ".join(quoted(name) for name in state.key if name != WINDOW_START)
        first = f"{WINDOW_START} DESC" + (f", {order}" if order else "")
        if state.emit == LIVE:
            first = order
        if limit is None:
            return self._select(state, f"ORDER BY {first}")
        latest = None if state.emit == LIVE else limit + 1
        found = self._select(state, f"ORDER BY {first} LIMIT {limit + 1}", latest)
        return replace(found, rows=found.rows[:limit], more=len(found.rows) > limit)

    def query(
        self,
        sql: str,
        values: Sequence[Any] = (),
        *,
        limit: int | None = None,
        seconds: float | None = 30.0,
    ) -> Result:
        """Answer one SELECT on a snapshot, whole or up to a limit of rows.

        It runs in a process of its own, which can be killed. A query that takes longer than
        `seconds`, or more than 256 MiB, is refused.
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
        if answer.get("ambiguous"):
            raise AmbiguousView(answer["message"], hint=answer["hint"])
        if "message" in answer:
            views = ", ".join(state.name for state in self.list())
            there = views or f"none yet in {self.folder}"
            hint = answer["hint"] or f"There are the views: {there}"
            raise InvalidQuery(answer["message"], hint=hint)
        return Result(**answer)

    def _paths(self) -> Sequence[Path]:
        if self._closed:
            raise MisusedHandle("The views are closed", hint="Open them again: open_views()")
        found = sorted(self.folder.glob("*.db"))
        return [path for path in found if self._app in (None, path.stem)]

    def apps(self) -> Sequence[str]:
        """The applications that have a database of views."""
        return [path.stem for path in self._paths() if foreign(path) is None]

    @contextlib.contextmanager
    def _opened(self, app: str) -> Iterator[apsw.Connection]:
        """A snapshot of a database of views."""
        path = self.folder / f"{app}.db"
        with failures(path, PATIENCE).translated(), reading(path) as db:
            yield db

    def _select(self, state: ViewState, rest: str, newest: int | None = None) -> Result:
        """Select rows of a view; with `newest`, those of windows that have so many rows at least.

        Queries of headrace's own need no limits.
        """
        view = quoted(state.name)
        with self._opened(state.app) as db:
            columns = _columns(db, state.name)
            if newest is not None:
                sql = (
                    "SELECT v.step, m.sql FROM _headrace_view v "
                    "JOIN sqlite_schema m ON m.name = v.name WHERE v.name = ?"
                )
                ((step, made),) = db.execute(sql, (state.name,))
                latest = recent(str(step), str(made))
                view = f"({latest.since(latest.bound(db, newest))})"
            found = [tuple(row) for row in db.execute(f"SELECT * FROM {view} {rest}")]
        return Result(columns, found, False, tuple(map(dict(state.columns).get, columns)))

    def _named(self, sql: str) -> dict[str, str]:
        """The databases that a query may refer to, by their names in SQL.

        SQLite attaches 125 at most, so it gets only those that the text names, or names a table of.
        """
        words = {word.strip("\"'`[]").lower() for word in _WORDS.findall(sql)}
        apps = self.apps()
        by_name = [app for app in apps if app.lower() in words]
        by_table = [app for app in apps if app not in by_name and words & self._table_names(app)]
        wanted = sorted([*by_name, *by_table][:_ATTACHED])
        # SQL ignores case. Of two names that differ by case alone, the text's spelling decides.
        owner = {app.lower(): app for app in sorted(wanted, key=lambda app: app in sql)}
        return {
            app if owner[app.lower()] == app else f"{app} ": read_only(self.folder / f"{app}.db")
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


def _columns(db: apsw.Connection, view: str) -> tuple[str, ...]:
    found = db.execute(f"PRAGMA table_xinfo({quoted(view)})")
    return tuple(str(name) for _, name, *_ in found)


def _tables(db: apsw.Connection) -> set[str]:
    return {str(name) for (name,) in db.execute("SELECT name FROM sqlite_schema")}
