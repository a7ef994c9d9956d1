"""A process that answers queries from users.

SQLite can be interrupted only between two steps, and a single one, such as `instr` of two long
texts, may take hours. Its memory limit holds for the whole process, which may be writing too. So
such queries run in a process of their own, which is killed if it does not stop by itself. It starts
once and answers many queries. This file is its program: it runs by its path, because the package
takes a second to import. `asker.py` is the other end.
"""

from __future__ import annotations

import contextlib
import json
import marshal
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import apsw

from headrace.clock import SECOND, Clock, SystemClock
from headrace.errors import AmbiguousView, InvalidQuery, UserError

MEMORY_BYTES = 256 << 20
"""The limit of SQLite's memory, and of an answer."""
FILE_BYTES = 4 << 30
"""The limit of a temporary file, such as that of a large sort."""

_BEAT = 1_000
"""SQLite's steps between two checks of the clock: well under a millisecond."""
_PATIENCE = 10_000
"""Milliseconds to wait for a database that is being created; later, writers block no reader."""

_ALLOWED = {
    apsw.SQLITE_SELECT,
    apsw.SQLITE_READ,
    apsw.SQLITE_FUNCTION,
    apsw.SQLITE_RECURSIVE,
}
_FORBIDDEN_FUNCTIONS = {"load_extension", "fts3_tokenizer", "readfile", "writefile", "edit"}

Question = dict[str, Any]
"""`databases` by their SQL names, `sql` and its `values`, `limit` of rows and `seconds`."""
Answer = dict[str, Any]
"""`columns`, their Arrow `types`, `rows` and `more`; or the `message` and `hint` of a refusal."""

_VIEWS = "_headrace_view"
_TEMPORARY = 1
"""SQLite's number of the schema temp, in which it looks for a bare name first."""
_NAMED = 5
"""Applications that an error names."""
_Described = Sequence[tuple[str, str | None]]


def serve() -> None:
    """Answer questions one by one, until the asker is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the asker handles Ctrl-C
    apsw.soft_heap_limit(MEMORY_BYTES // 2)
    apsw.hard_heap_limit(MEMORY_BYTES)
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    least = FILE_BYTES if most == resource.RLIM_INFINITY else min(FILE_BYTES, most)
    resource.setrlimit(resource.RLIMIT_FSIZE, (least, most))
    questions, answers = sys.stdin.buffer, sys.stdout.buffer
    answers.write(b".")
    answers.flush()
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            question = marshal.load(questions)
            try:
                found = answer(question, SystemClock())
            except UserError as refused:
                found = refusal(refused)
            marshal.dump(found, answers)
            answers.flush()


def answer(question: Question, clock: Clock) -> Answer:
    """Answer one SELECT on a snapshot, with limits of rows, size and time."""
    seconds = question["seconds"]
    sql, values = question["sql"], question["values"]
    with contextlib.closing(_connected(question["databases"])) as db:
        db.execute("BEGIN")  # the types are those of the rows
        types = _types(db, sql, values)
        db.set_authorizer(_authorize)
        db.set_progress_handler(_beat(clock, seconds), _BEAT)
        try:
            found = _answer(db, sql, values, question["limit"])
            return {**found, "types": types or (None,) * len(found["columns"])}
        except apsw.InterruptError:
            raise too_long(seconds) from None
        except (MemoryError, apsw.NoMemError, apsw.TooBigError, apsw.FullError):
            raise too_much() from None
        except apsw.AuthError:
            raise InvalidQuery("A query can only read", hint="Use SELECT") from None
        except (apsw.Error, TypeError) as error:
            # Only temporary files are written here.
            if getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_WRITE:
                raise too_much() from None
            raise InvalidQuery(f"{sql!r}: {error}") from None


def _connected(databases: Mapping[str, str]) -> apsw.Connection:
    """Connect to the databases of a query. SQLite itself uses the names main and temp."""
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    named = {name.lower(): place for name, place in databases.items()}
    db = apsw.Connection(named.get("main", ":memory:"), flags=flags)
    db.set_busy_timeout(_PATIENCE)
    for name, place in databases.items():
        if name.lower() != "main":
            called = f"{name} " if name.lower() == "temp" else name
            db.execute(f"ATTACH ? AS {_quoted(called)}", (place,))
            if called != name:
                _show_in_temp(db, called)
    return db


def _show_in_temp(db: apsw.Connection, schema: str) -> None:
    """Show the tables of a database in the schema temp."""
    tables = db.execute(f"SELECT name FROM {_quoted(schema)}.sqlite_schema WHERE type != 'index'")
    for (name,) in list(tables):
        if not str(name).startswith("sqlite_"):
            shown = f"{_quoted(schema)}.{_quoted(str(name))}"
            db.execute(f"CREATE TEMP VIEW {_quoted(str(name))} AS SELECT * FROM {shown}")


def _answer(db: apsw.Connection, sql: str, values: Sequence[Any], limit: int | None) -> Answer:
    cursor = db.cursor()
    cursor.exec_trace = _only_one()
    rows: list[tuple[Any, ...]] = []
    columns: tuple[str, ...] = ()
    size = 0
    for row in cursor.execute(sql, values):
        if not columns:
            columns = tuple(name for name, *_ in cursor.get_description())
        if limit is not None and len(rows) == limit:
            cursor.close(force=True)
            return {"columns": columns, "rows": rows, "more": True}
        size += sum(len(v) if isinstance(v, str | bytes) else 8 for v in row)
        if size > MEMORY_BYTES:
            raise too_much()
        rows.append(tuple(row))
    columns = columns or tuple(name for name, _ in _described(db, sql, values))
    return {"columns": columns, "rows": rows, "more": False}


def _beat(clock: Clock, seconds: float | None) -> Callable[[], bool]:
    """Return a function that stops SQLite when the time is up or the asker is gone."""
    end = None if seconds is None else clock.monotonic() + int(seconds * SECOND)
    asker = os.getppid()
    return lambda: os.getppid() != asker or (end is not None and clock.monotonic() > end)


def _authorize(action: int, *details: str | None) -> int:
    function = details[1] if action == apsw.SQLITE_FUNCTION else None
    allowed = action in _ALLOWED and function not in _FORBIDDEN_FUNCTIONS
    # A full-text index asks whether the database has changed.
    allowed |= action == apsw.SQLITE_PRAGMA and details[:2] == ("data_version", None)
    return apsw.SQLITE_OK if allowed else apsw.SQLITE_DENY


def _only_one() -> Callable[..., bool]:
    """Return a function that lets SQLite run one statement and refuses a second."""
    begun = False

    def trace(*_: object) -> bool:
        nonlocal begun
        if begun:
            raise InvalidQuery("There are several queries", hint="Ask one at a time")
        begun = True
        return True

    return trace


def _described(db: apsw.Connection, sql: str, values: Sequence[Any]) -> _Described:
    """The names and declared types of a query's columns, without running it."""
    found: _Described = ()

    def trace(cursor: apsw.Cursor, *_: object) -> bool:
        nonlocal found
        found = cursor.get_description()
        return False

    cursor = db.cursor()
    cursor.exec_trace = trace
    with contextlib.suppress(apsw.ExecTraceAbort):
        cursor.execute(sql, values)
    return found


def _types(db: apsw.Connection, sql: str, values: Sequence[Any]) -> tuple[str | None, ...]:
    """The Arrow types of those columns of a query that are a view's columns, unchanged.

    SQLite knows from which column of a table a result comes, also through subqueries. A view's
    times are expressions to it. So it compiles the query once more, on a mirror: empty tables in
    place of the views, with columns of declared types. None at all if that fails.
    """
    kinds: dict[str, str] = {}
    owners: dict[str, list[str]] = {}
    layouts: dict[str, str] = {}
    with (
        contextlib.suppress(apsw.Error, MemoryError, TypeError),
        contextlib.closing(apsw.Connection(":memory:")) as mirror,
    ):
        for schema, table, columns in _layouts(db, sql.lower()):
            there = {"main", "temp", *(n for _, n, _ in mirror.execute("PRAGMA database_list"))}
            if schema not in there:
                mirror.execute(f"ATTACH ':memory:' AS {_quoted(schema)}")
            declared = []
            for name, kind in columns:
                code = f"k{len(kinds)}" if kind else ""
                declared.append(f"{_quoted(name)} {code}")
                if kind:
                    kinds[code] = kind
            layout = ", ".join(declared)
            mirror.execute(f"CREATE TABLE {_quoted(schema)}.{_quoted(table)} ({layout})")
            owners.setdefault(table.lower(), []).append(schema)
            layouts.setdefault(table.lower(), layout)
        shared = [name for name, by in owners.items() if len(by) > 1 and "temp" not in by]
        for name in shared:
            mirror.execute(f"CREATE TEMP TABLE {_quoted(name)} ({layouts[name]})")
        mirror.set_authorizer(_authorize)
        found = tuple(kinds.get(kind or "") for _, kind in _described(mirror, sql, values))
        for bare in _bare(mirror, sql, values) if shared else ():
            raise _ambiguous(bare, sorted(schema.strip() for schema in owners[bare]))
        return found
    return ()


def _layouts(
    db: apsw.Connection, sql: str
) -> Iterator[tuple[str, str, list[tuple[str, str | None]]]]:
    """The tables and views that a query may name, each with its columns and their Arrow types."""
    for _, schema, _ in list(db.execute("PRAGMA database_list")):
        place = _quoted(str(schema))
        names = [str(n) for (n,) in db.execute(f"SELECT name FROM {place}.sqlite_schema")]
        views = db.execute(f"SELECT name, columns FROM {place}.{_VIEWS}") if _VIEWS in names else ()
        types = {str(name): dict(json.loads(str(columns))) for name, columns in views}
        for name in names:
            if name.lower() in sql and not name.startswith("sqlite_"):
                info = db.execute(f"PRAGMA {place}.table_xinfo({_quoted(name)})")
                columns = [(str(column), types.get(name, {}).get(column)) for _, column, *_ in info]
                if columns:  # an index has none
                    yield str(schema), name, columns


def _bare(mirror: apsw.Connection, sql: str, values: Sequence[Any]) -> list[str]:
    """The tables of the schema temp that a query reads: it names them without a schema."""
    cursor = mirror.cursor()
    cursor.exec_trace = _only_one()
    steps = [tuple(step) for step in cursor.execute(f"EXPLAIN {sql}", values)]
    pages = {p2 for _, code, _, p2, p3, *_ in steps if code == "OpenRead" and p3 == _TEMPORARY}
    names = mirror.execute("SELECT name, rootpage FROM temp.sqlite_schema")
    return [str(name) for name, page in names if page in pages]


def refusal(error: UserError) -> Answer:
    """The answer that a query is refused with."""
    return {
        "message": error.message,
        "hint": error.hint,
        "ambiguous": isinstance(error, AmbiguousView),
    }


def _ambiguous(table: str, apps: Sequence[str]) -> AmbiguousView:
    named = ", ".join(apps[:_NAMED]) + (", ..." if len(apps) > _NAMED else "")
    choices = " or ".join(f"{_quoted(app)}.{_quoted(table)}" for app in apps[:2])
    return AmbiguousView(
        f"Several applications have a view {table!r}: {named}",
        hint=f"Write {choices} in the query, or choose an application (--app, open_views(app=...))",
    )


def too_long(seconds: float) -> InvalidQuery:
    """The error of a query whose time is up."""
    return InvalidQuery(
        f"The query took longer than {seconds:g} s", hint="Select less, or allow more time"
    )


def too_much() -> InvalidQuery:
    """The error of a query that needs too much memory or disk."""
    return InvalidQuery(
        f"The query needs more than {MEMORY_BYTES >> 20} MiB of memory, or {FILE_BYTES >> 30} GiB "
        "for temporary files",
        hint="Select fewer rows or columns",
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


if __name__ == "__main__":
    serve()
