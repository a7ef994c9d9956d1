"""The URL of a database on a server. Errors do not quote it, since it may have a password."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from headrace.errors import InvalidSetting


class ServerUrl(NamedTuple):
    """The parts of a URL, and the settings after its question mark."""

    host: str
    port: int
    user: str
    database: str
    password: str
    settings: dict[str, str]


def parse_server(
    url: str, schemes: Sequence[str], port: int, known: Sequence[str], example: str
) -> ServerUrl:
    """Read a URL of one of the schemes, with settings that are known."""

    def invalid(why: str) -> InvalidSetting:
        return InvalidSetting(f"The address of the source {why}", hint=f"It looks like: {example}")

    try:
        parts = urlsplit(url)
        port = parts.port or port
    except ValueError:
        raise invalid("cannot be read") from None
    if parts.scheme not in schemes:
        raise invalid(f"does not begin with {' or '.join(f'{one}://' for one in schemes)}")
    database = unquote(parts.path.strip("/"))
    if not parts.hostname or not parts.username or not database:
        raise invalid("lacks a host, a user or a database")
    settings = dict(parse_qsl(parts.query))
    if unknown := [name for name in settings if name not in known]:
        raise invalid(f"has the unknown setting {unknown[0]!r}; known are {', '.join(known)}")
    password = unquote(parts.password or "")
    return ServerUrl(parts.hostname, port, unquote(parts.username), database, password, settings)
