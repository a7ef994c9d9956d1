"""What does not count and yet is told: dead letters and late rows, as records of their own topics.

A query has one output, and Spark reads a topic once for it. So such a row is made into the record
that is to be written as soon as it is known for what it is, and that goes along beside the others,
past all that is done to them.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.plan.metadata import BESIDE

_WIRE = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "timeZone": "UTC",
}


def as_json(*columns: Column) -> Column:
    """Columns as the text that a topic has of a row."""
    return F.to_json(F.struct(*columns), _WIRE)


def written(rows: DataFrame, record: Column) -> DataFrame:
    """The records of rows: their own, or what they have become beside the others."""
    records = rows.select(F.coalesce(F.col(BESIDE), record).alias(BESIDE))
    return records.select(f"{BESIDE}.*")
