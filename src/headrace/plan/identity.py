"""Which row of the log a row is, as text that others can be told."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from headrace.plan import metadata


def row_place() -> Column:
    """The topic, partition and offset of a row, and which it is of those made of that record."""
    index = F.concat_ws(",", F.col(metadata.INDEX).cast("array<string>"))
    return F.concat_ws("/", metadata.TOPIC, metadata.PARTITION, metadata.OFFSET, index)
