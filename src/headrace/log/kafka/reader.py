"""Scans of a partition between two offsets."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from headrace.clock import SECOND
from headrace.errors import LogUnavailable
from headrace.log.declared import TopicRow
from headrace.log.kafka.client import Client, fetch
from headrace.log.kafka.cuts import NONE, Cut, TopicCuts
from headrace.log.kafka.judging import Judge
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
    cuts: TopicCuts,
    *,
    judged: bool = False,
) -> Iterator[Batch]:
    """Yield the rows of each partition between two offsets, one partition after the other.

    Those in a commit have its number. With `judged`, each batch says how its rows stand in time.
    """
    for partition, first, end in spans:
        if first >= end:
            continue
        if judged:
            yield from _judged(client, row, (partition, first, end), columns, again, cuts)
            continue
        for messages in fetched(client, row.name, partition, first, end):
            for some, cut in _by_cut(messages, partition, cuts):
                for batch in batches(row, some, columns, again):
                    yield batch if cut is None else replace(batch, commit=cut.number)


def _judged(
    client: Client,
    row: TopicRow,
    span: tuple[int, int, int],
    columns: Sequence[str] | None,
    again: Again,
    cuts: TopicCuts,
) -> Iterator[Batch]:
    """As `scan`, for one partition. Reading begins where the frontier is known."""
    partition, first, end = span
    origin = cuts.of(partition, first)
    base, frontier = first, NONE
    if partition < len(origin.ends):
        base, frontier = origin.ends[partition], origin.frontiers[partition]
        if base < first:
            base = max(base, range_of(client, row.name, partition)[0])
    judge = Judge(row, frontier, again)
    for messages in fetched(client, row.name, partition, min(base, first), end):
        for some, cut in _by_cut(messages, partition, cuts):
            if cut is not None:
                before = cuts.at(cut.number - 1).frontiers
                # A heartbeat may have advanced it since the last row.
                judge.frontier = max(judge.frontier, *before[partition : partition + 1], NONE)
            for batch in judge.batches(some):
                if cut is not None:
                    batch = replace(batch, commit=cut.number)
                if batch.offsets[0] < first:
                    batch = batch.only(batch.offsets >= first)
                if columns is not None:
                    batch = replace(batch, data=batch.data.select(list(columns)))
                if len(batch):
                    yield batch


def _by_cut(
    messages: list[Message], partition: int, cuts: TopicCuts
) -> Iterator[tuple[list[Message], Cut | None]]:
    """The messages of each cut; those that are in no cut yet come last."""
    start = 0
    while start < len(messages):
        cut = cuts.covering(partition, messages[start].offset() or 0)
        if cut is None:
            yield messages[start:], None
            return
        limit = cut.ends[partition]
        if (messages[-1].offset() or 0) < limit:
            stop = len(messages)
        else:
            stop = bisect_left(messages, limit, start, key=lambda one: one.offset() or 0)
        yield messages[start:stop], cut
        start = stop


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
