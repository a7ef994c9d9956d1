"""A connection to a Redis server, its address without secrets, and its errors as ours."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from headrace.errors import InvalidSetting, MissingExtra, StoreError, StoreUnavailable

try:
    import redis
    from redis import exceptions
    from redis.backoff import NoBackoff
    from redis.retry import Retry
except ModuleNotFoundError as error:
    raise MissingExtra(
        f"A view in Redis needs the package {error.name!r}, which is not installed",
        hint="pip install 'headrace[redis]'",
    ) from None

Client: TypeAlias = Any
"""redis-py's client. Its types are those of an asynchronous client as well."""

_SCHEMES = ("redis", "rediss", "unix")
_CONNECT_SECONDS = 5
_ANSWER_SECONDS = 60
"""A large batch is one command, and its answer comes when all of it is written."""

_REFUSED = (
    exceptions.AuthenticationError,
    exceptions.AuthorizationError,
    exceptions.NoPermissionError,
)
_BAD_OPTIONS = (TypeError, ValueError, AttributeError, exceptions.RedisError)
_OPTIONS = re.compile(r"ssl_\w+|socket_(connect_)?timeout|client_name|db|protocol")
_PASSING = (
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    exceptions.ReadOnlyError,
    exceptions.OutOfMemoryError,
    exceptions.WatchError,
)
_PASSING_CODES = ("BUSY ", "LOADING", "MASTERDOWN", "MISCONF", "NOREPLICAS", "OOM ", "TRYAGAIN")
"""Answers of a server that may accept the same command later."""


def check_url(url: str) -> None:
    """Raise unless this is the address of a Redis server. The error does not show it."""
    if urlsplit(url).scheme not in _SCHEMES:
        raise InvalidSetting(
            "That is not the address of a Redis server",
            hint="Use redis://HOST:PORT/DATABASE, rediss:// for TLS, or unix://PATH",
        )
    for name, _ in parse_qsl(urlsplit(url).query, keep_blank_values=True):
        if not _OPTIONS.fullmatch(name):
            raise InvalidSetting(
                f"The address {shown(url)} has an unknown option {name!r}",
                hint="Options are redis-py's, such as ssl_ca_certs, socket_timeout and db. "
                "Options of the view are arguments: hr.Redis(url, ttl=...)",
            )
    try:
        connect(url).close()
    except _BAD_OPTIONS:
        raise InvalidSetting(
            f"The address {shown(url)} cannot be used",
            hint="Check the port, the number of the database and the options",
        ) from None


def shown(url: str) -> str:
    """The address without user, password and options."""
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, place, parts.path, "", "")).removesuffix("/")


def connect(url: str) -> Client:
    """A client of the server. It connects when it is first used, and never tries again itself."""
    given = dict(parse_qsl(urlsplit(url).query))
    defaults = {
        "socket_connect_timeout": _CONNECT_SECONDS,
        "socket_timeout": _ANSWER_SECONDS,
    }
    chosen = {name: value for name, value in defaults.items() if name not in given}
    return redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0), **chosen)


def check_server(client: Client, url: str, *, cache: bool) -> None:
    """Raise if the server would lose rows by itself, or spreads keys over several servers."""
    try:
        facts = {**client.info("server"), **client.info("memory")}
    except exceptions.NoPermissionError:
        return  # a user with few rights, who may still read and write the view's keys
    if facts.get("redis_mode") == "cluster":
        raise StoreError(
            f"{shown(url)} is a Redis Cluster, where a batch cannot be one transaction",
            hint="Use a single server, with replicas and Sentinel for a second one",
        )
    policy = str(facts.get("maxmemory_policy", ""))
    if not cache and facts.get("maxmemory") and policy.startswith("allkeys"):
        raise StoreError(
            f"{shown(url)} evicts any key when its memory is full ({policy}), so rows of the view "
            "would be missing, and nobody could tell",
            hint="Set maxmemory-policy to noeviction or a volatile one, or give the view a ttl: "
            "then it is a cache, in which rows may be missing",
        )


@contextlib.contextmanager
def translated(url: str) -> Iterator[None]:
    """Raise Redis's errors as ours. None of them shows a password."""
    try:
        yield
    except _REFUSED:
        raise StoreError(
            f"Redis at {shown(url)} refused the login, or the user lacks a right",
            hint="The user needs +@read +@write +@transaction +@connection on the view's keys",
        ) from None
    except _PASSING as error:
        raise _unavailable(url, error) from None
    except exceptions.RedisError as error:
        if str(error).startswith(_PASSING_CODES):
            raise _unavailable(url, error) from None
        raise StoreError(f"Redis at {shown(url)} failed: {error}") from None


def _unavailable(url: str, error: Exception) -> StoreUnavailable:
    return StoreUnavailable(
        f"Redis at {shown(url)} does not answer, or cannot write now: {error}",
        hint="Nothing is lost: the view goes on when the server is back",
    )
