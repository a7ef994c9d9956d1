"""Spark's connection to a broker: the log's settings, translated for the Java client."""

from __future__ import annotations

import base64
import importlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

from headrace.errors import InvalidSetting, Unsupported
from headrace.log import Log
from headrace.log.kafka.address import KafkaAddress, is_secret
from headrace.plan.position import Positions


@runtime_checkable
class OnKafka(Protocol):
    """A log on Kafka, recognized without Kafka's client."""

    address: KafkaAddress
    cluster: str


def cluster_of(log: Log) -> str:
    """Kafka's own id of the cluster that a log is on."""
    assert isinstance(log, OnKafka)
    return log.cluster


def connection_of(log: Log) -> dict[str, str]:
    """The options of Spark's Kafka source, with secrets: never print them."""
    if not isinstance(log, OnKafka):
        raise Unsupported(f"The log at {log.url} is not on Kafka", hint="Use kafka://HOST:PORT")
    made = {"bootstrap.servers": log.address.servers, **java_settings(log.address.settings)}
    return {f"kafka.{name}": value for name, value in made.items()}


Tell = Callable[[Positions], None]
"""Reports positions in the topics of a log."""


def group_of(log: Log, name: str) -> Tell:
    """A function that reports positions to Kafka's own tools, as offsets of a group."""
    assert isinstance(log, OnKafka)
    # Kafka's client is optional, but installed wherever there is a log on Kafka.
    group = importlib.import_module("headrace.plan.kafka.group").Group
    tell: Tell = group(log.address, name).tell
    return tell


_SAME = {"client.dns.lookup", "client.rack"}
"""Settings with the same name in both clients, besides those below."""

_SECURITY = re.compile(r"(^|\.)(ssl|sasl|https)\.")
"""Security settings, which must not be dropped. The rest is specific to a client."""

_LOGINS = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_DEFAULT = "GSSAPI"
"""The default mechanism of both clients."""

_KEY = re.compile(r"-----BEGIN ([A-Z0-9 ]*)PRIVATE KEY-----([^-]*)-----END")
_ENCRYPTED = "ENCRYPTED "
_PBES2 = bytes.fromhex("2a864886f70d01050d")
"""The id of PBES2, the usual encryption of keys today, which Java 17 cannot read."""


def java_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings for the Java client, or raise for those it cannot take."""
    made = {name: value for name, value in given.items() if name in _SAME}
    protocol = given.get("security.protocol", "").upper()
    if protocol:
        made["security.protocol"] = protocol
    # Each of these removes the settings that it translates.
    left = {name: value for name, value in given.items() if _SECURITY.search(name)}
    made |= _login(left, protocol) | _authorities(left) | _identity(left) | _verification(left)
    if left:
        names = [name if is_secret(name) else f"{name}={left[name]}" for name in sorted(left)]
        raise Unsupported(
            f"Spark's Java client for Kafka cannot take {', '.join(names)}",
            hint="Use settings that both clients know: see the page on kinds of log. Only runs in "
            "real time need them",
            capability="settings of Spark",
        )
    return made


def _login(left: dict[str, str], protocol: str) -> dict[str, str]:
    user, password = left.pop("sasl.username", ""), left.pop("sasl.password", "")
    mechanism = left.get("sasl.mechanism") or left.get("sasl.mechanisms")
    if mechanism is None and protocol.startswith("SASL_"):
        left["sasl.mechanism"] = mechanism = _DEFAULT
    if mechanism not in _LOGINS:
        return {}
    for name in ("sasl.mechanism", "sasl.mechanisms"):
        left.pop(name, None)
    login = f'username="{_quoted(user)}" password="{_quoted(password)}"'
    return {
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f"{_LOGINS[mechanism]} required {login};",
    }


def _authorities(left: dict[str, str]) -> dict[str, str]:
    """The certificate authorities: in a file, or as text."""
    if "ssl.ca.pem" in left:
        text = left.pop("ssl.ca.pem")
        return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": text}
    if Path(left.get("ssl.ca.location", "")).is_file():
        file = left.pop("ssl.ca.location")
        return {"ssl.truststore.type": "PEM", "ssl.truststore.location": file}
    return {}


def _identity(left: dict[str, str]) -> dict[str, str]:
    """The client's certificate and key: as text, in files, or in a keystore."""
    password = left.pop("ssl.key.password", "")
    if left.keys() & {"ssl.key.pem", "ssl.key.location"}:
        name, key = _taken(left, "ssl.key")
        _, chain = _taken(left, "ssl.certificate")
        made = {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": chain}
        # Java rejects a password for a key that is not encrypted, librdkafka does not.
        locked = {"ssl.key.password": password} if _is_encrypted(name, key) else {}
        return {**made, "ssl.keystore.key": key, **locked}
    if "ssl.keystore.location" in left:
        return {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": left.pop("ssl.keystore.location"),
            "ssl.keystore.password": left.pop("ssl.keystore.password", ""),
        }
    return {}


def _is_encrypted(name: str, text: str) -> bool:
    """True if the key in a text is encrypted. Raises if Java cannot read it."""
    found = _KEY.findall(text)
    if len(found) == 1:
        ((kind, body),) = found
        if kind == "":
            return False
        if kind == _ENCRYPTED and _PBES2 not in base64.b64decode(body + "=="):
            return True
    raise InvalidSetting(
        f"Spark's Java client for Kafka cannot read the key in {name}",
        hint="It reads PKCS#8, not encrypted by PBES2. Both clients read a keystore: openssl "
        "pkcs12 -export -inkey KEY -in CERTIFICATE -out NEW, and ssl.keystore.location=NEW",
    )


def _verification(left: dict[str, str]) -> dict[str, str]:
    """The verification of a broker's certificate, which Java cannot turn off."""
    if left.get("enable.ssl.certificate.verification", "").lower() in ("true", "t", "1"):
        del left["enable.ssl.certificate.verification"]
    name = "ssl.endpoint.identification.algorithm"
    if name not in left:
        return {}
    value = left.pop(name)
    return {name: "" if value.lower() == "none" else value}


def _taken(left: dict[str, str], name: str) -> tuple[str, str]:
    """Take a PEM text, and the setting that has it or names its file."""
    if (text := left.pop(f"{name}.pem", None)) is not None:
        return f"{name}.pem", text
    setting = f"{name}.location"
    if (file := left.pop(setting, None)) is None:
        raise InvalidSetting(
            f"There is a key for Kafka, but neither {name}.pem nor {setting}",
            hint="A broker needs the key's certificate too",
        )
    try:
        return setting, Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSetting(
            f"The file of {setting} cannot be read: {error}", hint="It must be a PEM file"
        ) from None


def _quoted(text: str) -> str:
    """Escape a text for double quotes."""
    return text.replace("\\", "\\\\").replace('"', '\\"')
