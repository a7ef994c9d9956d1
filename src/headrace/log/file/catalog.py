"""The metadata of an embedded log: one SQLite database that every process opens for itself.

A commit of the log is one transaction here. Readers never wait for a writer nor a writer for
readers (write-ahead logging); writers take turns.
"""

from __future__ import annotations

import contextlib
import os
import threading
import uuid
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw

from headrace.errors import (
    CorruptCatalog,
    DiskFull,
    HeadraceError,
    LogBusy,
    LogError,
    MisusedHandle,
    NewerFormat,
    NotALog,
    OlderFormat,
    ReadOnlyLog,
)
from headrace.log.file.disk import Disk
from headrace.log.file.tables import SCHEMA
from headrace.log.file.upgrade import OLDEST, upgrade

FORMAT = 3
"""The version of the folder's format, in SQLite's user_version."""

APPLICATION = 0x48524C47
"""'HRLG': what SQLite's application_id says of a headrace log."""

FILE_NAME = "catalog.db"


class Catalog:
    """Connections to the metadata: one that writes, and one per thread that reads."""

    def __init__(self, folder: Path, disk: Disk, *, create: bool, patience: float) -> None:
        self.folder = folder
        self.path = folder / FILE_NAME
        self.wal = folder / f"{FILE_NAME}-wal"
        self._disk = disk
        self._patience = patience
        self._lock = threading.RLock()
        self._local = threading.local()
        # A thread's connection goes with the thread, and is closed with its last reference.
        self._open: weakref.WeakSet[apsw.Connection] = weakref.WeakSet()
        self._pid = os.getpid()
        self._writer: apsw.Connection | None = None
        self._synchronous = ""
        self.read_only = False
        self.before_sync: Callable[[apsw.Connection], None] | None = None
        """Called before a synced transaction commits, to sync what it speaks of."""
        self.failed_sync: Callable[[], None] | None = None
        """Called after SQLite failed to write or to sync a transaction."""
        self._closed = False
        if not self.path.exists() and not create:
            raise NotALog(
                f"There is no log in {folder}",
                hint="Create a topic to begin one, or point --log or HEADRACE_LOG elsewhere",
            )
        if folder.exists() and not folder.is_dir():
            raise NotALog(f"{folder} is a file, not a folder", hint="Name another folder")
        try:
            with self._errors():
                self._prepare()
        except BaseException:
            self.close()
            raise

    # Connections

    def reader(self) -> apsw.Connection:
        """This thread's connection for reading."""
        self._after_fork()
        connection: apsw.Connection | None = getattr(self._local, "connection", None)
        state = self._state()
        if connection is None or getattr(self._local, "state", None) != state:
            if connection is not None and not connection.in_transaction:
                connection.close()
            connection = self._writing() if self._disk.exclusive else self._connect()
            self._local.connection, self._local.state = connection, state
        return connection

    def _state(self) -> tuple[int, ...]:
        """What a connection is good for: this process and, where SQLite cannot see changes
        by itself because it was told that there are none, the file as it is now."""
        if not self.read_only or self.wal.exists():
            return (os.getpid(),)
        stat = self.path.stat()
        return (os.getpid(), stat.st_mtime_ns, stat.st_size)

    @contextlib.contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """One consistent picture of the metadata, however many queries are made."""
        connection = self.reader()
        with self._errors():
            if connection.in_transaction:
                yield connection
                return
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                connection.execute("COMMIT")

    @contextlib.contextmanager
    def writing(self, *, synced: bool = False) -> Iterator[apsw.Connection]:
        """A transaction that may write. It commits at the end of the block, or not at all.

        With `synced` it is on the device when the block ends; without, a crash of the machine
        (not of the process) may lose it.
        """
        if self.read_only:
            raise ReadOnlyLog(
                f"The log in {self.folder} cannot be written",
                hint="Check the folder's owner and permissions. It can still be read",
            )
        with self._lock, self._errors():
            connection = self._writing()
            level = "FULL" if synced else "NORMAL"
            if level != self._synchronous:
                connection.execute(f"PRAGMA synchronous={level}")
                self._synchronous = level
            connection.execute("BEGIN IMMEDIATE")
            try:
                self._disk.step("began")
                yield connection
                if synced and self.before_sync is not None:
                    self.before_sync(connection)
                self._disk.step("before commit")
                try:
                    connection.execute("COMMIT")
                except apsw.IOError:
                    if self.failed_sync is not None:
                        self.failed_sync()
                    raise
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def changes(self) -> int:
        """A number that differs whenever another connection has committed something."""
        with self._errors():
            version = int(self.reader().execute("PRAGMA data_version").get)
        return hash((version, self._state())) if self.read_only else version

    def close(self) -> None:
        if self._closed:
            return
        self._after_fork()
        with self._lock:
            self._closed = True
            for connection in list(self._open):
                connection.close()
            self._writer = None
            self._local = threading.local()

    # Inside

    def _writing(self) -> apsw.Connection:
        self._after_fork()
        if self._writer is None:
            self._writer = self._connect()
            self._synchronous = ""
        return self._writer

    def _after_fork(self) -> None:
        if self._closed:
            raise MisusedHandle("The log is closed", hint="Open it again: open_log()")
        # SQLite forbids carrying a connection across a fork; the child opens its own and leaves
        # the parent's alone.
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._open = weakref.WeakSet()
            self._writer = None
            self._lock = threading.RLock()
            self._local = threading.local()

    def _connect(self) -> apsw.Connection:
        if self.read_only:
            return self._connect_read_only()
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        connection = apsw.Connection(str(self.path), flags=flags, vfs=self._disk.vfs)
        connection.set_busy_timeout(int(self._patience * 1000))
        if self._disk.exclusive:
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        self._open.add(connection)
        return connection

    def _connect_read_only(self) -> apsw.Connection:
        # Without a WAL file there is nothing that could change under us, and SQLite may read the
        # database without the shared memory it cannot create in a read-only folder.
        still = not self.wal.exists()
        uri = self.path.resolve().as_uri() + ("?immutable=1" if still else "")
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        connection = apsw.Connection(uri, flags=flags)
        self._open.add(connection)
        return connection

    def _prepare(self) -> None:
        """Check that the folder is a log this version can read; make it one if it is empty."""
        new = not self.path.exists()
        if new:
            self._disk.make_folder(self.folder)
        if not _writable(self.folder) or (not new and not _writable(self.path)):
            if new:
                raise ReadOnlyLog(
                    f"A log cannot be made in {self.folder}: it is not writable",
                    hint="Check the folder's owner and permissions",
                )
            self.read_only = True
        connection = self._writing()
        if self._empty(connection) and not self.read_only:
            self._create(connection)
        self._check(connection)

    def _create(self, connection: apsw.Connection) -> None:
        connection.execute("PRAGMA journal_mode=WAL")
        with self.writing(synced=True):
            if self._empty(connection):  # or another process was faster
                connection.execute(SCHEMA)
                connection.execute("INSERT INTO setting VALUES ('boot', ?)", (self._disk.boot(),))
                connection.execute("INSERT INTO setting VALUES ('log_id', ?)", (uuid.uuid4().hex,))
                connection.execute("INSERT INTO head VALUES (0, 0, 0)")
                connection.execute(f"PRAGMA application_id={APPLICATION}")
                connection.execute(f"PRAGMA user_version={FORMAT}")
        self._disk.sync_folder(self.folder)
        self._disk.sync_folder(self.folder.resolve().parent)

    def _empty(self, connection: apsw.Connection) -> bool:
        """Whether it is a new database, and not somebody else's."""
        tables = connection.execute("SELECT count(*) FROM sqlite_schema").get
        return self._version(connection) == 0 and not tables

    def _version(self, connection: apsw.Connection) -> int:
        return int(connection.execute("PRAGMA user_version").get)

    def _check(self, connection: apsw.Connection) -> None:
        if int(connection.execute("PRAGMA application_id").get) != APPLICATION:
            raise NotALog(
                f"{self.path} is a database of something else",
                hint="Point --log or HEADRACE_LOG to another folder",
            )
        version = self._version(connection)
        if version > FORMAT:
            raise NewerFormat(
                f"The log in {self.folder} has format {version}, and this headrace knows "
                f"formats up to {FORMAT}",
                hint="Upgrade headrace; the log has not been touched",
                format=version,
            )
        if version < OLDEST:
            raise OlderFormat(
                f"The log in {self.folder} has format {version}, which was never released, and "
                f"this headrace reads formats {OLDEST} to {FORMAT}",
                hint="Read it with the headrace that wrote it, and produce its records again",
                format=version,
            )
        if version < FORMAT:
            self._upgrade(connection)

    def _upgrade(self, connection: apsw.Connection) -> None:
        if self.read_only:
            version = self._version(connection)
            raise OlderFormat(
                f"The log in {self.folder} has format {version}, and it cannot be upgraded to "
                f"format {FORMAT}: it is not writable",
                hint="Let somebody who may write it open it once: headrace topics list",
                format=version,
            )
        with self.writing(synced=True):
            version = self._version(connection)
            if version < FORMAT:  # or another process was faster
                upgrade(connection, version)
                connection.execute(f"PRAGMA user_version={FORMAT}")

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except HeadraceError:
            raise
        except apsw.Error as error:
            raise translate(error, self.path, self._patience) from error


def _writable(path: Path) -> bool:
    # As whoever this process acts, and not as whoever started it.
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def translate(error: apsw.Error, path: Path, patience: float) -> HeadraceError:
    """The headrace error for one of SQLite's."""
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return LogBusy(
            f"Another process has kept the log in {path.parent} locked for {patience:g} s",
            hint="Try again; if it lasts, look for a writer that is stopped or stuck",
        )
    if isinstance(error, apsw.FullError):
        return DiskFull(
            f"No space left for {path}",
            hint="Free some space and try again. Nothing of this commit is visible",
        )
    if isinstance(error, apsw.ReadOnlyError | apsw.CantOpenError | apsw.PermissionsError):
        return ReadOnlyLog(
            f"{path} cannot be opened for writing: {error}",
            hint="Check the folder's owner and permissions",
        )
    if isinstance(error, apsw.CorruptError | apsw.NotADBError):
        return CorruptCatalog(
            f"{path} is damaged: {error}",
            hint="Restore the folder from a copy; the segments beside it are Arrow IPC "
            "streams and can be read by any Arrow tool",
        )
    return LogError(f"{path}: {error}")


def one(connection: apsw.Connection, sql: str, *values: Any) -> tuple[Any, ...] | None:
    """The first row of a query, or None."""
    try:
        for row in connection.execute(sql, values):
            return tuple(row)
    except apsw.Error as error:
        raise translate(error, Path(connection.filename), 0) from error
    return None


def many(connection: apsw.Connection, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    """All rows of a query."""
    try:
        return [tuple(row) for row in connection.execute(sql, values)]
    except apsw.Error as error:
        raise translate(error, Path(connection.filename), 0) from error
