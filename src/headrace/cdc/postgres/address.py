"""The address of a database, and connections to it. No password gets into an error."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import psycopg2
from psycopg2.extras import LogicalReplicationConnection

from headrace.cdc.postgres.failures import refused
from headrace.cdc.server_url import parse_server

_EXAMPLE: Final = "postgresql://USER:PASSWORD@HOST:5432/DATABASE?tables=public.orders"

_OWN: Final = ("tables", "slot", "publication")
_PASSED_ON: Final = (
    "sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl",
    "ssl_min_protocol_version", "channel_binding", "gssencmode", "krbsrvname", "passfile",
    "service", "connect_timeout", "application_name", "keepalives", "keepalives_idle",
    "keepalives_interval", "keepalives_count", "tcp_user_timeout", "target_session_attrs",
)  # fmt: skip

# Values are read as text, so both connections have to write them in the same way.
_SESSION: Final = (
    "-c datestyle=ISO -c intervalstyle=postgres -c timezone=UTC -c extra_float_digits=3 "
    "-c bytea_output=hex -c statement_timeout=0 -c lock_timeout=0 "
    # What we write is news of a place in the log, and no standby has to have it.
    "-c synchronous_commit=local"
)
# A capture may write a large commit before it reads on. A killed one closes its socket at once.
_REPLICATION: Final = " -c wal_sender_timeout=300s"


@dataclass(frozen=True)
class Address:
    """A database on a server, and what of it is captured."""

    host: str
    port: int
    user: str
    database: str
    tables: tuple[str, ...] = ()
    slot: str | None = None
    publication: str | None = None
    password: str = field(default="", repr=False)
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def parse(cls, url: str) -> Address:
        """Read `postgresql://`. Errors do not quote it, since it may have a password."""
        schemes, known = ("postgresql", "postgres"), (*_OWN, *_PASSED_ON)
        found = parse_server(url, schemes, 5432, known, _EXAMPLE)
        given = found.settings
        return cls(
            found.host,
            found.port,
            found.user,
            found.database,
            tuple(name.strip() for name in given.get("tables", "").split(",") if name.strip()),
            given.get("slot"),
            given.get("publication"),
            found.password,
            tuple((name, value) for name, value in given.items() if name in _PASSED_ON),
        )

    def __str__(self) -> str:
        return f"postgresql://{self.user}@{self.host}:{self.port}/{self.database}"

    @property
    def application(self) -> str:
        """The name under which the server shows our connections."""
        return dict(self.options).get("application_name", "headrace")

    def connect(self) -> Any:
        """Open a connection on which each statement is a transaction."""
        made = self._open(_SESSION)
        made.autocommit = True
        return made

    def connect_for_replication(self) -> Any:
        """Open a connection that speaks the replication protocol."""
        return self._open(_SESSION + _REPLICATION, LogicalReplicationConnection)

    def _open(self, session: str, factory: Any = None) -> Any:
        settings: dict[str, Any] = {"connect_timeout": "10", "application_name": self.application}
        settings |= dict(self.options)
        if self.password:  # else libpq looks into PGPASSWORD and ~/.pgpass
            settings["password"] = self.password
        try:
            return psycopg2.connect(
                host=self.host,
                port=self.port,
                user=self.user,
                dbname=self.database,
                client_encoding="UTF8",
                options=session,
                connection_factory=factory,
                **settings,
            )
        except psycopg2.Error as error:
            raise refused(str(error), str(self), self.user, self.database) from None
