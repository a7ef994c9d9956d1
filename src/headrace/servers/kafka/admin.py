"""The brokers and partitions of a cluster, through Kafka's admin client."""

from __future__ import annotations

import logging
from typing import Any

from headrace.errors import MissingExtra
from headrace.servers.java.ports import HOST
from headrace.servers.kafka.state import PartitionState

try:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient
except ModuleNotFoundError:
    raise MissingExtra(
        "Kafka's client is not installed", hint="pip install 'headrace[kafka]'"
    ) from None

_SILENT = logging.Logger("headrace.kafka.silent", logging.CRITICAL + 1)
"""Drops the client's messages about brokers that have not started yet."""


class Admin:
    """Admin client for the brokers at these ports, some of which may be down."""

    def __init__(self, ports: list[int]) -> None:
        servers = ",".join(f"{HOST}:{port}" for port in ports)
        self._client = AdminClient({"bootstrap.servers": servers}, logger=_SILENT)

    def brokers(self, timeout: float = 5) -> set[int]:
        """The ids of the brokers that have joined; empty if none answers in time."""
        try:
            return set(self._client.list_topics(timeout=timeout).brokers)
        except KafkaException:
            return set()

    def partitions(self, timeout: float = 5) -> list[PartitionState] | None:
        """All partitions with their leaders and replicas, or None if no broker answers in time."""
        try:
            topics: dict[str, Any] = self._client.list_topics(timeout=timeout).topics
        except KafkaException:
            return None
        return [
            PartitionState(name, number, one.leader, tuple(one.replicas), tuple(one.isrs))
            for name, topic in sorted(topics.items())
            for number, one in sorted(topic.partitions.items())
        ]
