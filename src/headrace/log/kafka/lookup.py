"""Offsets on Kafka: those of positions, and those that groups have committed.

A committed offset has its topic's id as metadata, so that a group does not read a recreated topic
from its offset in the old one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec

from headrace.errors import InvalidPosition, OffsetOutOfRange
from headrace.log.declared import TopicRow, check_partition
from headrace.log.interface import Capability, lacking
from headrace.log.kafka.client import Client
from headrace.log.position import Commit, Earliest, Latest, Offset, Position, Time
from headrace.log.positions import GroupOffsets

_LATEST_MILLIS = (1 << 62) // 1000
_MARK = "headrace:"


def find_offsets(
    client: Client, row: TopicRow, partitions: Iterable[int], position: Position
) -> dict[int, int]:
    """The offset of a position in each partition, as a start or an end of reading."""
    wanted = [check_partition(row, partition) for partition in partitions]
    places = [(row.name, partition) for partition in wanted]
    if not places:
        return {}
    match position:
        case Earliest():
            found = client.offsets(places, OffsetSpec.earliest())
            return {partition: found[row.name, partition][0] for partition in wanted}
        case Latest():
            found = client.offsets(places, OffsetSpec.latest())
            return {partition: found[row.name, partition][0] for partition in wanted}
        case Offset(offset):
            for partition, (first, end) in ranges(client, row, wanted).items():
                if not first <= offset <= end:
                    raise out_of_range(row.name, partition, offset, first, end)
            return dict.fromkeys(wanted, offset)
        case Time(micros):
            return _at(client, row, wanted, micros)
        case Commit():
            raise lacking(str(client.address), Capability.COMMITS)
        case _:
            raise InvalidPosition(
                f"{position!r} is not a position",
                hint="Use EARLIEST, LATEST, Offset(42), Time.at(...), "
                "or parse_position for user input",
            )


def ranges(client: Client, row: TopicRow, partitions: Iterable[int]) -> dict[int, tuple[int, int]]:
    """The offset range of each partition: the first, and the one after the last."""
    places = [(row.name, check_partition(row, partition)) for partition in partitions]
    first = client.offsets(places, OffsetSpec.earliest())
    end = client.offsets(places, OffsetSpec.latest())
    return {place[1]: (first[place][0], end[place][0]) for place in places}


def range_of(client: Client, topic: str, partition: int) -> tuple[int, int]:
    """The offset range of one partition."""
    place = (topic, partition)
    first = client.offsets([place], OffsetSpec.earliest())[place][0]
    return first, client.offsets([place], OffsetSpec.latest())[place][0]


def _at(client: Client, row: TopicRow, partitions: list[int], micros: int) -> dict[int, int]:
    places = [(row.name, partition) for partition in partitions]
    # Kafka has milliseconds: round up, since a record's time is the start of its millisecond.
    millis = max(0, min(-(-micros // 1000), _LATEST_MILLIS))
    found = client.offsets(places, OffsetSpec.for_timestamp(millis))
    ends = client.offsets(places, OffsetSpec.latest())
    return {
        place[1]: ends[place][0] if found[place][0] < 0 else min(found[place][0], ends[place][0])
        for place in places
    }


def out_of_range(topic: str, partition: int, offset: int, first: int, end: int) -> OffsetOutOfRange:
    """The error for an offset that a partition does not hold."""
    return OffsetOutOfRange(
        f"Offset {offset} is not in partition {partition} of {topic!r}, "
        f"which holds the offsets from {first} up to {end}",
        hint=f"Begin at an offset from {first} to {end}, at a time, or at an end",
        topic=topic,
        partition=partition,
        offset=offset,
        first=first,
        end=end,
    )


@dataclass(frozen=True)
class KafkaOffsets(GroupOffsets):
    """A group's offsets in the form of Kafka's client."""

    partitions: Sequence[TopicPartition]


def at(topic: TopicRow, partition: int, offset: int) -> TopicPartition:
    """An offset in a partition, with the topic's id as metadata."""
    return TopicPartition(topic.name, partition, offset, f"{_MARK}{topic.id:x}")


def committed(topic: TopicRow, found: TopicPartition) -> int | None:
    """The offset that a group has committed, unless it is of an earlier topic of this name."""
    mark = found.metadata or ""
    if found.offset < 0 or (mark.startswith(_MARK) and mark != f"{_MARK}{topic.id:x}"):
        return None
    return int(found.offset)
