"""The last sequence number of each producer: the topic `_headrace.fences`.

A producer's fence is the last record of the transaction that it describes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.admin import OffsetSpec

from headrace.errors import LogBusy, LogError, LogUnavailable
from headrace.log.kafka.client import Client, fetch
from headrace.log.kafka.declarations import make_own_topic
from headrace.log.kafka.messages import Outgoing
from headrace.log.partitioner import partition_of
from headrace.log.state import Ack, Receipt

TOPIC = "_headrace.fences"
PARTITIONS = 16


@dataclass(frozen=True)
class Fence:
    """The last sequence number of a producer, and the receipt of its commit."""

    sequence: int
    receipt: Receipt


def fence_message(producer: str, fence: Fence) -> Outgoing:
    """The record that stores a fence."""
    receipt = fence.receipt
    value = {
        "sequence": fence.sequence,
        "timestamp": receipt.timestamp,
        "acks": [[ack.topic, ack.partition, ack.first, ack.end] for ack in receipt.acks],
    }
    key = producer.encode()
    return Outgoing(TOPIC, partition_of(key, PARTITIONS), key, json.dumps(value).encode(), None)


def read_fence(client: Client, producer: str) -> Fence | None:
    """The last fence of a producer, read once its partition has no open transaction."""
    make_own_topic(client, TOPIC, PARTITIONS)
    key = producer.encode()
    place = (TOPIC, partition_of(key, PARTITIONS))
    written = client.offsets([place], OffsetSpec.latest(), uncommitted=True)[place][0]
    for _ in client.moments():
        if client.offsets([place], OffsetSpec.latest())[place][0] >= written:
            break
    else:
        raise LogBusy(
            f"An open transaction of another producer hides the last commit of {producer!r}",
            hint="It ends at its timeout: try again in a minute",
            producer=producer,
        )
    first = client.offsets([place], OffsetSpec.earliest())[place][0]
    return _parse(producer, _last(client, place, key, first, written))


def _last(client: Client, place: tuple[str, int], key: bytes, first: int, end: int) -> bytes | None:
    """The last value of a key."""
    last: bytes | None = None
    if first >= end:
        return last
    with client.reader(TopicPartition(*place, first)) as reader:
        for _ in client.moments():
            for message in fetch(reader, 10_000, 0.1):
                error = message.error()
                first = max(first, message.offset() or 0)
                if error is None:
                    first += 1
                    if message.key() == key:
                        last = message.value()
                elif error.code() != KafkaError._PARTITION_EOF:
                    raise client.failure(error, topic=TOPIC)
            if first >= end:
                return last
    raise LogUnavailable(f"The topic {TOPIC!r} could not be read in time")


def _parse(producer: str, value: bytes | None) -> Fence | None:
    if value is None:
        return None
    try:
        found = json.loads(value)
        acks = tuple(Ack(*ack) for ack in found["acks"])
        return Fence(int(found["sequence"]), Receipt(None, int(found["timestamp"]), acks))
    except (ValueError, KeyError, TypeError) as error:
        raise LogError(
            f"The fence of producer {producer!r} in {TOPIC!r} cannot be parsed: {error!r}",
            hint="Another program has written to that topic. Use another producer id",
            producer=producer,
        ) from error
