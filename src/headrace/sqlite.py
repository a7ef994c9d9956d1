"""SQLite connections that never cross a fork, and the translation of SQLite's errors.

SQLite keeps a table of the locks that its process holds. A forked child inherits that table with
every open connection and treats its parent's locks as its own: when the parent closes the file,
the child's commits are lost. So no connection is ever open during a fork. A fork waits until no
thread uses a connection and closes them all; parent and child reopen theirs when they next need
them. Therefore every use is inside a `with` block: `with link as db`.

A fork that cannot be made safe is refused: if the forking thread is inside such a block, or another
thread does not leave its block in time, every SQLite file raises `MisusedHandle` in the child.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeVar

import apsw

from headrace.errors import DiskFull, HeadraceError, LogBusy, MisusedHandle
from headrace.forks import in_child

T = TypeVar("T")

FORK_PATIENCE = 10.0
"""Seconds that a fork waits for other threads to leave their blocks."""

_DELAYS = (*(0.001,) * 100, 0.005, 0.01, 0.02, 0.025, 0.05, 0.05, 0.1)
"""Seconds between attempts to get a lock. Most holders need it for a millisecond or two, so many
processes that take turns would leave it unused if they slept as long as SQLite's busy handler."""

_READWRITE = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE

_numbers = itertools.count(1)

log = logging.getLogger(__name__)


class _Gate:
    """The gate that threads enter to use a connection. A fork shuts it and waits for the last."""

    def __init__(self) -> None:
        self.connections: dict[int, apsw.Connection] = {}
        """All open connections, by number."""
        self.orphans: list[int] = []
        """Connections of dead links. A finalizer must not wait, so the next user closes them."""
        self.refused = False
        """True if this process was forked while SQLite was in use."""
        self._change = threading.Condition()
        self._inside: dict[int, int] = {}
        self._forking: int | None = None
        self._unsafe = False

    def enter(self) -> None:
        me = threading.get_ident()
        with self._change:
            depth = self._inside.get(me, 0)
            # A thread that is already inside must go on, or the fork would wait for it forever.
            while not depth and self._forking not in (None, me):
                self._change.wait()
            self._inside[me] = depth + 1
        while self.orphans:
            self.close(self.orphans.pop())

    def leave(self) -> None:
        me = threading.get_ident()
        with self._change:
            self._inside[me] -= 1
            if not self._inside[me]:
                self._outside(me)

    def pause(self, seconds: float) -> None:
        """Wait inside, but step outside while another thread forks."""
        me = threading.get_ident()
        with self._change:
            outermost = self._inside[me] == 1
            if self._change.wait_for(lambda: outermost and self._forking is not None, seconds):
                self._outside(me)
                self._change.wait_for(lambda: self._forking is None)
                self._inside[me] = 1

    def close(self, number: int) -> None:
        """Close a connection, if it is open."""
        connection = self.connections.pop(number, None)
        if connection is not None:
            # If SQLite cannot checkpoint its WAL now, the data stays in the WAL.
            with contextlib.suppress(apsw.IOError, apsw.FullError):
                connection.close(True)

    def _outside(self, me: int) -> None:
        del self._inside[me]
        if self._forking is not None:
            self._change.notify_all()

    # Forks

    def before(self) -> None:
        me = threading.get_ident()
        with self._change:
            self._change.wait_for(lambda: self._forking is None)
            self._forking = me
            self._change.wait_for(lambda: self._inside.keys() <= {me}, FORK_PATIENCE)
            self._unsafe = bool(self._inside)
            if not self._unsafe:
                for number, connection in list(self.connections.items()):
                    # The WAL checkpoint is left to the last process that closes the file.
                    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                    self.close(number)

    def in_parent(self) -> None:
        unsafe = self._unsafe
        with self._change:
            self._forking = None
            self._change.notify_all()
        if unsafe:
            log.warning(
                "this process was forked in the middle of a transaction or query; the child "
                "cannot use any log or view. Fork at another time, or start processes with spawn"
            )

    def in_child(self) -> None:
        me = threading.get_ident()
        self._change = threading.Condition()
        self._forking = None
        self.refused |= self._unsafe
        self._inside = {me: self._inside[me]} if me in self._inside else {}
        for connection in self.connections.values():
            # Closing it or rolling it back would disturb the parent's transaction. It must not
            # even be garbage collected.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
            with contextlib.suppress(apsw.ThreadingViolationError):  # used by a lost thread
                connection.exec_trace = _refuse
        self.connections.clear()
        self.orphans.clear()


_gate = _Gate()
os.register_at_fork(
    before=_gate.before, after_in_parent=_gate.in_parent, after_in_child=_gate.in_child
)


def connect(
    file: str, patience: float, *, flags: int = _READWRITE, vfs: str | None = None
) -> apsw.Connection:
    """Open a connection for a `Link` that waits up to `patience` seconds for other processes."""
    connection = apsw.Connection(file, flags=flags, vfs=vfs)
    connection.set_busy_timeout(int(patience * 1000))
    return connection


class Link:
    """A SQLite connection that opens when needed, and reopens after a fork.

    Use it in a `with` block, `with link as db`: one thread at a time, and blocks can nest. `name`
    describes the file, and `patience` is how many seconds it waits for another process.
    """

    def __init__(
        self, name: str, connect: Callable[[], apsw.Connection], *, patience: float
    ) -> None:
        self._name = name
        self._connect = connect
        self._patience = patience
        self._lock = threading.RLock()
        self._user: int | None = None
        self._uses = 0
        self._closed = False
        self.number = 0
        """The number of its connection. Each new connection has a new number, also in a child."""
        in_child(self, Link._renew)

    def __enter__(self) -> apsw.Connection:
        _gate.enter()
        try:
            self._acquire()
        except BaseException:
            _gate.leave()
            raise
        try:
            return self._opened()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        self._release()
        _gate.leave()

    def __del__(self) -> None:
        if self.number:
            _gate.orphans.append(self.number)

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[apsw.Connection]:
        """A read transaction: all queries in the block see the same snapshot."""
        with self as connection:
            if connection.in_transaction:
                yield connection
                return
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                if self._has(connection) and connection.in_transaction:
                    connection.execute("COMMIT")

    @contextlib.contextmanager
    def transaction(
        self, prepare: Callable[[apsw.Connection], None] | None = None
    ) -> Iterator[apsw.Connection]:
        """A write transaction, which commits at the end of the block or rolls back.

        `prepare` gets the connection before the transaction begins.
        """

        def begin(connection: apsw.Connection) -> apsw.Connection:
            if prepare is not None:
                prepare(connection)
            connection.execute("BEGIN IMMEDIATE")
            return connection

        with self:
            connection = self._patiently(begin)
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if self._has(connection) and connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def patiently(self, attempt: Callable[[apsw.Connection], T]) -> T:
        """Call `attempt` until no other process holds the lock, and return its result.

        SQLite itself waits, except where it suspects a deadlock, such as a change of journal mode.
        """
        with self:
            return self._patiently(attempt)

    def reconnect(self) -> None:
        """Close its connection; the next use opens another."""
        with self:
            _gate.close(self.number)

    def close(self) -> None:
        """Close it for good, once no thread is using it."""
        _gate.enter()
        try:
            with self._lock:
                self._closed = True
                _gate.close(self.number)
        finally:
            _gate.leave()

    # Inside

    def _opened(self) -> apsw.Connection:
        if _gate.refused:
            _refuse()
        if self._closed:
            raise MisusedHandle(f"{self._name} is closed", hint="Open it again")
        connection = _gate.connections.get(self.number)
        if connection is None:
            connection = self._connect()
            self.number = next(_numbers)
            _gate.connections[self.number] = connection
        return connection

    def _has(self, connection: apsw.Connection) -> bool:
        """True if this is still its connection. False in a child forked inside a block."""
        return _gate.connections.get(self.number) is connection

    def _patiently(self, attempt: Callable[[apsw.Connection], T]) -> T:
        deadline = time.monotonic() + self._patience
        for delay in itertools.chain(_DELAYS, itertools.repeat(_DELAYS[-1])):
            connection = self._opened()
            # If SQLite itself waited, it would also hold up a fork by another thread.
            connection.set_busy_timeout(0)
            try:
                return attempt(connection)
            except apsw.BusyError:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise
            finally:
                connection.set_busy_timeout(int(self._patience * 1000))
            self._release()
            try:
                _gate.pause(min(delay, left))
            finally:
                self._acquire()
        raise AssertionError("the delays have no end")

    def _acquire(self) -> None:
        self._lock.acquire()
        self._user = threading.get_ident()
        self._uses += 1

    def _release(self) -> None:
        self._uses -= 1
        if not self._uses:
            self._user = None
        self._lock.release()

    def _renew(self) -> None:
        if self._user != threading.get_ident():
            self._lock = threading.RLock()
            self._user, self._uses = None, 0


def _refuse(*_: object) -> NoReturn:
    raise MisusedHandle(
        "This process was forked in the middle of a transaction or query of its parent, so it "
        "cannot use logs and views",
        hint="Fork at another time, or start the process with spawn",
    )


@dataclass(frozen=True)
class Failures:
    """The translation of SQLite's errors for one file: its name, hints and error types."""

    path: Path
    what: str
    patience: float
    busy: str
    full: str
    damaged: str
    corrupt: type[HeadraceError]
    other: type[HeadraceError]
    read_only: type[HeadraceError] | None = None

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        """Translate SQLite's errors to headrace's."""
        try:
            yield
        except apsw.Error as error:
            raise self._of(error) from error

    def _of(self, error: apsw.Error) -> HeadraceError:
        if isinstance(error, apsw.BusyError | apsw.LockedError):
            return LogBusy(
                f"Another process has held the lock on {self.what} for {self.patience:g} s",
                hint=self.busy,
            )
        if isinstance(error, apsw.FullError):
            return DiskFull(f"No space left for {self.path}", hint=self.full)
        if self.read_only is not None and isinstance(
            error, apsw.ReadOnlyError | apsw.CantOpenError | apsw.PermissionsError
        ):
            return self.read_only(
                f"{self.path} cannot be opened for writing: {error}",
                hint="Check the folder's owner and permissions",
            )
        if isinstance(error, apsw.CorruptError | apsw.NotADBError):
            return self.corrupt(f"{self.path} is damaged: {error}", hint=self.damaged)
        if getattr(error, "extendedresult", None) == apsw.SQLITE_IOERR_DATA:
            why = "a page does not match its checksum"
            return self.corrupt(f"{self.path} is damaged: {why}", hint=self.damaged)
        return self.other(
            f"{self.path}: {error}",
            hint="Check the disk and the limit of open files (ulimit -n), then try again",
        )
