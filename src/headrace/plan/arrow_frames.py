"""Between Arrow's tables and Spark's frames."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType


def frame_of(spark: SparkSession, table: pa.Table, schema: StructType | None = None) -> DataFrame:
    """A table as a frame, with all of its rows, in Spark's types for it or in those given.

    Spark takes a table one chunk after the other, and an empty chunk for the end of it: what comes
    after would be lost without a word. So it gets a table in one piece.
    """
    whole = table.combine_chunks()
    return spark.createDataFrame(whole) if schema is None else spark.createDataFrame(whole, schema)


def arrow_schema(frame: DataFrame) -> pa.Schema:
    """A frame's columns in Arrow's types. Spark knows that a count is never null; a topic of
    changes cannot, for there may be no row before."""
    schema = to_arrow_schema(frame.schema, timezone="UTC")
    return pa.schema([field.with_nullable(True) for field in schema])
