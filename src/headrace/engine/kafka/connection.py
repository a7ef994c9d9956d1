"""How Spark reaches a broker: the log's own settings, as Java's client calls them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, runtime_checkable

from headrace.engine.position import Position
from headrace.errors import Unsupported
from headrace.log import Log
from headrace.log.kafka.address import KafkaAddress

_SAME = {
    "security.protocol",
    "sasl.mechanism",
    "ssl.key.password",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.endpoint.identification.algorithm",
    "client.dns.lookup",
    "client.rack",
}
"""What both clients call the same."""

_LOGINS = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


@runtime_checkable
class OnKafka(Protocol):
    """A log on Kafka, whose client need not be installed for this to be known."""

    address: KafkaAddress
    cluster: str

    def topic_ids(self, names: Iterable[str]) -> dict[str, int]:
        """Kafka's ids of topics, without those that are not there; one made again has another."""


def cluster_of(log: Log) -> str:
    """Kafka's own id of the cluster that a log is on."""
    assert isinstance(log, OnKafka)
    return log.cluster


def connection_of(log: Log) -> dict[str, str]:
    """Options of Spark's Kafka source, secrets and all: they are never to be printed."""
    if not isinstance(log, OnKafka):
        raise Unsupported(
            f"Spark cannot read the log at {log.url} as Kafka's", hint="Use kafka://HOST:PORT"
        )
    given = dict(log.address.settings)
    made = {"bootstrap.servers": log.address.servers}
    mechanism = given.get("sasl.mechanism") or given.get("sasl.mechanisms")
    if mechanism is not None:
        made["sasl.mechanism"] = mechanism
        user, password = given.get("sasl.username", ""), given.get("sasl.password", "")
        if mechanism in _LOGINS:
            login = f'username="{_quoted(user)}" password="{_quoted(password)}"'
            made["sasl.jaas.config"] = f"{_LOGINS[mechanism]} required {login};"
    if (authority := given.get("ssl.ca.location")) is not None:
        made |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": authority}
    made |= {name: value for name, value in given.items() if name in _SAME}
    return {f"kafka.{name}": value for name, value in made.items()}


Tell = Callable[[Mapping[str, Position]], None]
"""Lets others know how far something has come in the topics of a log."""


def group_of(log: Log, name: str) -> Tell:
    """What lets Kafka's own tools see how far something is: the offsets of a group."""
    assert isinstance(log, OnKafka)
    # Kafka's client is not installed everywhere, but it is where there is a log on Kafka.
    group = importlib.import_module("headrace.engine.kafka.group").Group
    tell: Tell = group(log.address, name).tell
    return tell


def _quoted(text: str) -> str:
    """A text inside of double quotes."""
    return text.replace("\\", "\\\\").replace('"', '\\"')
