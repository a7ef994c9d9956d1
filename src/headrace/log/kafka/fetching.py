"""Fetching messages from Kafka's consumer."""

from __future__ import annotations

from confluent_kafka import Consumer, Message


def fetch(consumer: Consumer, most: int, seconds: float) -> list[Message]:
    """Messages as soon as there is one; Kafka's own call waits until it has `most` of them."""
    found: list[Message] = consumer.consume(1, seconds)
    if found and most > 1:
        found += consumer.consume(most - 1, 0)
    return found
