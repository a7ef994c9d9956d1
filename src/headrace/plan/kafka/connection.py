"""How Spark reaches a broker: the log's own settings, as Java's client calls them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

from headrace.errors import Unsupported
from headrace.log import Log
from headrace.log.kafka.address import KafkaAddress
from headrace.plan.kafka.java_settings import java_settings
from headrace.plan.position import Position


@runtime_checkable
class OnKafka(Protocol):
    """A log on Kafka, whose client need not be installed for this to be known."""

    address: KafkaAddress
    cluster: str


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
    made = {"bootstrap.servers": log.address.servers, **java_settings(log.address.settings)}
    return {f"kafka.{name}": value for name, value in made.items()}


Tell = Callable[[Mapping[str, Position]], None]
"""Lets others know how far something has come in the topics of a log."""


def group_of(log: Log, name: str) -> Tell:
    """What lets Kafka's own tools see how far something is: the offsets of a group."""
    assert isinstance(log, OnKafka)
    # Kafka's client is not installed everywhere, but it is where there is a log on Kafka.
    group = importlib.import_module("headrace.plan.kafka.group").Group
    tell: Tell = group(log.address, name).tell
    return tell
