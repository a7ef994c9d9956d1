"""Resolve positions to offsets."""

from __future__ import annotations

import apsw

from headrace.errors import InvalidPosition, OffsetOutOfRange, UnknownTopic
from headrace.log.declared import TopicRow, check_partition
from headrace.log.file.catalog import one
from headrace.log.position import Commit, Earliest, Latest, Offset, Position, Time

_ENDLESS = 1 << 62


def partition_range(db: apsw.Connection, row: TopicRow, partition: int) -> tuple[int, int]:
    """The first offset of a partition, and the one after its last."""
    check_partition(row, partition)
    sql = "SELECT first, end FROM partition WHERE topic = ? AND partition = ?"
    found = one(db, sql, row.id, partition)
    if found is None:
        raise UnknownTopic(f"Topic {row.name!r} has been deleted", topic=row.name)
    return found[0], found[1]


def find_offset(db: apsw.Connection, row: TopicRow, partition: int, position: Position) -> int:
    """The offset where reading from a position starts, or reading up to it ends."""
    first, end = partition_range(db, row, partition)
    match position:
        case Earliest():
            return first
        case Latest():
            return end
        case Offset(offset):
            if not first <= offset <= end:
                raise out_of_range(row.name, partition, offset, first, end)
            return offset
        case Commit(number):
            found = one(
                db,
                "SELECT first FROM chunk WHERE topic = ? AND partition = ? AND number > ? "
                "ORDER BY number LIMIT 1",
                row.id,
                partition,
                min(number, _ENDLESS),
            )
        case Time(micros):
            sql = "SELECT number FROM commits WHERE time >= ? ORDER BY time, number LIMIT 1"
            after = one(db, sql, max(-_ENDLESS, min(micros, _ENDLESS)))
            if after is None:
                return end
            return find_offset(db, row, partition, Commit(after[0] - 1))
        case _:
            raise InvalidPosition(
                f"{position!r} is not a position",
                hint="Use EARLIEST, LATEST, Offset(42), Time.at(...), Commit(7), "
                "or parse_position() for text",
            )
    return end if found is None else max(first, found[0])


def out_of_range(topic: str, partition: int, offset: int, first: int, end: int) -> OffsetOutOfRange:
    """The error for an offset outside its partition."""
    return OffsetOutOfRange(
        f"Offset {offset} is not in partition {partition} of {topic!r}, "
        f"which holds the offsets from {first} up to {end}",
        hint=f"Start at an offset from {first} to {end}, at a time, at earliest or at latest",
        topic=topic,
        partition=partition,
        offset=offset,
        first=first,
        end=end,
    )
