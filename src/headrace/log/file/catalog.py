"""The metadata of an embedded log: one SQLite database that every process opens for itself.

A commit of the log is one transaction here. With write-ahead logging, readers and the writer do
not wait for each other; writers take turns.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw

from headrace.errors import (
    CorruptCatalog,
    LogError,
    MisusedHandle,
    NewerFormat,
    NotALog,
    OlderFormat,
    ReadOnlyLog,
)
from headrace.log.file.checksums import checked_vfs, enable_checksums, has_checksums
from headrace.log.file.disk import Disk
from headrace.log.file.high_water import NAME, note_commit, noted_commit
from headrace.log.file.tables import MARKS, OLDEST, QUEUES, SCHEMA, TAILS, upgrade
from headrace.sqlite import Failures, Link, connect

log = logging.getLogger(__name__)

FORMAT = 4
"""The folder's format version, stored in SQLite's user_version."""

APPLICATION = 0x48524C47
"""'HRLG', stored in SQLite's application_id."""

FILE_NAME = "catalog.db"

_READERS = 64
"""Read connections kept open for their threads."""


class Catalog:
    """Connections to the metadata: one for writing, and one per reading thread."""

    def __init__(self, folder: Path, disk: Disk, *, create: bool, patience: float) -> None:
        self.folder = folder
        self.path = folder / FILE_NAME
        self.wal = folder / f"{FILE_NAME}-wal"
        self._disk = disk
        self._vfs = disk.vfs or checked_vfs()
        self._patience = patience
        self._failures = failures(self.path, patience)
        self._writer = Link("The log", self._connect, patience=patience)
        self._readers: dict[tuple[int, ...], Link] = {}
        self._synchronous = ""
        self.read_only = False
        self.before_sync: Callable[[apsw.Connection], None] | None = None
        """Called before a synced transaction commits, to sync the segments it refers to."""
        self.failed_sync: Callable[[], None] | None = None
        """Called after SQLite failed to write or to sync a transaction."""
        self._noted = 0
        self._closed = False
        if not self.path.exists() and not create:
            raise NotALog(
                f"There is no log in {folder}",
                hint="Create a topic to start one, or point --log or HEADRACE_LOG elsewhere",
            )
        if folder.exists() and not folder.is_dir():
            raise NotALog(
                f"{folder} is a file, not a folder", hint="Point --log or HEADRACE_LOG to a folder"
            )
        try:
            with self._failures.translated():
                self._prepare()
        except BaseException:
            self.close()
            raise

    # Connections

    @contextlib.contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """A read transaction: one snapshot of the metadata for any number of queries."""
        with self._failures.translated(), self._reader().snapshot() as connection:
            yield connection

    @contextlib.contextmanager
    def writing(self, *, synced: bool = False) -> Iterator[apsw.Connection]:
        """A write transaction. It commits at the end of the block, or not at all.

        With `synced` it is on the device when the block ends. Without, a crash of the machine,
        though not of the process, may lose it.
        """
        if self.read_only:
            raise ReadOnlyLog(
                f"The log in {self.folder} is not writable",
                hint="Check the folder's owner and permissions. Reading still works",
            )

        def prepare(connection: apsw.Connection) -> None:
            level = "FULL" if synced else "NORMAL"
            if level != self._synchronous:
                connection.execute(f"PRAGMA synchronous={level}")
                self._synchronous = level

        committing = False
        with self._failures.translated():
            try:
                with self._writer.transaction(prepare) as connection:
                    self._disk.step("began")
                    yield connection
                    if synced and self.before_sync is not None:
                        self.before_sync(connection)
                    head = self._head(connection) if synced else 0
                    self._disk.step("before commit")
                    committing = True
            except apsw.IOError:
                if committing and self.failed_sync is not None:
                    self.failed_sync()
                raise
            if head > self._noted:
                note_commit(self.folder, self._disk, head)
                self._noted = head

    def check_whole(self) -> None:
        """Check that the catalog contains the last synced commit."""
        noted = noted_commit(self.folder)  # before the head, which may move on meanwhile
        with self.reading() as db:
            head = self._head(db)
        if noted > head:
            raise CorruptCatalog(
                f"A part of the log in {self.folder} is missing: commit {noted} was synced, but "
                f"the catalog ends with commit {head}",
                hint=f"Was the folder copied without {FILE_NAME}-wal? Copy it again with 'headrace "
                f"backup', or copy all its files while no process uses it\n"
                f"To continue without commits {head + 1} to {noted}, remove "
                f"{self.folder / NAME}",
                head=head,
                synced=noted,
            )

    def changes(self) -> int:
        """A number that changes whenever a connection commits."""
        reader = self._reader()
        with self._failures.translated(), reader as connection:
            # SQLite counts for each connection, and what it did itself is not in its version.
            version = connection.execute("PRAGMA data_version").get
            return hash((version, connection.total_changes(), reader.number))

    def close(self) -> None:
        self._closed = True
        for link in [self._writer, *self._readers.values()]:
            link.close()

    # Inside

    def _reader(self) -> Link:
        """This thread's connection for reading."""
        if self._disk.exclusive:
            return self._writer
        key = (threading.get_ident(), *self._state())
        link = self._readers.get(key)
        if link is None:
            link = self._readers[key] = Link("The log", self._connect, patience=self._patience)
            if len(self._readers) > _READERS:
                # It closes once no thread uses it.
                oldest, *_ = self._readers
                self._readers.pop(oldest, None)
        return link

    def _state(self) -> tuple[int, ...]:
        """The file's time and size if it is open as immutable: SQLite then misses changes."""
        if not self.read_only or self.wal.exists():
            return ()
        stat = self.path.stat()
        return (stat.st_mtime_ns, stat.st_size)

    def _connect(self) -> apsw.Connection:
        if self._closed:
            raise MisusedHandle("The log is closed", hint="Open it again: open_log()")
        if self.read_only:
            return self._connect_read_only()
        connection = connect(str(self.path), self._patience, vfs=self._vfs)
        if self._disk.exclusive:
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        self._synchronous = ""
        return connection

    def _connect_read_only(self) -> apsw.Connection:
        # Without a WAL file nothing can change under us, so SQLite may do without the shared
        # memory, which it cannot create in a read-only folder.
        still = not self.wal.exists()
        uri = self.path.resolve().as_uri() + ("?immutable=1" if still else "")
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        return connect(uri, self._patience, flags=flags, vfs=checked_vfs())

    def _prepare(self) -> None:
        """Check that the folder is a log this version can read; create one if it is empty."""
        new = not self.path.exists()
        if new:
            self._disk.make_folder(self.folder)
        if not _writable(self.folder) or (not new and not _writable(self.path)):
            if new:
                raise ReadOnlyLog(
                    f"Cannot create a log in {self.folder}: the folder is not writable",
                    hint="Check the folder's owner and permissions",
                )
            self.read_only = True
        if self._writer.patiently(self._empty):
            if self.read_only:
                raise NotALog(
                    f"The log in {self.folder} is still being created",
                    hint="Try again when the process that creates it is done",
                )
            self._create()
        with self._writer as connection:
            self._check(connection)

    def _create(self) -> None:
        def begin(connection: apsw.Connection) -> None:
            if self._vfs == checked_vfs() is not None:
                enable_checksums(connection)
            connection.execute("PRAGMA journal_mode=WAL")

        self._writer.patiently(begin)  # SQLite does not wait here for another process
        with self.writing(synced=True) as connection:
            if self._empty(connection):  # or another process was faster
                connection.execute(SCHEMA + MARKS + QUEUES + TAILS)
                connection.execute("INSERT INTO setting VALUES ('boot', ?)", (self._disk.boot(),))
                connection.execute("INSERT INTO setting VALUES ('log_id', ?)", (uuid.uuid4().hex,))
                connection.execute("INSERT INTO head VALUES (0, 0, 0)")
                connection.execute(f"PRAGMA application_id={APPLICATION}")
                connection.execute(f"PRAGMA user_version={FORMAT}")
        self._disk.sync_folder(self.folder)
        self._disk.sync_folder(self.folder.resolve().parent)

    def _empty(self, connection: apsw.Connection) -> bool:
        """True if it is a new database, and not another program's."""
        tables = connection.execute("SELECT count(*) FROM sqlite_schema").get
        return self._version(connection) == 0 and not tables

    def _head(self, connection: apsw.Connection) -> int:
        return int(connection.execute("SELECT number FROM head").get or 0)

    def _version(self, connection: apsw.Connection) -> int:
        return int(connection.execute("PRAGMA user_version").get)

    def _check(self, connection: apsw.Connection) -> None:
        if int(connection.execute("PRAGMA application_id").get) != APPLICATION:
            raise NotALog(
                f"{self.path} is a database, but not the catalog of a log",
                hint="Point --log or HEADRACE_LOG to another folder",
            )
        version = self._version(connection)
        if version > FORMAT:
            raise NewerFormat(
                f"The log in {self.folder} has format {version}, and this headrace reads "
                f"formats up to {FORMAT}",
                hint="Upgrade headrace. The log was not changed",
                format=version,
            )
        if version < OLDEST:
            raise OlderFormat(
                f"The log in {self.folder} has format {version}, which was never released; this "
                f"headrace reads formats {OLDEST} to {FORMAT}",
                hint="Read it with the headrace that wrote it, and produce its records again",
                format=version,
            )
        if version < FORMAT:
            self._upgrade(connection)
        if self._vfs is None and has_checksums(connection) and not self.read_only:
            raise LogError(
                f"{self.path} has checksums, and this installation of apsw cannot write them",
                hint="Install apsw from its wheel, which includes SQLite's checksum VFS: "
                "pip install --only-binary apsw --force-reinstall apsw",
            )

    def _upgrade(self, connection: apsw.Connection) -> None:
        if self.read_only:
            version = self._version(connection)
            raise OlderFormat(
                f"The log in {self.folder} has format {version} and cannot be upgraded to "
                f"format {FORMAT}: it is not writable",
                hint="Open it once as a user with write permission: headrace topics list",
                format=version,
            )
        with self.writing(synced=True):
            version = self._version(connection)
            if version < FORMAT:  # or another process was faster
                upgrade(connection, version)
                connection.execute(f"PRAGMA user_version={FORMAT}")
        if self._vfs is not None:
            self._add_checksums(connection)

    def _add_checksums(self, connection: apsw.Connection) -> None:
        """Rewrite an older catalog with checksums, unless other processes are using it."""
        enable_checksums(connection)
        try:
            connection.execute("VACUUM")
        except (apsw.BusyError, apsw.LockedError, apsw.FullError):
            log.warning("no checksums added to %s: it is in use, or the disk is full", self.path)
            return
        self._writer.reconnect()  # only a new connection verifies checksums


def failures(path: Path, patience: float) -> Failures:
    """The translation of a catalog's SQLite errors."""
    return Failures(
        path,
        f"the log in {path.parent}",
        patience,
        busy="Try again; if it persists, look for a writer that is stopped or stuck",
        full="Free some space and try again. Nothing of this commit is visible",
        damaged="Restore the folder from a backup; any Arrow tool can read the segments beside "
        "it, which are Arrow IPC streams. If another SQLite program opened it after a crash, see "
        "'headrace log repair --help'",
        corrupt=CorruptCatalog,
        other=LogError,
        read_only=ReadOnlyLog,
    )


def _writable(path: Path) -> bool:
    # By the effective user id, not the real one.
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def one(connection: apsw.Connection, sql: str, *values: Any) -> tuple[Any, ...] | None:
    """The first row of a query, or None."""
    for row in connection.execute(sql, values):
        return tuple(row)
    return None


def many(connection: apsw.Connection, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    """All rows of a query."""
    return [tuple(row) for row in connection.execute(sql, values)]
