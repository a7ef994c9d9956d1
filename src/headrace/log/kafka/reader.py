"""Scans of a partition between two offsets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from headrace.clock import SECOND
from headrace.errors import LogUnavailable
from headrace.log.declared import TopicRow
from headrace.log.kafka.client import Client, fetch
from headrace.log.kafka.lookup import out_of_range, ranges
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
        with client.reader(TopicPartition(row.name, partition, first)) as reader:
            for messages in _scan(client, reader, row, partition, first, end):
                yield from batches(row, messages, columns, again)


def _scan(
    client: Client, reader: Consumer, row: TopicRow, partition: int, first: int, end: int
) -> Iterator[list[Message]]:
    at = first
    patience = int(client.seconds * SECOND)
    deadline = client.clock.monotonic() + patience
    look = client.clock.monotonic() + SECOND
    while at < end:
        found: list[Message] = []
        for message in fetch(reader, _AT_ONCE, 0.1):
            error = message.error()
            offset = message.offset() or 0
            if error is None:
                at = offset + 1
                if offset < end:
                    found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                at = max(at, offset)  # only transaction markers are left
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                held = ranges(client, row, [partition])[partition]
                raise out_of_range(row.name, partition, at, *held)
            else:
                raise client.failure(error, topic=row.name, partition=partition)
        if found:
            yield found
        now = client.clock.monotonic()
        if found or at >= end:
            deadline, look = now + patience, now + SECOND
        elif now > look:
            look = now + SECOND
            ranges(client, row, [partition])  # raises the cause, if there is one
        if now > deadline:
            raise LogUnavailable(
                f"Partition {partition} of topic {row.name!r} returns nothing after offset {at}",
                topic=row.name,
                partition=partition,
            )
