"""Conversion between Arrow tables and Spark DataFrames."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType


def frame_of(spark: SparkSession, table: pa.Table, schema: StructType | None = None) -> DataFrame:
    """Convert a table to a DataFrame, with Spark's types for it or those of a schema.

    Spark takes an empty chunk for the end of a table and silently drops the rest, so it gets the
    table in one chunk.
    """
    whole = table.combine_chunks()
    return spark.createDataFrame(whole) if schema is None else spark.createDataFrame(whole, schema)


def arrow_schema(frame: DataFrame) -> pa.Schema:
    """A DataFrame's columns as a nullable Arrow schema: a changelog may have no row before."""
    schema = to_arrow_schema(frame.schema, timezone="UTC")
    return pa.schema([field.with_nullable(True) for field in schema])
