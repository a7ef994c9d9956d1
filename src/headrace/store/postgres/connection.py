"""A connection to PostgreSQL, its address without secrets, and its errors as ours."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from headrace.errors import InvalidSetting, MissingExtra, StoreError, StoreUnavailable

try:
    import psycopg2
    from psycopg2 import errorcodes
    from psycopg2.extensions import parse_dsn
except ModuleNotFoundError as error:
    raise MissingExtra(
        f"A view in PostgreSQL needs the package {error.name!r}, which is not installed",
        hint="pip install 'headrace[postgres]'",
    ) from None

Connection: TypeAlias = Any
"""psycopg2's connection, which has no types."""

OLDEST = 15
"""The first version whose unique indexes can treat nulls as equal."""

_DEFAULTS = {
    "connect_timeout": "10",
    "application_name": "headrace",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
_SETTINGS = "SET lock_timeout = '30s'; SET TIME ZONE 'UTC'; SET client_min_messages = warning"

_NOT_NOW = (
    "08",  # connection exceptions
    "40",  # a deadlock, or a conflict of transactions
    "53",  # no disk, memory or connections
    "55",  # a lock was not to be had
    "57",  # the server is going down, or an administrator has cancelled it
    "58",  # an error of the server's disk
)
_WRONG_LOGIN = ("password authentication failed", "no password supplied", "no pg_hba.conf entry")


def check_url(url: str) -> None:
    """Raise unless this is the address of a database. The error does not show it."""
    try:
        parse_dsn(url)
    except psycopg2.Error:
        raise InvalidSetting(
            "That is not the address of a PostgreSQL database",
            hint="Use postgresql://USER:PASSWORD@HOST:PORT/DATABASE",
        ) from None


def shown(url: str) -> str:
    """The address without user, password and options."""
    parts = urlsplit(url)
    return f"postgresql://{parts.netloc.rpartition('@')[2]}{parts.path}"


@contextlib.contextmanager
def translated(url: str) -> Iterator[None]:
    """Raise PostgreSQL's errors as ours. None of them shows a password."""
    try:
        yield
    except psycopg2.Error as error:
        raise _of(url, error) from None


def connect(url: str) -> Connection:
    """Connect to a database, for transactions of ours."""
    given = parse_dsn(url)
    missing = {name: value for name, value in _DEFAULTS.items() if name not in given}
    connection = psycopg2.connect(url, **missing)
    try:
        if connection.server_version < OLDEST * 10_000:
            raise StoreError(
                f"{shown(url)} is PostgreSQL {connection.server_version // 10_000}",
                hint=f"A view needs PostgreSQL {OLDEST} or newer, for keys with nulls",
            )
        with connection.cursor() as cursor:
            cursor.execute(_SETTINGS)
        connection.commit()
    except BaseException:
        connection.close()
        raise
    return connection


def _of(url: str, error: psycopg2.Error) -> StoreError:
    text = _first_line(error)
    place = shown(url)
    code = error.pgcode or ""
    if any(words in text for words in _WRONG_LOGIN):
        return StoreError(
            f"PostgreSQL at {place} refused the login: {text}",
            hint="Check the user and the password in the address of the store, and pg_hba.conf",
        )
    if code == errorcodes.INSUFFICIENT_PRIVILEGE:
        user = urlsplit(url).username or "USER"
        database = urlsplit(url).path.lstrip("/") or "DATABASE"
        return StoreError(
            f"PostgreSQL at {place} refused: {text}",
            hint=f"GRANT CREATE ON DATABASE {database} TO {user}; or, if the schema is there: "
            f"GRANT CREATE, USAGE ON SCHEMA ... TO {user}",
        )
    if "does not exist" in text and not code:
        return StoreError(
            f"PostgreSQL at {place} refused the connection: {text}",
            hint="Create the database or the role first",
        )
    passing = isinstance(error, psycopg2.OperationalError | psycopg2.InterfaceError) and not code
    if passing or code.startswith(_NOT_NOW):
        return StoreUnavailable(
            f"PostgreSQL at {place} does not answer, or cannot write now: {text}",
            hint="Nothing is lost: the view goes on when the server is back",
        )
    return StoreError(f"PostgreSQL at {place} failed: {text}")


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0].strip() if lines else type(error).__name__
