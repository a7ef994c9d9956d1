"""Redis for tests: one server with a numbered database for each test."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from dataclasses import dataclass

import redis

from headrace.servers.java.ports import HOST
from tests.servers.server import Server

_DATABASES = 10_000


class Redis(Server):
    name = "redis"
    users = ("redis",)
    ending = signal.SIGTERM

    def create(self) -> None:
        self.run(["/bin/mkdir", str(self.data)])

    def command(self) -> list[str]:
        place = ("--port", str(self.port), "--bind", HOST, "--dir", str(self.data))
        # Every write is in the file before its answer: a killed server loses nothing.
        keeping = ("--appendonly", "yes", "--appendfsync", "no", "--save", "")
        given = tuple(part for setting in self.settings for part in setting.split("=", 1))
        many = ("--databases", str(_DATABASES))
        return [str(self.program.command), *place, *keeping, *many, *given]

    def answers(self) -> bool:
        with contextlib.closing(self.connect()) as client:
            try:
                return bool(client.ping())
            except redis.ConnectionError:
                return False

    def connect(self, number: int = 0) -> redis.Redis:
        """A client of a database."""
        return redis.Redis(host=HOST, port=self.port, db=number)

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}/0"

    @contextlib.contextmanager
    def database(self) -> Iterator[Database]:
        """An empty database that no other test has, emptied at the end."""
        with contextlib.closing(self.connect()) as client:
            number = int(client.incr("databases in use")) % _DATABASES
        made = Database(self, number or 1)
        try:
            yield made
        finally:
            with contextlib.closing(made.connect()) as client:
                client.flushdb()


@dataclass(frozen=True)
class Database:
    """A database of a test."""

    server: Redis
    number: int

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.server.port}/{self.number}"

    def connect(self) -> redis.Redis:
        """A client of the database."""
        return self.server.connect(self.number)
