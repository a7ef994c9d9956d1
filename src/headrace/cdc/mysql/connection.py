"""Connections to a server, and its errors in our words. No password gets into an error."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import pymysql
from pymysql.constants import FIELD_TYPE
from pymysql.converters import encoders

from headrace.cdc.server_url import parse_server
from headrace.errors import (
    HeadraceError,
    SourceError,
    SourceUnavailable,
    UserError,
)

_EXAMPLE: Final = "mysql://USER:PASSWORD@HOST:3306/DATABASE"
_TLS: Final = ("ssl_ca", "ssl_cert", "ssl_key", "ssl_verify_cert", "ssl_verify_identity")

_LOGIN: Final = {1045, 1698, 1820}
_RIGHTS: Final = {1044, 1142, 1143, 1227, 1370}
_DOWN: Final = {
    1040, 1053, 1077, 1152, 1158, 1159, 1160, 1161, 1203, 1226, 1317, 1927, 2002, 2003, 2006, 2013,
}  # fmt: skip
"""Errors of a server that is down, starting, stopping, or has no connection to spare."""

_NUMBERS: Final = {
    **dict.fromkeys(
        (
            FIELD_TYPE.TINY,
            FIELD_TYPE.SHORT,
            FIELD_TYPE.INT24,
            FIELD_TYPE.LONG,
            FIELD_TYPE.LONGLONG,
            FIELD_TYPE.YEAR,
        ),
        int,
    ),
    **dict.fromkeys((FIELD_TYPE.FLOAT, FIELD_TYPE.DOUBLE), float),
}
"""Values that are not left as the server writes them: text for decimals and times, or bytes."""


@dataclass(frozen=True)
class Address:
    """The address of a server and a database on it."""

    host: str
    port: int
    user: str
    database: str
    password: str = field(repr=False)
    tls: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, url: str) -> Address:
        """Read `mysql://` or `mariadb://`. Errors do not quote it, since it has a password."""
        found = parse_server(url, ("mysql", "mariadb"), 3306, _TLS, _EXAMPLE)
        tls = tuple(found.settings.items())
        return cls(found.host, found.port, found.user, found.database, found.password, tls)

    def __str__(self) -> str:
        return f"mysql://{self.user}@{self.host}:{self.port}/{self.database}"

    def connect(self, **settings: Any) -> Any:
        """Open a connection in UTC, which returns values as text unless they are plain numbers."""
        flags = ("ssl_verify_cert", "ssl_verify_identity")
        tls = {name: value == "true" if name in flags else value for name, value in self.tls}
        try:
            return pymysql.connect(
                host=self.host,
                port=self.port,
                user=self.user,
                password=self.password.encode(),
                database=self.database,
                charset="utf8mb4",
                conv={**encoders, **_NUMBERS},
                autocommit=True,
                connect_timeout=10,
                read_timeout=600,
                init_command="SET SESSION time_zone='+00:00', sql_mode='', "
                "max_statement_time=0, net_write_timeout=600",
                **tls,
                **settings,
            )
        except (pymysql.MySQLError, OSError, ValueError) as error:
            raise translated(error, self) from None


def translated(error: Exception, address: Address) -> HeadraceError:
    """An error of the client in our tree, with what to do next."""
    code, text = (*error.args, "", "")[:2] if error.args else (0, "")
    text = str(text or error).strip().rstrip(".")
    if code in _LOGIN:
        return UserError(
            f"{address} refused the login: {text}",
            hint="Correct the user and the password of the source",
        )
    if code in _RIGHTS:
        return UserError(f"{address} lacks a right: {text}", hint=_grant(text, address))
    if code == 1049:
        return UserError(f"{address}: {text}", hint="Correct the name of the database")
    if code in _DOWN or isinstance(error, OSError) or type(error) is pymysql.InterfaceError:
        return SourceUnavailable(
            f"{address} does not answer: {text}",
            hint="Start the server; capturing goes on where it was when it is back",
        )
    return SourceError(f"{address} reports error {code}: {text}", code=code)


def _grant(text: str, address: Address) -> str:
    """The GRANT that would help, from what the server says."""
    for right in ("REPLICATION SLAVE", "BINLOG MONITOR", "REPLICATION CLIENT"):
        if right in text:
            return f"Run as an administrator: GRANT {right} ON *.* TO '{address.user}'@'%'"
    return (
        f"Run as an administrator: GRANT SELECT ON `{address.database}`.* TO '{address.user}'@'%'"
    )
