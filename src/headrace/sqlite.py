"""SQLite connections that never cross a fork, and one translation of SQLite's errors.

SQLite has a table of the locks that its process holds. A forked child inherits the table with
every open connection and takes its parent's locks for its own: when the parent closes the file,
what the child has committed is lost. So none of our connections is open at the moment of a fork.
A fork waits until no thread is using a connection and closes them all; parent and child open
theirs again when they next need them. Every use is therefore inside a bracket: `with link as db`.

What cannot be made safe is refused. If the forking thread is itself inside a bracket, or another
thread does not leave its own in time, the child gets a `MisusedHandle` from every SQLite file.
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
"""Seconds that a fork waits for other threads to leave their brackets."""

_DELAYS = (0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.025, 0.025, 0.025, 0.05, 0.05, 0.1)
"""Seconds between attempts to get a lock, as SQLite's own busy handler has them."""

_READWRITE = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE

_numbers = itertools.count(1)

log = logging.getLogger(__name__)


class _Gate:
    """Threads that use a connection are inside; a fork shuts it and waits until nobody is."""

    def __init__(self) -> None:
        self.connections: dict[int, apsw.Connection] = {}
        """Every open connection, by its number."""
        self.orphans: list[int] = []
        """Those whose link is garbage. A finalizer must not wait, so the next user closes them."""
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
            # A thread that is inside already must get on, or the fork would wait for it in vain.
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
        """Wait inside for a while, but outside for as long as another thread forks."""
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
            # What SQLite cannot move from its WAL into the database now stays in the WAL.
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
                    # The checkpoint is left to whoever closes the file for good.
                    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                    self.close(number)

    def in_parent(self) -> None:
        unsafe = self._unsafe
        with self._change:
            self._forking = None
            self._change.notify_all()
        if unsafe:
            log.warning(
                "this process was forked in the middle of a transaction or a query; the child "
                "cannot use any log or view. Fork at another time, or start processes with spawn"
            )

    def in_child(self) -> None:
        me = threading.get_ident()
        self._change = threading.Condition()
        self._forking = None
        self.refused |= self._unsafe
        self._inside = {me: self._inside[me]} if me in self._inside else {}
        for connection in self.connections.values():
            # To close it or to roll it back would change what the parent is working on. It must
            # not even be collected as garbage.
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
    """A connection for a `Link`, which waits so many seconds for other processes."""
    connection = apsw.Connection(file, flags=flags, vfs=vfs)
    connection.set_busy_timeout(int(patience * 1000))
    return connection


class Link:
    """One connection to SQLite. It is opened when it is needed, and again after a fork.

    It is used in brackets, `with link as db`, by one thread at a time; brackets nest. `name` says
    what it leads to, and `patience` how many seconds it waits for another process.
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
        """The number of its connection. A new connection has a new number, also in a child."""
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
        """One consistent picture of the file, however many queries are made."""
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
        """A transaction that may write. It commits at the end of the block, or not at all.

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
        """The result of an attempt, which is repeated while another process has a lock.

        SQLite waits by itself, but not where it suspects a deadlock, as in a change of the
        journal mode.
        """
        with self:
            return self._patiently(attempt)

    def reconnect(self) -> None:
        """Close its connection, and open another when it is needed."""
        with self:
            _gate.close(self.number)

    def close(self) -> None:
        """Close it for good, after whoever is using it."""
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
        """True if this is still its connection. It is not in a child forked inside a bracket."""
        return _gate.connections.get(self.number) is connection

    def _patiently(self, attempt: Callable[[apsw.Connection], T]) -> T:
        deadline = time.monotonic() + self._patience
        for delay in itertools.chain(_DELAYS, itertools.repeat(_DELAYS[-1])):
            connection = self._opened()
            # SQLite would wait inside, and keep a fork of another thread waiting too.
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
        "This process was forked in the middle of a transaction or a query of its parent, so it "
        "cannot use logs and views",
        hint="Fork at another time, or start the process with spawn",
    )


@dataclass(frozen=True)
class Failures:
    """SQLite's errors as those of one file. `what` names it; the others are hints and types."""

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
        """Raise headrace's errors for SQLite's."""
        try:
            yield
        except apsw.Error as error:
            raise self._of(error) from error

    def _of(self, error: apsw.Error) -> HeadraceError:
        if isinstance(error, apsw.BusyError | apsw.LockedError):
            return LogBusy(
                f"Another process has kept {self.what} locked for {self.patience:g} s",
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
            why = "a page of it does not match its checksum"
            return self.corrupt(f"{self.path} is damaged: {why}", hint=self.damaged)
        return self.other(
            f"{self.path}: {error}",
            hint="Check the disk and the limit of open files (ulimit -n), then try again",
        )
