"""A topic as Spark's own Kafka source reads it: on and on, or once more between two places."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from headrace.log import Log
from headrace.plan.kafka.connection import connection_of
from headrace.plan.position import Position
from headrace.plan.source_options import BatchLimits

FORMAT = "kafka"

READING = {
    # Nothing of a transaction that was given up, and never a jump over what is gone.
    "kafka.isolation.level": "read_committed",
    "failOnDataLoss": "true",
    # Java's client hands out 500 records at a time unless told otherwise.
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": str(16 << 20),
}

_EARLIEST = -2
"""What Spark calls the beginning of a partition."""


def stream(
    spark: SparkSession,
    log: Log,
    topic: str,
    start: Position,
    batch_limits: BatchLimits,
    tasks: int | None,
) -> DataFrame:
    """What comes to a topic, from a place on, in batches of at most so many rows.

    Partitions that were added since are read from their beginning. It is read by so many tasks at
    least, or by one for each partition.
    """
    there = log.topic(topic).topic.partitions
    offsets = dict.fromkeys(range(there), _EARLIEST) | dict(enumerate(start.offsets))
    return (
        spark.readStream.format(FORMAT)
        .options(**connection_of(log), **READING)
        .option("subscribe", topic)
        .option("startingOffsets", _offsets(topic, offsets))
        .option("maxOffsetsPerTrigger", str(batch_limits.max_rows))
        .options(**({} if tasks is None else {"minPartitions": str(tasks)}))
        .load()
    )


def between(
    spark: SparkSession, log: Log, topic: str, start: Position, end: Position
) -> DataFrame | None:
    """What lies between two places, read once more; None if there is nothing."""
    ranges = {
        partition: span for partition, span in enumerate(start.ranges(end)) if span[0] < span[1]
    }
    if not ranges:
        return None
    return (
        spark.read.format(FORMAT)
        .options(**connection_of(log), **READING)
        .option("assign", json.dumps({topic: list(ranges)}))
        .option("startingOffsets", _offsets(topic, {p: first for p, (first, _) in ranges.items()}))
        .option("endingOffsets", _offsets(topic, {p: last for p, (_, last) in ranges.items()}))
        .load()
    )


def _offsets(topic: str, offsets: Mapping[int, int]) -> str:
    return json.dumps({topic: {str(partition): offset for partition, offset in offsets.items()}})
