"""Locked jars: downloaded once into the user's cache, and verified on every use.

A lock names the jars of a set by coordinates and SHA-256; `scripts/jars` writes it. Since it has
each jar's checksum, any source will do: HEADRACE_MAVEN, a mirror in the user's Maven settings, or
Maven Central. Hashing the 45 MB of a broker takes a fraction of a second, so no result is cached.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import os
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit, urlunsplit
from xml.etree import ElementTree

from headrace.errors import InvalidSetting, JarRefused, JarUnavailable, ServerError

Set = Literal["kafka", "spark-kafka"]
"""`kafka` is a broker and Kafka's tools; `spark-kafka` lets Spark use topics and Avro."""

FOLDER = Path(__file__).parent

VARIABLE = "HEADRACE_MAVEN"
CENTRAL = "https://repo.maven.apache.org/maven2"
"""Maven's built-in address."""

_OF_CENTRAL = {"central", "*", "external:*"}
_AT_ONCE = 8
_TIMEOUT = 60
_PIECE = 1 << 18
_NETWORK = (urllib.error.URLError, HTTPException, TimeoutError, ConnectionError)


@dataclass(frozen=True)
class Jar:
    """One jar: `group:artifact:version` and its checksum."""

    coordinates: str
    sha256: str

    @property
    def path(self) -> str:
        """Its path in a Maven repository and in the cache."""
        group, artifact, version = self.coordinates.split(":")
        return f"{group.replace('.', '/')}/{artifact}/{version}/{artifact}-{version}.jar"

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


@functools.cache
def locked(name: Set) -> tuple[Jar, ...]:
    """The jars of a set, in the order of its lock."""
    lines = (FOLDER / f"{name}.lock").read_text().splitlines()
    entries = (line.split() for line in lines if line and not line.startswith("#"))
    return tuple(Jar(coordinates, digest) for coordinates, digest in entries)


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


@dataclass
class Fetching:
    """The progress of a download, to be read from another thread."""

    jars: int = 0
    done: int = 0
    bytes: int = 0


def cache() -> Path:
    """The folder of downloaded jars, laid out like a Maven repository."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "headrace" / "jars"


def class_path(name: Set, progress: Fetching | None = None) -> str:
    """The class path of a set of jars. Missing jars are downloaded."""
    return os.pathsep.join(map(str, jars(name, progress)))


def jars(name: Set, progress: Fetching | None = None) -> list[Path]:
    """The verified files of a set of jars. Missing jars are downloaded."""
    return fetch(locked(name), cache(), progress)


def fetch(wanted: Iterable[Jar], folder: Path, progress: Fetching | None = None) -> list[Path]:
    """The files of these jars in a folder. A jar that does not match is removed and refused."""
    progress = progress or Fetching()
    places = {jar: folder / jar.path for jar in wanted}
    missing = [jar for jar, place in places.items() if not _verified(jar, place)]
    if missing:
        source = repository()
        progress.jars = len(missing)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            work = [pool.submit(_download, jar, places[jar], source, progress) for jar in missing]
            try:
                for each in as_completed(work):
                    each.result()
                    progress.done += 1
            finally:
                pool.shutdown(cancel_futures=True)
    return list(places.values())


def _verified(jar: Jar, place: Path) -> bool:
    """True if the jar is there and matches its checksum; raises if it does not match."""
    try:
        with place.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _unusable(place, error) from None
    if digest != jar.sha256:
        place.unlink(missing_ok=True)
        raise JarRefused(
            f"{jar.coordinates} in the cache does not match its checksum, and was removed",
            hint="The file was changed or damaged. Run the command again to download it again\n"
            f"It was at {place}",
            expected=jar.sha256,
            found=digest,
        )
    return True


def _download(jar: Jar, place: Path, source: Repository, progress: Fetching) -> None:
    """Download a jar to its place. If several processes do so at once, the last one wins."""
    digest = hashlib.sha256()
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        number, name = tempfile.mkstemp(dir=place.parent, prefix=f"{place.name}.")
    except OSError as error:
        raise _unusable(place, error) from None
    try:
        with (
            os.fdopen(number, "wb") as file,
            urllib.request.urlopen(_request(jar, source), timeout=_TIMEOUT) as answer,
        ):
            while piece := answer.read(_PIECE):
                file.write(piece)
                digest.update(piece)
                progress.bytes += len(piece)
        if digest.hexdigest() != jar.sha256:
            raise JarRefused(
                f"{jar.coordinates} from {source.url} does not match its checksum",
                hint="It was not kept. If that repository is a mirror, it may be broken; "
                f"set {VARIABLE} to use another one",
                expected=jar.sha256,
                found=digest.hexdigest(),
            )
        os.chmod(name, 0o644)
        os.replace(name, place)
    except _NETWORK as error:
        raise _unavailable(jar, source, error) from None
    except OSError as error:
        raise _unusable(place, error) from None
    finally:
        Path(name).unlink(missing_ok=True)


def _request(jar: Jar, source: Repository) -> urllib.request.Request:
    made = urllib.request.Request(source.address(jar.path))
    for name, value in source.headers.items():
        # The target of a mirror's redirect must not get the mirror's credentials.
        made.add_unredirected_header(name, value)
    return made


def _unavailable(jar: Jar, source: Repository, error: Exception) -> JarUnavailable:
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    return JarUnavailable(
        f"{jar.coordinates} could not be downloaded from {source.url}: {reason}",
        hint="Check the network and try again. Behind a proxy, set HTTPS_PROXY\n"
        f"To use another Maven repository, such as a mirror or file:///FOLDER, set {VARIABLE}",
    )


def _unusable(place: Path, error: OSError) -> ServerError:
    return ServerError(
        f"The jar cache cannot be used: {error.strerror} at {place}",
        hint="Free some space or fix the permissions, or set XDG_CACHE_HOME to another folder",
    )
