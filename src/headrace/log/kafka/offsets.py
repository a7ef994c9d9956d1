"""A group's offsets as Kafka stores them.

Each offset has its topic's id as metadata, so that a group does not read a recreated topic from its
offset in the old one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import TopicPartition

from headrace.log.declared import TopicRow
from headrace.log.group_offsets import GroupOffsets, Place

_MARK = "headrace:"


@dataclass(frozen=True)
class KafkaOffsets(GroupOffsets):
    """A group's offsets in the form of Kafka's client."""

    partitions: Sequence[TopicPartition]


def kafka_offsets(
    group: str, member: object, moved: Mapping[Place, int], topics: Mapping[int, TopicRow]
) -> KafkaOffsets:
    """The offsets to commit, in the form of Kafka's client."""
    partitions = [
        at(topics[topic], partition, offset) for (topic, partition), offset in moved.items()
    ]
    return KafkaOffsets(group, member, moved, partitions)


def at(topic: TopicRow, partition: int, offset: int) -> TopicPartition:
    """An offset in a partition, with the topic's id as metadata."""
    return TopicPartition(topic.name, partition, offset, f"{_MARK}{topic.id:x}")


def committed(topic: TopicRow, found: TopicPartition) -> int | None:
    """The offset that a group has committed, unless it is of an earlier topic of this name."""
    mark = found.metadata or ""
    if found.offset < 0 or (mark.startswith(_MARK) and mark != f"{_MARK}{topic.id:x}"):
        return None
    return int(found.offset)
