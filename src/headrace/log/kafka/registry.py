"""A schema registry: the schemas that records in the Confluent wire format name by their ids.

A schema never changes, so what the registry has answered is kept for the life of the process. A
failure is never kept: it is raised, and the same call may succeed later.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from http.client import HTTPException
from typing import Any
from urllib.parse import quote

from headrace.errors import AccessDenied, InvalidSetting, LogError, RegistryUnavailable
from headrace.log.kafka.address import REGISTRY, KafkaAddress

_NETWORK = (urllib.error.URLError, HTTPException, TimeoutError, ConnectionError)
_UNKNOWN = (40401, 40402, 40403)
"""The codes of a registry for a subject, a version and a schema that it does not have."""
_DENIED = (401, 403)
_BUSY = 429
_BROKEN = 500


@dataclass(frozen=True)
class Registered:
    """A schema of the registry: its kind, such as AVRO, JSON or PROTOBUF, and its text."""

    kind: str
    text: str


class Registry:
    """The schemas of one registry, by id and by topic."""

    def __init__(self, settings: Mapping[str, str], seconds: float = 30) -> None:
        self._urls = [url.rstrip("/") for url in settings["url"].split(",")]
        self._login = dict(_login(settings))
        self._context = _context(settings.get("ssl.ca.location"))
        self._seconds = seconds
        self._lock = threading.RLock()
        self._schemas: dict[int, Registered | None] = {}
        self._topics: dict[str, set[int]] = {}

    def schema(self, number: int) -> Registered | None:
        """The schema with that id; None if the registry has none."""
        with self._lock:
            if number not in self._schemas:
                found = self._get(f"/schemas/ids/{number}")
                self._schemas[number] = None if found is None else _registered(found)
            return self._schemas[number]

    def schemas(self, topic: str) -> dict[int, Registered | None]:
        """The schemas that records of a topic are known to have.

        At first these are the versions of the subject TOPIC-value; `learn` adds others.
        """
        with self._lock:
            if topic not in self._topics:
                self._topics[topic] = set(self._versions(f"{topic}-value"))
            return {number: self.schema(number) for number in sorted(self._topics[topic])}

    def learn(self, topic: str, number: int) -> None:
        """Look up an id that a record of a topic has."""
        with self._lock:
            self.schema(number)
            self._topics.setdefault(topic, set()).add(number)

    def _versions(self, subject: str) -> Iterator[int]:
        path = f"/subjects/{quote(subject, safe='')}/versions"
        for version in self._get(path) or ():
            if (found := self._get(f"{path}/{version}")) is not None:
                self._schemas[int(found["id"])] = _registered(found)
                yield int(found["id"])

    def _get(self, path: str) -> Any:
        """The answer of the first registry that gives one; None if it does not have it."""
        for url in self._urls[:-1]:
            try:
                return self._ask(url, path)
            except RegistryUnavailable:
                continue
        return self._ask(self._urls[-1], path)

    def _ask(self, url: str, path: str) -> Any:
        request = urllib.request.Request(url + path)
        request.add_header("Accept", "application/vnd.schemaregistry.v1+json, application/json")
        for name, value in self._login.items():
            request.add_unredirected_header(name, value)  # not for the target of a redirect
        try:
            with urllib.request.urlopen(
                request, timeout=self._seconds, context=self._context
            ) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return _refused(url, path, error)
        except _NETWORK as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            raise RegistryUnavailable(
                f"The schema registry at {url} does not answer: {reason}",
                hint="Nothing was skipped. Run it again when the registry is back",
            ) from None
        except ValueError:
            raise _no_registry(url, path) from None


def _login(settings: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if user := settings.get("basic.auth.user.info"):
        yield "Authorization", f"Basic {base64.b64encode(user.encode()).decode()}"
    elif token := settings.get("bearer.auth.token"):
        yield "Authorization", f"Bearer {token}"


def _context(file: str | None) -> ssl.SSLContext | None:
    try:
        return None if file is None else ssl.create_default_context(cafile=file)
    except OSError as error:
        raise InvalidSetting(
            f"The file of {REGISTRY}ssl.ca.location cannot be read: {error}",
            hint="It must be a PEM file of certificates",
        ) from None


def _refused(url: str, path: str, error: urllib.error.HTTPError) -> None:
    """Return if a registry does not have it, and raise for any other answer."""
    if error.code in _DENIED:
        raise AccessDenied(
            f"The schema registry at {url} rejects the login ({error.code})",
            hint=f"Check {REGISTRY}basic.auth.user.info, or HEADRACE_KAFKA_SCHEMA_REGISTRY_"
            "BASIC_AUTH_USER_INFO",
        )
    if error.code == _BUSY or error.code >= _BROKEN:
        raise RegistryUnavailable(
            f"The schema registry at {url} answers {error.code} {error.reason}",
            hint="Nothing was skipped. Run it again when the registry is back",
        )
    try:
        code = int(json.load(error)["error_code"])
    except (ValueError, KeyError, TypeError):
        code = 0
    if code not in _UNKNOWN:
        raise _no_registry(url, path)


def _registered(found: Mapping[str, Any]) -> Registered:
    return Registered(found.get("schemaType", "AVRO"), found["schema"])


def _no_registry(url: str, path: str) -> LogError:
    return LogError(
        f"The server at {url} does not answer {path} as a schema registry does",
        hint=f"{REGISTRY}url is the address of Confluent's REST API, such as http://HOST:8081",
    )


def registry_of(address: KafkaAddress, topic: str) -> Registry:
    """The registry of a cluster, shared by all of the process. `topic` is the one that needs it."""
    if "url" not in address.registry:
        raise InvalidSetting(
            f"The records of topic {topic!r} name their schemas by id, and there is no schema "
            "registry to look them up",
            hint=f"Set HEADRACE_KAFKA_SCHEMA_REGISTRY_URL=http://HOST:8081, or {REGISTRY}url in "
            "the address of the log or its ?config=FILE",
            topic=topic,
        )
    seconds = address.timeout.total_seconds()
    return _shared(tuple(sorted(address.registry.items())), seconds)


@lru_cache(maxsize=64)
def _shared(settings: tuple[tuple[str, str], ...], seconds: float) -> Registry:
    return Registry(dict(settings), seconds)
