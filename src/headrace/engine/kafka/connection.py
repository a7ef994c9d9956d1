"""How Spark's Kafka source reaches a broker, from how the log does."""

from __future__ import annotations

from headrace.log import Log


def connection_of(log: Log) -> dict[str, str]:
    """Options of Spark's Kafka source."""
    return {"kafka.bootstrap.servers": log.url.partition("://")[2].partition("?")[0].strip("/")}
