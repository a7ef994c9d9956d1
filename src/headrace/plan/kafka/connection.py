"""Spark's connection to a broker: the log's settings, translated for the Java client."""

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


Tell = Callable[[Mapping[str, Position]], None]
"""Reports positions in the topics of a log."""


def group_of(log: Log, name: str) -> Tell:
    """A function that reports positions to Kafka's own tools, as offsets of a group."""
    assert isinstance(log, OnKafka)
    # Kafka's client is optional, but installed wherever there is a log on Kafka.
    group = importlib.import_module("headrace.plan.kafka.group").Group
    tell: Tell = group(log.address, name).tell
    return tell
