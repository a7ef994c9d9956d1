"""A connection to OpenSearch, its address without secrets, and its errors as ours."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit, urlunsplit

from headrace.errors import InvalidSetting, MissingExtra, StoreError, StoreUnavailable

try:
    import opensearchpy
    from opensearchpy import exceptions
except ModuleNotFoundError as error:
    raise MissingExtra(
        f"A view in OpenSearch needs the package {error.name!r}, which is not installed",
        hint="pip install 'headrace[opensearch]'",
    ) from None

Client: TypeAlias = Any
"""opensearch-py's client, whose answers have no types."""

_SCHEMES = ("http", "https")
_PASSING = (429, 502, 503, 504)
_SECONDS = 60


def check_url(url: str) -> None:
    """Raise unless this is the address of an OpenSearch server. The error does not show it."""
    parts = urlsplit(url)
    if parts.scheme not in _SCHEMES or not parts.hostname or parts.query:
        raise InvalidSetting(
            "That is not the address of an OpenSearch server",
            hint="Use http://HOST:9200 or https://USER:PASSWORD@HOST:9200. Options of the client "
            "are arguments: options={'ca_certs': FILE}",
        )


def shown(url: str) -> str:
    """The address without user and password."""
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, place, parts.path, "", "")).removesuffix("/")


def connect(url: str, options: Mapping[str, Any]) -> Client:
    """A client of the server. It connects when it is first used, and never tries again itself."""
    parts = urlsplit(url)
    given: dict[str, Any] = {"timeout": _SECONDS, "max_retries": 0, **options}
    if parts.username is not None:
        given["http_auth"] = (unquote(parts.username), unquote(parts.password or ""))
    return opensearchpy.OpenSearch(shown(url), **given)


@contextlib.contextmanager
def translated(url: str) -> Iterator[None]:
    """Raise OpenSearch's errors as ours."""
    try:
        yield
    except (exceptions.AuthenticationException, exceptions.AuthorizationException):
        raise StoreError(
            f"OpenSearch at {shown(url)} refused the login, or the user lacks a right",
            hint="The user has to create, read, write and delete indexes, and change aliases",
        ) from None
    except exceptions.ConnectionError as error:
        raise unavailable(url, type(error).__name__) from None
    except exceptions.TransportError as error:
        if error.status_code in _PASSING:
            raise unavailable(url, f"{error.status_code}, {error.error}") from None
        raise StoreError(
            f"OpenSearch at {shown(url)} failed: {error.status_code}, {error.error}"
        ) from None


def unavailable(url: str, reason: str) -> StoreUnavailable:
    """The error for a server that is down, or has too much to do."""
    return StoreUnavailable(
        f"OpenSearch at {shown(url)} does not answer, or cannot write now: {reason}",
        hint="Nothing is lost: the view goes on when the server is back",
    )
