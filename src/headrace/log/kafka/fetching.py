"""Messages from a consumer of Kafka's."""

from __future__ import annotations

from confluent_kafka import Consumer, Message


def fetch(consumer: Consumer, most: int, seconds: float) -> list[Message]:
    """Messages as soon as there is one: Kafka's own call waits until there are so many."""
    found: list[Message] = consumer.consume(1, seconds)
    if found and most > 1:
        found += consumer.consume(most - 1, 0)
    return found
