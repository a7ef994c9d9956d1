"""Scans of a partition between two offsets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from headrace.clock import SECOND
from headrace.errors import LogUnavailable
from headrace.log.declared import TopicRow
from headrace.log.kafka.client import Client, fetch
from headrace.log.kafka.lookup import out_of_range, range_of
from headrace.log.kafka.messages import Again, batches
from headrace.log.record import Batch

_AT_ONCE = 50_000


def scan(
    client: Client,
    row: TopicRow,
    spans: Sequence[tuple[int, int, int]],
    columns: Sequence[str] | None,
    again: Again,
) -> Iterator[Batch]:
    """Yield the rows of each partition between two offsets, one partition after the other."""
    for partition, first, end in spans:
        if first >= end:
            continue
        for messages in fetched(client, row.name, partition, first, end):
            yield from batches(row, messages, columns, again)


def fetched(
    client: Client, topic: str, partition: int, first: int, end: int
) -> Iterator[list[Message]]:
    """Yield the messages between two offsets of a partition, as they arrive."""
    with client.reader(TopicPartition(topic, partition, first)) as reader:
        yield from _fetched(client, reader, topic, partition, first, end)


def _fetched(
    client: Client, reader: Consumer, topic: str, partition: int, first: int, end: int
) -> Iterator[list[Message]]:
    at = first
    patience = int(client.seconds * SECOND)
    deadline = client.clock.monotonic() + patience
    look = client.clock.monotonic() + SECOND
    while at < end:
        found = fetch(reader, _AT_ONCE, 0.1)
        if any(map(Message.error, found)):
            at, found = _sorted_out(client, topic, partition, at, found)
        if found:
            at = max(at, (found[-1].offset() or 0) + 1)
            if at > end:
                found = [message for message in found if (message.offset() or 0) < end]
        if found:
            yield found
        now = client.clock.monotonic()
        if found or at >= end:
            deadline, look = now + patience, now + SECOND
        elif now > look:
            look = now + SECOND
            range_of(client, topic, partition)  # raises the cause, if there is one
        if now > deadline:
            raise LogUnavailable(
                f"Partition {partition} of topic {topic!r} returns nothing after offset {at}",
                topic=topic,
                partition=partition,
            )


def _sorted_out(
    client: Client, topic: str, partition: int, at: int, found: list[Message]
) -> tuple[int, list[Message]]:
    """The messages without the events among them, and the offset up to which nothing is left."""
    for message in found:
        error = message.error()
        if error is None:
            at = (message.offset() or 0) + 1
        elif error.code() == KafkaError._PARTITION_EOF:
            at = max(at, message.offset() or 0)  # only transaction markers are left
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise out_of_range(topic, partition, at, *range_of(client, topic, partition))
        else:
            raise client.failure(error, topic=topic, partition=partition)
    return at, [message for message in found if message.error() is None]
