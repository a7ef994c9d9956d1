"""What does not count and yet is told: dead letters and late rows, as records of their own topics.

A query has one output, and Spark reads a topic once for it. So such a row is made into the record
that is to be written as soon as it is known for what it is, and that goes along beside the others,
past all that is done to them.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DecimalType

from headrace.engine.places import BESIDE

_WIRE = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "timeZone": "UTC",
}


def record(topic: str, value: Column, key: Column | None = None) -> Column:
    """A record as Spark's Kafka sink takes it."""
    return F.struct(
        F.lit(topic).alias("topic"),
        (F.lit(None) if key is None else key).cast("binary").alias("key"),
        value.cast("binary").alias("value"),
    )


def as_json(*columns: Column) -> Column:
    """Columns as the text that a topic has of a row."""
    return F.to_json(F.struct(*columns), _WIRE)


def told(rows: DataFrame, names: Sequence[str]) -> list[Column]:
    """These columns of a frame, as they are told in a text."""
    return [
        # A number in JSON may be read as a float, which money must not be.
        F.col(f"`{name}`").cast("string").alias(name)
        if isinstance(rows.schema[name].dataType, DecimalType)
        else F.col(f"`{name}`")
        for name in names
    ]


def written(rows: DataFrame, record: Column) -> DataFrame:
    """The records of rows: their own, or what they have become beside the others."""
    records = rows.select(F.coalesce(F.col(BESIDE), record).alias(BESIDE))
    return records.select(f"{BESIDE}.*")
