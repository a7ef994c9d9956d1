"""A group's offsets as Kafka keeps them.

With each offset goes the id of its topic, so that a topic which was deleted and made again is not
read from where the group was in the old one.
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
    """The same, as Kafka's client takes it."""

    partitions: Sequence[TopicPartition]


def kafka_offsets(
    group: str, member: object, moved: Mapping[Place, int], topics: Mapping[int, TopicRow]
) -> KafkaOffsets:
    """Offsets on their way to Kafka."""
    partitions = [
        at(topics[topic], partition, offset) for (topic, partition), offset in moved.items()
    ]
    return KafkaOffsets(group, member, moved, partitions)


def at(topic: TopicRow, partition: int, offset: int) -> TopicPartition:
    """A place in a topic, with the mark of the topic."""
    return TopicPartition(topic.name, partition, offset, f"{_MARK}{topic.id:x}")


def committed(topic: TopicRow, found: TopicPartition) -> int | None:
    """The offset that a group has committed in a topic, if it was in this one."""
    mark = found.metadata or ""
    if found.offset < 0 or (mark.startswith(_MARK) and mark != f"{_MARK}{topic.id:x}"):
        return None
    return int(found.offset)
