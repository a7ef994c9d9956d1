"""The oldest rows of a batch: late rows are among them, so that only these are decoded again.

Spark keeps their records on the way, as they came. Where more rows may be late than it keeps, or a
record is too large to be kept, Kafka is asked once more.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.plan import metadata
from headrace.plan.arrow_frames import frame_of
from headrace.plan.kafka.decode import STAMP, VALUE

KEPT = 1_000
"""So many rows are kept of each topic and batch."""

KEPT_BYTES = 4_096
"""Larger records are not kept."""

_RECORD, _ROWS = "_record", "rows"
_PARTITION_BITS = 40
"""A place is one number: the offset, and above so many bits the partition."""

_SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("value", pa.binary()),
    ]
)
"""What there is of a record, as Kafka's source gives it."""


def metric_of(topic: str) -> str:
    """The name under which Spark keeps the oldest rows of a topic."""
    return f"oldest-{topic}"


def watched(rows: DataFrame, topic: str) -> DataFrame:
    """Rows of which Spark keeps the oldest as the records that they were."""
    value = F.when(F.octet_length(VALUE) <= F.lit(KEPT_BYTES), F.col(VALUE))
    # A column, and no part of the metric: there it would be made anew of each row, kept or not.
    record = F.struct(
        F.col(metadata.PARTITION).alias("partition"),
        F.col(metadata.OFFSET).alias("offset"),
        F.unix_micros(STAMP).alias("timestamp"),
        F.unix_micros(metadata.TIME).alias("time"),
        value.alias("value"),
    )
    oldest = F.min_by(_RECORD, metadata.TIME, KEPT).alias(_ROWS)
    return (
        rows.withColumn(_RECORD, record)
        .observe(metric_of(topic), oldest)
        .drop(_RECORD, VALUE, STAMP)
    )


@dataclass(frozen=True)
class Oldest:
    """Rows of a batch, of which all others are no older than the last."""

    rows: tuple[dict[str, Any], ...]

    @staticmethod
    def from_json(text: str) -> Oldest:
        """From what Spark says of the metric."""
        return Oldest(tuple(json.loads(text)[_ROWS] or ()))

    def before(self, moment: int) -> Oldest | None:
        """Those before a moment, each once; None if there may be others.

        Where a worker was lost, Spark may have come by the same record twice.
        """
        found = [row for row in self.rows if row["time"] < moment]
        once = {(row["partition"], row["offset"]): row for row in found}
        return Oldest(tuple(once.values())) if len(found) < KEPT else None

    def records(self, spark: SparkSession) -> DataFrame | None:
        """Them as Kafka's source gave them; None if it has to be asked again."""
        if any(row.get("value") is None for row in self.rows):
            return None
        made = [row | {"value": base64.b64decode(row["value"])} for row in self.rows]
        return frame_of(spark, pa.Table.from_pylist(made, schema=_SCHEMA))

    def among(self, records: DataFrame) -> DataFrame:
        """Them among all records that Kafka's source gives once more."""
        numbers = [row["partition"] << _PARTITION_BITS | row["offset"] for row in self.rows]
        partition = F.col("partition").cast("bigint")
        number = F.shiftleft(partition, _PARTITION_BITS).bitwiseOR(F.col("offset"))
        return records.where(number.isin(numbers))
