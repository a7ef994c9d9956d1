"""The oldest rows of a batch. Late rows are among them, so only these are decoded again.

Spark keeps their records as an observed metric. If more rows may be late than it keeps, or a record
is too large to be kept, Kafka is read again.
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
"""The number of rows kept for each topic and batch."""

KEPT_BYTES = 4_096
"""Larger records are not kept."""

_RECORD, _ROWS, _FRONTIER = "_record", "rows", "frontier"
_PARTITION_BITS = 40
"""Partition and offset are one number: the offset has the lower bits."""

_SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("value", pa.binary()),
    ]
)
"""The columns of a record, as in Spark's Kafka source."""


def metric_of(topic: str) -> str:
    """The name of the observed metric of a topic."""
    return f"oldest-{topic}"


def watched(rows: DataFrame, topic: str) -> DataFrame:
    """Rows of which Spark observes the oldest, as records."""
    value = F.when(F.octet_length(VALUE) <= F.lit(KEPT_BYTES), F.col(VALUE))
    # A column: as part of the metric it would be computed for every row, kept or not.
    record = F.struct(
        F.col(metadata.PARTITION).alias("partition"),
        F.col(metadata.OFFSET).alias("offset"),
        F.unix_micros(STAMP).alias("timestamp"),
        F.unix_micros(metadata.TIME).alias("time"),
        F.col(metadata.FRONTIER).alias(_FRONTIER),
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
    """The oldest rows of a batch. No other row is older than the last of them."""

    rows: tuple[dict[str, Any], ...]

    @staticmethod
    def from_json(text: str) -> Oldest:
        """Read the observed metric."""
        return Oldest(tuple(json.loads(text)[_ROWS] or ()))

    def before(self, moment: int) -> Oldest | None:
        """The rows before a moment, each once; None if there may be more.

        If a worker was lost, Spark may have observed the same record twice.
        """
        found = [row for row in self.rows if row["time"] < moment]
        once = {(row["partition"], row["offset"]): row for row in found}
        return Oldest(tuple(once.values())) if len(found) < KEPT else None

    def records(self, spark: SparkSession) -> DataFrame | None:
        """Their records, as in Spark's Kafka source; None if Kafka has to be read again."""
        if any(row.get("value") is None for row in self.rows):
            return None
        made = [row | {"value": base64.b64decode(row["value"])} for row in self.rows]
        return frame_of(spark, pa.Table.from_pylist(made, schema=_SCHEMA))

    def met(self, spark: SparkSession, rows: DataFrame) -> DataFrame:
        """Add to the rows of these records the frontier that each met."""
        places = {metadata.PARTITION: "partition", metadata.OFFSET: "offset"}
        names = {**places, metadata.FRONTIER: _FRONTIER}
        made = [{name: row[key] for name, key in names.items()} for row in self.rows]
        schema = pa.schema([(name, metadata.TYPES[name]) for name in names])
        met = frame_of(spark, pa.Table.from_pylist(made, schema=schema))
        return rows.drop(metadata.FRONTIER).join(met, list(places))

    def among(self, rows: DataFrame) -> DataFrame:
        """Filter rows that were read again."""
        numbers = [row["partition"] << _PARTITION_BITS | row["offset"] for row in self.rows]
        partition = F.col(metadata.PARTITION).cast("bigint")
        number = F.shiftleft(partition, _PARTITION_BITS).bitwiseOR(F.col(metadata.OFFSET))
        return rows.where(number.isin(numbers))
