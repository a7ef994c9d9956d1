"""The address of a Kafka cluster: servers, client settings, and a text without secrets."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlsplit

from headrace.errors import InvalidSetting
from headrace.log.settings import parse_span

ENVIRONMENT = "HEADRACE_KAFKA_"
"""Prefix of variables that are settings: HEADRACE_KAFKA_SASL_PASSWORD sets sasl.password."""

_PORT = "HEADRACE_KAFKA_PORT"
"""The port of `headrace kafka up`, which is not a client setting."""

REGISTRY = "schema.registry."
"""Prefix of the settings of a schema registry, which Kafka's client does not know."""

_SECRET = re.compile(
    r"password|passphrase|secret|pem|jaas|token|credential|oauthbearer\.config|kinit\.cmd|user\.info"
)
_HOST = re.compile(r"(\[[0-9a-fA-F:]+\]|[A-Za-z0-9._-]+):(\d{1,5})")
_MASK = "***"
_REGISTRY_SETTINGS = ("url", "basic.auth.user.info", "bearer.auth.token", "ssl.ca.location")


@dataclass(frozen=True)
class KafkaAddress:
    """The servers and client settings. Its text is safe to show; its settings may hold secrets.

    `registry` has the settings of the schema registry, without their prefix.
    """

    servers: str
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout: timedelta = timedelta(seconds=30)
    registry: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        shown = [
            f"{name}={_MASK if is_secret(name) else quote(value, safe='/:,')}"
            for name, value in sorted(self._all.items())
        ]
        return f"kafka://{self.servers}" + (f"?{'&'.join(shown)}" if shown else "")

    def scrub(self, text: str) -> str:
        """The text with all secrets masked."""
        for name, value in self._all.items():
            if is_secret(name) and value:
                text = text.replace(value, _MASK)
        return text

    @property
    def every_setting(self) -> dict[str, str]:
        """All settings by the names that they have in a URL, secrets among them."""
        return {**self._all, "timeout": f"{self.timeout.total_seconds():g}s"}

    @property
    def _all(self) -> dict[str, str]:
        registry = {f"{REGISTRY}{name}": value for name, value in self.registry.items()}
        return {**self.settings, **registry}


def is_secret(name: str) -> bool:
    """True if a setting must not be shown."""
    return _SECRET.search(name.lower()) is not None


def parse_address(
    url: str,
    environment: Mapping[str, str] | None = None,
    settings: Mapping[str, str] | None = None,
) -> KafkaAddress:
    """Parse `kafka://host:port,host:port?setting=value`.

    Settings are those of librdkafka. They are those given, else they come from the URL, from the
    file that its `config` names, and from variables, in this order of precedence; `timeout` is how
    long to wait for a broker.
    """
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise InvalidSetting(
            "The address of a Kafka log contains a user, which would be shown with the log's name",
            hint="Use ?config=FILE, or the variables HEADRACE_KAFKA_SASL_USERNAME and "
            "HEADRACE_KAFKA_SASL_PASSWORD",
        )
    servers = parts.netloc.split(",")
    if parts.path.strip("/") or not all(_HOST.fullmatch(server) for server in servers):
        raise InvalidSetting(
            f"'kafka://{parts.netloc}{parts.path}' is not the address of a Kafka log",
            hint="Use kafka://host:port, or kafka://host:port,host:port for several brokers",
        )
    given = dict(parse_qsl(parts.query, keep_blank_values=True)) | dict(settings or {})
    named = given.pop("config", None)
    found = {
        **_from_environment(os.environ if environment is None else environment),
        **({} if named is None else _from_file(Path(named).expanduser())),
        **given,
    }
    timeout = parse_span(found.pop("timeout", "30s"))
    if timeout < timedelta(seconds=1):
        raise InvalidSetting("The timeout of a Kafka log is too short", hint="Use 1s or more")
    registry = {
        name.removeprefix(REGISTRY): found.pop(name)
        for name in list(found)
        if name.startswith(REGISTRY)
    }
    check_registry(registry)
    return KafkaAddress(",".join(servers), found, timeout, registry)


def check_registry(settings: Mapping[str, str]) -> None:
    """Raise unless these are settings of a schema registry, and its address holds no secret."""
    if unknown := sorted(settings.keys() - {*_REGISTRY_SETTINGS}):
        raise InvalidSetting(
            f"There is no setting {REGISTRY + unknown[0]!r} of a schema registry",
            hint=f"There are: {', '.join(REGISTRY + name for name in _REGISTRY_SETTINGS)}",
        )
    for url in settings.get("url", "").split(",") if settings else ():
        parts = urlsplit(url)
        if "@" in parts.netloc:
            raise InvalidSetting(
                "The address of the schema registry contains a user, which would be shown",
                hint="Set HEADRACE_KAFKA_SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO=USER:PASSWORD, or "
                f"{REGISTRY}basic.auth.user.info in the file of ?config=FILE",
            )
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise InvalidSetting(
                f"{url!r} is not the address of a schema registry",
                hint=f"Use {REGISTRY}url=http://HOST:8081",
            )


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name.removeprefix(ENVIRONMENT).lower().replace("_", "."): value
        for name, value in environment.items()
        if name.startswith(ENVIRONMENT) and value and name != _PORT
    }


def _from_file(path: Path) -> dict[str, str]:
    """Read lines of `name=value`, the format of a Kafka client's properties file."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSetting(
            f"The Kafka settings in {str(path)!r} cannot be read: {error}",
            hint="config=FILE names a file with lines such as security.protocol=SASL_SSL",
        ) from None
    settings = {}
    for number, line in enumerate(lines, 1):
        name, sign, value = line.strip().partition("=")
        if not name or name.startswith(("#", "!")):
            continue
        if not sign:
            # The line is not quoted: it may contain part of a secret.
            raise InvalidSetting(
                f"Line {number} of {str(path)!r} is not a setting", hint="Write name=value"
            )
        settings[name.strip()] = value.strip()
    return settings
