"""Reading views: any number of readers, at any time, on connections that cannot write."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw

from headrace.engine.law import Law
from headrace.engine.places import OPENED
from headrace.errors import InvalidQuery, UnknownView
from headrace.streams.stream import WINDOW_END, WINDOW_START
from headrace.views.database import APPLICATION, LIVE, PREFIX, groups_of, panes_of
from headrace.views.location import views_folder
from headrace.views.values import quoted

Rows = list[dict[str, Any]]

_ALLOWED = {
    apsw.SQLITE_SELECT,
    apsw.SQLITE_READ,
    apsw.SQLITE_FUNCTION,
    apsw.SQLITE_RECURSIVE,
}
_PATIENCE = 10_000
"""Milliseconds to wait for a database that is being made; later no writer is in the way."""

_FORBIDDEN_FUNCTIONS = {"load_extension", "fts3_tokenizer", "readfile", "writefile", "edit"}


@dataclass(frozen=True)
class ViewState:
    """A view and how far it is.

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
        """Windows that end by then have fired."""
        return None if self.frontier is None else self.frontier - self.delay


@dataclass(frozen=True)
class Result:
    """The answer to a query."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    more: bool
    """There were more rows than the limit."""

    def dicts(self) -> list[dict[str, Any]]:
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


class Views:
    """The views of a log, of all applications or of one."""

    def __init__(self, url: str, app: str | None = None) -> None:
        self._folder = views_folder(url)
        self._app = app
        self._lock = threading.Lock()
        self._db = apsw.Connection(
            ":memory:", flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI
        )
        self._db.set_busy_timeout(_PATIENCE)
        self._apps: list[str] = []
        self._attach()

    def __enter__(self) -> Views:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        self._db.close()

    def _attach(self) -> None:
        """Attach what has come since; a name that two applications use is the first one's."""
        for path in sorted(self._folder.glob("*.db")):
            app = path.stem
            if app in self._apps or (self._app is not None and app != self._app):
                continue
            self._db.execute(
                f"ATTACH ? AS {quoted(app)}", (f"file:{quote(str(path.resolve()))}?mode=ro",)
            )
            if self._db.execute(f"PRAGMA {quoted(app)}.application_id").get == APPLICATION:
                self._apps.append(app)
            else:  # it is being made; the next time it will be there
                self._db.execute(f"DETACH {quoted(app)}")

    def list(self) -> list[ViewState]:
        """All views, by name."""
        with self._lock:
            self._attach()
            found = [state for app in self._apps for state in self._states(app)]
        return sorted(found, key=lambda state: (state.name, state.app))

    def last_ends(self, app: str) -> dict[str, int]:
        """By step of an application, when the last of its windows ends, if there is any.

        Of a step without windows that waits for the last of several rows, when the last of these
        groups began.
        """
        with self._lock:
            self._attach()
            if app not in self._apps:
                return {}
            db, schema = self._db, quoted(app)
            tables = [
                str(name) for (name,) in db.execute(f"SELECT name FROM {schema}.sqlite_schema")
            ]
            steps = [str(name) for (name,) in db.execute(f"SELECT name FROM {schema}.{PREFIX}step")]
            found = {
                step: db.execute(f"SELECT max({column}) FROM {schema}.{quoted(table)}").get
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
                else "A view is there once its application has run: headrace run MODULE:APP",
            )
        return found[view]

    def rows(self, view: str) -> Rows:
        """Every row of a view, by its key."""
        state = self.state(view)
        order = ", ".join(quoted(name) for name in state.key)
        name = f"{quoted(state.app)}.{quoted(view)}"
        return self.query(f"SELECT * FROM {name} ORDER BY {order}", limit=None).dicts()

    def newest(self, view: str, limit: int) -> Result:
        """The rows of the latest windows, the last first; without windows, the first by key."""
        state = self.state(view)
        order = ", ".join(quoted(name) for name in state.key if name != WINDOW_START)
        name = f"{quoted(state.app)}.{quoted(view)}"
        first = f"{WINDOW_START} DESC" + (f", {order}" if order else "")
        if state.emit == LIVE:
            first = order
        return self.query(f"SELECT * FROM {name} ORDER BY {first}", limit=limit)

    def query(
        self,
        sql: str,
        values: Sequence[Any] = (),
        *,
        limit: int | None = 10_000,
        seconds: float | None = 30.0,
    ) -> Result:
        """The answer to one SELECT, at one moment, with bounds to its rows and its time."""
        if not sql.strip():
            raise InvalidQuery("The query is empty", hint="SELECT * FROM a view")
        with self._lock:
            self._attach()
            self._db.set_authorizer(_authorize)
            if seconds is not None:
                self._limit_time(seconds)
            try:
                return self._query(sql, values, limit)
            except apsw.InterruptError:
                raise InvalidQuery(
                    f"The query took longer than {seconds:g} s", hint="Ask for less, or allow more"
                ) from None
            except apsw.AuthError:
                raise InvalidQuery("A query can only read", hint="Use SELECT") from None
            except (apsw.SQLError, apsw.BindingsError) as error:
                views = ", ".join(state.name for app in self._apps for state in self._states(app))
                raise InvalidQuery(
                    f"{sql!r}: {error}", hint=f"There are the views: {views or 'none yet'}"
                ) from None
            finally:
                self._db.set_authorizer(None)
                self._db.set_progress_handler(None)

    def _query(self, sql: str, values: Sequence[Any], limit: int | None) -> Result:
        cursor = self._db.cursor()
        cursor.exec_trace = _only_one()
        rows: list[tuple[Any, ...]] = []
        columns: tuple[str, ...] = ()
        for row in cursor.execute(sql, tuple(values)):
            if not columns:
                columns = tuple(name for name, *_ in cursor.get_description())
            if limit is not None and len(rows) == limit:
                cursor.close(force=True)
                return Result(columns, rows, True)
            rows.append(tuple(row))
        return Result(columns or _columns(self._db, sql, values), rows, False)

    def _limit_time(self, seconds: float) -> None:
        steps = 0

        # Of SQLite's own steps, of which it does some ten million in a second.
        def beat() -> bool:
            nonlocal steps
            steps += 1
            return steps > seconds * 100

        self._db.set_progress_handler(beat, 100_000)

    def _states(self, app: str) -> Iterator[ViewState]:
        db, schema = self._db, quoted(app)
        for name, key, columns, emit, delay, grace, frontier, law in list(
            db.execute(
                "SELECT v.name, v.key, v.columns, v.emit, v.delay, v.grace, s.frontier, s.law "
                f"FROM {schema}._headrace_view v JOIN {schema}._headrace_step s ON s.name = v.step"
            )
        ):
            rows = db.execute(f"SELECT count(*) FROM {schema}.{quoted(str(name))}").get
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


def open_views(log: str | Path, *, app: str | None = None) -> Views:
    """The views that applications keep of a log, such as `file:./data`."""
    return Views(str(log), app)


def _authorize(action: int, *details: str | None) -> int:
    function = details[1] if action == apsw.SQLITE_FUNCTION else None
    allowed = action in _ALLOWED and function not in _FORBIDDEN_FUNCTIONS
    return apsw.SQLITE_OK if allowed else apsw.SQLITE_DENY


def _only_one() -> Callable[..., bool]:
    """Lets SQLite go on with the first statement of a text, and refuses a second one."""
    begun = False

    def trace(*_: object) -> bool:
        nonlocal begun
        if begun:
            raise InvalidQuery("There are several queries", hint="Ask one at a time")
        begun = True
        return True

    return trace


def _columns(db: apsw.Connection, sql: str, values: Sequence[Any]) -> tuple[str, ...]:
    """The columns of a query that has no rows."""
    found: tuple[str, ...] = ()

    def trace(cursor: apsw.Cursor, *_: object) -> bool:
        nonlocal found
        found = tuple(name for name, *_ in cursor.get_description())
        return False

    cursor = db.cursor()
    cursor.exec_trace = trace
    with contextlib.suppress(apsw.ExecTraceAbort):
        cursor.execute(sql, tuple(values))
    return found
