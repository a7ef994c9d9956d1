"""PostgreSQL for tests: logical decoding on, and no waiting for the disk."""

from __future__ import annotations

import contextlib
import signal
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg2
from psycopg2.extensions import connection as Connection

from headrace.servers.java.ports import HOST
from tests.servers.server import Server
from tests.waiting import wait_until

ADMIN = "postgres"
"""The superuser, who needs no password. Every other role needs one."""

_SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "wal_level": "logical",
    "max_replication_slots": "50",
    "max_wal_senders": "50",
    "max_connections": "200",
    "shared_buffers": "32MB",
    # A killed server loses nothing by it, only a machine without power.
    "fsync": "off",
    "full_page_writes": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
}

_HBA = f"""\
host all {ADMIN} {HOST}/32 trust
host replication {ADMIN} {HOST}/32 trust
host all all {HOST}/32 scram-sha-256
host replication all {HOST}/32 scram-sha-256
"""


class Postgresql(Server):
    name = "postgresql"
    users = ("postgres",)
    ending = signal.SIGQUIT

    def create(self) -> None:
        initdb = [str(self.program.command.with_name("initdb")), "-D", str(self.data)]
        given = ["--no-sync", f"--username={ADMIN}", "--encoding=UTF8", "--locale=C"]
        self.run([*initdb, *given, "--auth=trust"])
        (self.data / "pg_hba.conf").write_text(_HBA)

    def command(self) -> list[str]:
        settings = [f"-c{name}={value}" for name, value in _SETTINGS.items()]
        settings += [f"-c{setting}" for setting in self.settings]
        return [str(self.program.command), "-D", str(self.data), "-p", str(self.port), *settings]

    def answers(self) -> bool:
        try:
            self.connect().close()
        except psycopg2.OperationalError:
            return False
        return True

    def connect(self, database: str = "postgres") -> Connection:
        """A connection of the superuser, where each statement is a transaction."""
        made = psycopg2.connect(self.url(database))
        made.autocommit = True
        return made

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://{ADMIN}@{HOST}:{self.port}/{database}"

    @contextlib.contextmanager
    def database(self) -> Iterator[Database]:
        """A new database, removed at the end with its slots and whoever still uses it."""
        made = Database(self, f"test_{uuid.uuid4().hex[:12]}")
        with contextlib.closing(self.connect()) as connection:
            _execute(connection, f"CREATE DATABASE {made.name}")
        try:
            yield made
        finally:
            with contextlib.closing(self.connect()) as connection:
                _remove(connection, made.name)


@dataclass(frozen=True)
class Database:
    """A database of a test."""

    server: Postgresql
    name: str

    @property
    def url(self) -> str:
        """The address for the superuser."""
        return self.server.url(self.name)

    @property
    def place(self) -> str:
        """The address without a user: `host:port/database`."""
        return f"{HOST}:{self.server.port}/{self.name}"

    def connect(self) -> Connection:
        """A connection of the superuser, where each statement is a transaction."""
        return self.server.connect(self.name)

    def execute(self, *statements: str) -> None:
        """Run statements, each in a transaction of its own."""
        with contextlib.closing(self.connect()) as connection:
            for statement in statements:
                _execute(connection, statement)

    def query(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """The rows that a query gives."""
        with contextlib.closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(statement, values or None)
            return list(cursor.fetchall())


def _execute(connection: Connection, statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


def _remove(connection: Connection, name: str) -> None:
    slots = f"pg_replication_slots WHERE database = '{name}'"
    with connection.cursor() as cursor:

        def dropped() -> bool:
            cursor.execute(f"SELECT pg_terminate_backend(active_pid) FROM {slots} AND active")
            with contextlib.suppress(psycopg2.errors.ObjectInUse):
                cursor.execute(f"SELECT pg_drop_replication_slot(slot_name) FROM {slots}")
            cursor.execute(f"SELECT 1 FROM {slots}")
            return cursor.fetchone() is None

        wait_until(dropped)
        cursor.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
