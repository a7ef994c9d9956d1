"""Jars in the user's cache: fetched once, verified whenever they are asked for.

Adding up the 45 MB of a broker takes a fraction of a second, so nothing is remembered about which
files were good the last time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from headrace.errors import JarRefused, JarUnavailable, ServerError
from headrace.servers.java.lock import Jar, Set, locked
from headrace.servers.java.repository import VARIABLE, Repository, repository

_AT_ONCE = 8
_TIMEOUT = 60
_PIECE = 1 << 18
_NETWORK = (urllib.error.URLError, HTTPException, TimeoutError, ConnectionError)


@dataclass
class Fetching:
    """How far a fetch is, for somebody who looks at it from another thread."""

    jars: int = 0
    done: int = 0
    bytes: int = 0


def cache() -> Path:
    """The folder of fetched jars, laid out as a Maven repository is."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "headrace" / "jars"


def class_path(name: Set, told: Fetching | None = None) -> str:
    """The jars of a set as Java wants them, fetched if they are not here yet."""
    return os.pathsep.join(map(str, jars(name, told)))


def jars(name: Set, told: Fetching | None = None) -> list[Path]:
    """The files of a set, each with the bytes that the lock says, fetched if they are not here."""
    return fetch(locked(name), cache(), told)


def fetch(wanted: Iterable[Jar], folder: Path, told: Fetching | None = None) -> list[Path]:
    """The files of these jars in a folder. What does not match is removed and refused."""
    told = told or Fetching()
    places = {jar: folder / jar.path for jar in wanted}
    missing = [jar for jar, place in places.items() if not _verified(jar, place)]
    if missing:
        source = repository()
        told.jars = len(missing)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            work = [pool.submit(_download, jar, places[jar], source, told) for jar in missing]
            try:
                for each in as_completed(work):
                    each.result()
                    told.done += 1
            finally:
                pool.shutdown(cancel_futures=True)
    return list(places.values())


def _verified(jar: Jar, place: Path) -> bool:
    """Whether the jar is there. One that is not what it should be is no mistake to pass over."""
    try:
        with place.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _unusable(place, error) from None
    if digest != jar.sha256:
        _remove(place)
        raise JarRefused(
            f"{jar.coordinates} in the cache does not match its checksum, and was removed",
            hint="Somebody or something changed it. Run the command again to fetch it anew\n"
            f"It was at {place}",
            expected=jar.sha256,
            found=digest,
        )
    return True


def _download(jar: Jar, place: Path, source: Repository, told: Fetching) -> None:
    """Put a jar in its place. Of several processes that do so at once, the last one wins."""
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
                told.bytes += len(piece)
        if digest.hexdigest() != jar.sha256:
            raise JarRefused(
                f"{jar.coordinates} as {source.url} has it does not match its checksum",
                hint="It was not kept. If that repository is a mirror, it may be out of order; "
                f"{VARIABLE} names another one",
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
        _remove(Path(name))


def _request(jar: Jar, source: Repository) -> urllib.request.Request:
    made = urllib.request.Request(source.address(jar.path))
    for name, value in source.headers.items():
        # Who a mirror sends us on to is not told how we log in to the mirror.
        made.add_unredirected_header(name, value)
    return made


def _unavailable(jar: Jar, source: Repository, error: Exception) -> JarUnavailable:
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    return JarUnavailable(
        f"{jar.coordinates} could not be fetched from {source.url}: {reason}",
        hint="Try again when the network is there. Behind a proxy, set HTTPS_PROXY\n"
        f"{VARIABLE} names another Maven repository, such as a mirror or file:///FOLDER",
    )


def _unusable(place: Path, error: OSError) -> ServerError:
    return ServerError(
        f"The cache of jars cannot be used: {error.strerror} at {place}",
        hint="Make room or put it right, or name another folder with XDG_CACHE_HOME",
    )


def _remove(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
