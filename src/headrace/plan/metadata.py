"""Metadata columns that travel with a row through Spark, such as its place in the log.

Their names start with an underscore, which is reserved.
"""

from __future__ import annotations

import pyarrow as pa

from headrace.log import Topic
from headrace.log.event_time import time_column

TIME = "_time"
"""The event time, whatever steps do to the column it came from."""

COMMIT = "_commit"
FRONTIER = "_frontier"
"""The frontier that the row met, in microseconds: the topic's before its commit; on Kafka, that of
its partition before the row."""

LOWEST = "_lowest"
"""The lowest frontier of the topic's partitions before the row's commit, in microseconds."""

MET = "_met"
"""The frontier as a timestamp, if it drives Spark's watermark."""

APPENDED = "_appended"
"""The time of the append to the log."""

PARTITION = "_partition"
OFFSET = "_offset"
TOPIC = "_topic"
INDEX = "_index"
"""The index among the rows that one record was exploded into."""

DELETED = "_deleted"
"""True for a tombstone, if they are read."""

READY = "_ready"
"""The commit with which a waiting row becomes ready."""

OPENED = "_opened"
"""The event time of the first of several duplicates, in microseconds."""

BESIDE = "_beside"
"""The late row or dead letter of a row that does not count; null if it counts."""

REVISION = "_revision"
"""The highest commit that a row of a view counts."""

ROWS = "_rows"
"""The number of rows that a row of a view counts."""

ORDER = (TIME, COMMIT, PARTITION, OFFSET, TOPIC, INDEX)
"""The order of rows: by event time, then by the log, then by index."""

NO_FRONTIER = -(1 << 62)
"""FRONTIER before there is one: lower than any time."""

TYPES = {
    COMMIT: pa.int64(),
    FRONTIER: pa.int64(),
    PARTITION: pa.int32(),
    OFFSET: pa.int64(),
}
"""The metadata that the log has, in the order of a source's columns."""

MORE_TYPES = {
    LOWEST: pa.int64(),
    DELETED: pa.bool_(),
    READY: pa.int64(),
    TIME: pa.timestamp("us", tz="UTC"),
}
"""The metadata that a source adds on request."""


def times_beside(topic: Topic) -> tuple[str, ...]:
    """TIME if a source has to compute it, else nothing: the event time is a column already."""
    return (TIME,) if time_column(topic) is None else ()


def time_of(topic: Topic) -> str:
    """The column of a source's rows that has the event time."""
    return time_column(topic) or TIME


def type_of(place: str) -> pa.DataType:
    """The Arrow type of a metadata column of a source."""
    return TYPES.get(place) or MORE_TYPES[place]
