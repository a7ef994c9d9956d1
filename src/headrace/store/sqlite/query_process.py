"""A process that answers queries from users.

SQLite can be interrupted only between two steps, and a single one, such as `instr` of two long
texts, may take hours. Its memory limit holds for the whole process, which may be writing too. So
such queries run in a process of their own, which is killed if it does not stop by itself. It starts
once and answers many queries. This file is its program too: it runs by its path, because the
package takes a second to import.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import apsw

from headrace.clock import SECOND, Clock, SystemClock
from headrace.errors import InvalidQuery

MEMORY_BYTES = 256 << 20
"""The limit of SQLite's memory, and of an answer."""
FILE_BYTES = 4 << 30
"""The limit of a temporary file, such as that of a large sort."""

_BEAT = 1_000
"""SQLite's steps between two checks of the clock: well under a millisecond."""
_GRACE = 2.0
"""Seconds that a query may take to stop by itself when its time is up."""
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
"""`columns`, `rows` and `more`; or the `message` and `hint` of a refusal."""


class Asker:
    """The process, started when it is first asked. Used by one thread at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._pid = os.getpid()

    def ask(self, question: Question) -> Answer:
        """Answer a query, or refuse it if it takes too long or too much."""
        seconds = question["seconds"]
        process = self._running()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(marshal.dumps(question))
            process.stdin.flush()
            patience = None if seconds is None else seconds + _GRACE
            if not select.select([process.stdout], [], [], patience)[0]:
                self.close()
                return _refusal(_too_long(seconds))
            answer: Answer = marshal.load(process.stdout)
            return answer
        except (EOFError, BrokenPipeError):
            self.close()
            return _refusal(_too_much())
        except ValueError as error:
            return {"message": f"A value cannot be given to SQLite: {error}", "hint": "Cast it"}
        except BaseException:  # such as Ctrl-C: the next question must not get this answer
            self.close()
            raise

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None and self._pid == os.getpid():
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()  # type: ignore[union-attr]

    def _running(self) -> subprocess.Popen[bytes]:
        if self._pid != os.getpid():  # the process is the parent's
            self._process, self._pid = None, os.getpid()
        if self._process is None:
            found = os.pathsep.join(path for path in sys.path if path)
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": found},
            )
            assert self._process.stdout is not None
            self._process.stdout.read(1)  # it is ready, and no query pays for its start
        return self._process


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
            except InvalidQuery as refused:
                found = _refusal(refused)
            marshal.dump(found, answers)
            answers.flush()


def answer(question: Question, clock: Clock) -> Answer:
    """Answer one SELECT on a snapshot, with limits of rows, size and time."""
    seconds = question["seconds"]
    with contextlib.closing(_connected(question["databases"])) as db:
        db.set_authorizer(_authorize)
        db.set_progress_handler(_beat(clock, seconds), _BEAT)
        try:
            return _answer(db, question["sql"], question["values"], question["limit"])
        except apsw.InterruptError:
            raise _too_long(seconds) from None
        except (MemoryError, apsw.NoMemError, apsw.TooBigError, apsw.FullError):
            raise _too_much() from None
        except apsw.AuthError:
            raise InvalidQuery("A query can only read", hint="Use SELECT") from None
        except (apsw.Error, TypeError) as error:
            # Only temporary files are written here.
            if getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_WRITE:
                raise _too_much() from None
            raise InvalidQuery(f"{question['sql']!r}: {error}") from None


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
            raise _too_much()
        rows.append(tuple(row))
    return {"columns": columns or _columns(db, sql, values), "rows": rows, "more": False}


def _beat(clock: Clock, seconds: float | None) -> Callable[[], bool]:
    """Return a function that stops SQLite when the time is up or the asker is gone."""
    end = None if seconds is None else clock.monotonic() + int(seconds * SECOND)
    asker = os.getppid()
    return lambda: os.getppid() != asker or (end is not None and clock.monotonic() > end)


def _authorize(action: int, *details: str | None) -> int:
    function = details[1] if action == apsw.SQLITE_FUNCTION else None
    allowed = action in _ALLOWED and function not in _FORBIDDEN_FUNCTIONS
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
        cursor.execute(sql, values)
    return found


def _refusal(error: InvalidQuery) -> Answer:
    return {"message": error.message, "hint": error.hint}


def _too_long(seconds: float) -> InvalidQuery:
    return InvalidQuery(
        f"The query took longer than {seconds:g} s", hint="Select less, or allow more time"
    )


def _too_much() -> InvalidQuery:
    return InvalidQuery(
        f"The query needs more than {MEMORY_BYTES >> 20} MiB of memory, or {FILE_BYTES >> 30} GiB "
        "for temporary files",
        hint="Select fewer rows or columns",
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


if __name__ == "__main__":
    serve()
