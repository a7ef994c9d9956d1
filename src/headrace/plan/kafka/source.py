"""A topic read by Spark's own Kafka source between two positions, for steps in real time."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from headrace.log import Log
from headrace.plan.kafka.connection import connection_of
from headrace.plan.position import Position

FORMAT = "kafka"

READING = {
    # Skip aborted transactions, and fail if rows are gone.
    "kafka.isolation.level": "read_committed",
    "failOnDataLoss": "true",
    # The Java client returns 500 records at a time by default.
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": str(16 << 20),
}


def between(
    spark: SparkSession,
    log: Log,
    topic: str,
    start: Position,
    end: Position,
    options: Mapping[str, str],
) -> DataFrame | None:
    """The rows between two positions; None if there are none."""
    ranges = {
        partition: span for partition, span in enumerate(start.ranges(end)) if span[0] < span[1]
    }
    if not ranges:
        return None
    return (
        spark.read.format(FORMAT)
        .options(**connection_of(log), **READING, **options)
        .option("assign", json.dumps({topic: list(ranges)}))
        .option("startingOffsets", _offsets(topic, {p: first for p, (first, _) in ranges.items()}))
        .option("endingOffsets", _offsets(topic, {p: last for p, (_, last) in ranges.items()}))
        .load()
    )


def _offsets(topic: str, offsets: Mapping[int, int]) -> str:
    return json.dumps({topic: {str(partition): offset for partition, offset in offsets.items()}})
