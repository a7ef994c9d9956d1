"""MariaDB for tests: a binlog of rows with full metadata, and no waiting for the disk."""

from __future__ import annotations

import contextlib
import signal
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql
from pymysql.connections import Connection

from headrace.servers.java.ports import HOST
from tests.servers.server import Server

ADMIN = "root"
"""The superuser, who needs no password."""

_SETTINGS = (
    "--server-id=1",
    "--log-bin=binlog",
    "--binlog-format=ROW",
    "--binlog-row-image=FULL",
    "--binlog-row-metadata=FULL",
    "--skip-name-resolve",
    "--character-set-server=utf8mb4",
    "--default-time-zone=+00:00",
    # A killed server loses nothing by it, only a machine without power.
    "--innodb-flush-log-at-trx-commit=2",
    "--sync-binlog=0",
    "--innodb-buffer-pool-size=32M",
    "--max-connections=200",
)


class Mariadb(Server):
    name = "mariadb"
    users = ("mysql",)
    ending = signal.SIGKILL

    def create(self) -> None:
        share = self._share
        self.run(["/bin/mkdir", str(self.data)])
        # What `mariadb-install-db` does, which wants a client, too.
        tables = ("system_tables", "performance_tables", "system_tables_data")
        script = "CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket=NULL;\n"
        script += "".join((share / f"mysql_{name}.sql").read_text() for name in tables)
        self.run([*self._program(), "--bootstrap", "--log-warnings=0"], script)

    def command(self) -> list[str]:
        place = (f"--port={self.port}", f"--bind-address={HOST}", f"--socket={self.folder}/socket")
        return [*self._program(), *place, *_SETTINGS, *self.settings]

    def _program(self) -> list[str]:
        share = self._share
        folders = (f"--basedir={share.parents[1]}", f"--datadir={self.data}")
        messages = (f"--lc-messages-dir={share}", f"--character-sets-dir={share}/charsets")
        small = ("--innodb-log-file-size=16M",)
        # A server that starts deletes temporary tables in the folder, also those of others.
        own = (f"--tmpdir={self.data}",)
        return [str(self.program.command), "--no-defaults", *folders, *own, *messages, *small]

    @property
    def _share(self) -> Path:
        base = self.program.command.parents[1] / "share"
        found = (base / name for name in ("mysql", "mariadb"))
        return next(folder for folder in found if (folder / "charsets").exists())

    def answers(self) -> bool:
        try:
            self.connect().close()
        except pymysql.err.OperationalError:
            return False
        return True

    def connect(self, database: str = "mysql") -> Connection[Any]:
        """A connection of the superuser, where each statement is a transaction."""
        # Reading the machine's certificates would take longer than most tests.
        return pymysql.connect(
            host=HOST,
            port=self.port,
            user=ADMIN,
            database=database,
            autocommit=True,
            ssl_disabled=True,
        )

    @contextlib.contextmanager
    def database(self) -> Iterator[Database]:
        """A new database, removed at the end."""
        made = Database(self, f"test_{uuid.uuid4().hex[:12]}")
        with contextlib.closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {made.name}")
        try:
            yield made
        finally:
            with contextlib.closing(self.connect()) as connection, connection.cursor() as cursor:
                cursor.execute(f"DROP DATABASE IF EXISTS {made.name}")


@dataclass(frozen=True)
class Database:
    """A database of a test."""

    server: Mariadb
    name: str

    @property
    def url(self) -> str:
        """The address for the superuser."""
        return f"mysql://{ADMIN}@{self.place}"

    @property
    def place(self) -> str:
        """The address without a user: `host:port/database`."""
        return f"{HOST}:{self.server.port}/{self.name}"

    def connect(self) -> Connection[Any]:
        """A connection of the superuser, where each statement is a transaction."""
        return self.server.connect(self.name)

    def execute(self, *statements: str) -> None:
        """Run statements, each in a transaction of its own."""
        with contextlib.closing(self.connect()) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def query(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """The rows that a query gives."""
        with contextlib.closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(statement, values or None)
            return list(cursor.fetchall())
