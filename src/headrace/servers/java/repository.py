"""The source of jars: HEADRACE_MAVEN, a mirror in the user's Maven settings, or Maven Central.

The lock has each jar's checksum, so any source will do: a company's mirror, a local folder or the
public repository.
"""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from xml.etree import ElementTree

from headrace.errors import InvalidSetting

VARIABLE = "HEADRACE_MAVEN"
CENTRAL = "https://repo.maven.apache.org/maven2"
"""Maven's built-in address."""

_OF_CENTRAL = {"central", "*", "external:*"}


@dataclass(frozen=True)
class Repository:
    """A Maven repository. Its credentials, in `headers`, are never printed."""

    url: str
    headers: dict[str, str] = field(default_factory=dict, repr=False)

    def address(self, path: str) -> str:
        return f"{self.url.rstrip('/')}/{path}"


def repository() -> Repository:
    """The Maven repository that this user has configured."""
    if url := os.environ.get(VARIABLE):
        return _without_credentials(url)
    return _mirror(Path.home() / ".m2" / "settings.xml") or Repository(CENTRAL)


def _without_credentials(url: str) -> Repository:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https", "file"):
        raise InvalidSetting(
            f"{VARIABLE} is not the address of a Maven repository",
            hint=f"Use an address like {CENTRAL}, or file:///FOLDER for a local one",
        )
    if parts.username is None:
        return Repository(url)
    place = parts._replace(netloc=parts.netloc.rpartition("@")[2])
    return Repository(urlunsplit(place), _login(parts.username, parts.password or ""))


def _mirror(settings: Path) -> Repository | None:
    """The mirror of Maven Central in the user's Maven settings, if any."""
    try:
        root = ElementTree.fromstring(settings.read_text())
    except (OSError, ElementTree.ParseError):
        return None
    for mirror in root.findall("{*}mirrors/{*}mirror"):
        wanted = {part.strip() for part in mirror.findtext("{*}mirrorOf", "").split(",")}
        if (url := mirror.findtext("{*}url")) and wanted & _OF_CENTRAL and "!central" not in wanted:
            return Repository(url.strip(), _server(root, mirror.findtext("{*}id", "")))
    return None


def _server(root: ElementTree.Element, name: str) -> dict[str, str]:
    for server in root.findall("{*}servers/{*}server"):
        if server.findtext("{*}id") == name and (user := server.findtext("{*}username")):
            return _login(user, server.findtext("{*}password", ""))
    return {}


def _login(user: str, password: str) -> dict[str, str]:
    token = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"Authorization": f"Basic {token}"}
