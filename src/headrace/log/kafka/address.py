"""Where a Kafka cluster is, how to log in to it, and how to speak of it without its secrets."""

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
"""What variables begin with that are settings: HEADRACE_KAFKA_SASL_PASSWORD is sasl.password."""

_PORT = "HEADRACE_KAFKA_PORT"
"""Where `headrace kafka up` listens, which is no setting of a client."""

_SECRET = re.compile(
    r"password|passphrase|secret|pem|jaas|token|credential|oauthbearer\.config|kinit\.cmd"
)
_HOST = re.compile(r"(\[[0-9a-fA-F:]+\]|[A-Za-z0-9._-]+):(\d{1,5})")
_MASK = "***"


@dataclass(frozen=True)
class KafkaAddress:
    """The servers and the client's settings. Its text is fit to be shown; `settings` are not."""

    servers: str
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout: timedelta = timedelta(seconds=30)

    def __str__(self) -> str:
        shown = [
            f"{name}={_MASK if is_secret(name) else quote(value, safe='/:,')}"
            for name, value in sorted(self.settings.items())
        ]
        return f"kafka://{self.servers}" + (f"?{'&'.join(shown)}" if shown else "")

    def scrub(self, text: str) -> str:
        """A text in which no secret is left."""
        for name, value in self.settings.items():
            if is_secret(name) and value:
                text = text.replace(value, _MASK)
        return text


def is_secret(name: str) -> bool:
    """Whether a setting must not be shown."""
    return _SECRET.search(name.lower()) is not None


def parse_address(url: str, environment: Mapping[str, str] | None = None) -> KafkaAddress:
    """From `kafka://host:port,host:port?setting=value` to an address.

    Settings are those of librdkafka. They come from the URL, from the file that its `config` names,
    and from variables, in this order; `timeout` says how long a broker that is away is waited for.
    """
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise InvalidSetting(
            "The address of a Kafka log has a user in it, which would be seen wherever it is named",
            hint="Use ?config=FILE, or the variables HEADRACE_KAFKA_SASL_USERNAME and "
            "HEADRACE_KAFKA_SASL_PASSWORD",
        )
    servers = parts.netloc.split(",")
    if parts.path.strip("/") or not all(_HOST.fullmatch(server) for server in servers):
        raise InvalidSetting(
            f"'kafka://{parts.netloc}{parts.path}' is not the address of a Kafka log",
            hint="Use kafka://host:port, or kafka://host:port,host:port for several brokers",
        )
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    named = given.pop("config", None)
    settings = {
        **_from_environment(os.environ if environment is None else environment),
        **({} if named is None else _from_file(Path(named).expanduser())),
        **given,
    }
    timeout = parse_span(settings.pop("timeout", "30s"))
    if timeout < timedelta(seconds=1):
        raise InvalidSetting("The timeout of a Kafka log is too short", hint="Use 1s or more")
    return KafkaAddress(",".join(servers), settings, timeout)


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name.removeprefix(ENVIRONMENT).lower().replace("_", "."): value
        for name, value in environment.items()
        if name.startswith(ENVIRONMENT) and value and name != _PORT
    }


def _from_file(path: Path) -> dict[str, str]:
    """Lines of `name=value`, as a Kafka client's properties file has them."""
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
            # What the line says is not repeated: it may be half a secret.
            raise InvalidSetting(
                f"Line {number} of {str(path)!r} is not a setting", hint="Write name=value"
            )
        settings[name.strip()] = value.strip()
    return settings
