"""Joins hand-written in PySpark, each in its best form.

Both read and write the embedded log with the source and sink of headrace, so that only the join
differs. They have no late rows, no waiting for the table and no accounting of rows.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

NAME = "PySpark by hand"


def streams(
    spark: SparkSession,
    log: str,
    left: str,
    right: str,
    out: str,
    folder: Path,
    *,
    after: timedelta,
    delay: timedelta,
    max_rows: int,
) -> StreamingQuery:
    """Spark's own join of two streams, with watermarks, so that its state expires."""
    wait, within = f"{delay.total_seconds()} seconds", f"INTERVAL {after.total_seconds()} SECONDS"
    shown = _stream(spark, log, left, max_rows).withWatermark("at", wait)
    clicks = (
        _stream(spark, log, right, max_rows)
        .select(F.col("ad").alias("click_ad"), F.col("at").alias("click_at"), "price")
        .withWatermark("click_at", wait)
    )
    match = F.expr(f"ad = click_ad AND click_at >= at AND click_at <= at + {within}")
    pairs = shown.join(clicks, match).drop("click_ad")
    known = pairs.withColumn("joined_at", F.greatest("at", "click_at"))
    return _start(known, log, out, folder)


def table(
    spark: SparkSession,
    log: str,
    stream: str,
    table: str,
    out: str,
    folder: Path,
    *,
    max_rows: int,
) -> StreamingQuery:
    """A join of a stream with the valid version of each customer, from a broadcast table.

    The table is read and its validity intervals are computed once, when the query starts, so it
    never changes afterwards.
    """
    versions = Window.partitionBy("customer").orderBy("since")
    known = (
        spark.read.format("headrace")
        .option("log", log)
        .option("topic", table)
        .load()
        .withColumn("until", F.coalesce(F.lead("since").over(versions), F.lit("9999-12-31")))
        .withColumnRenamed("customer", "known")
        .cache()
    )
    rows = _stream(spark, log, stream, max_rows)
    match = (
        (F.col("customer") == F.col("known"))
        & (F.col("at") >= F.col("since"))
        & (F.col("at") < F.col("until"))
    )
    found = rows.join(F.broadcast(known), match, "left").drop("known", "until", "since")
    return _start(found, log, out, folder)


def _stream(spark: SparkSession, log: str, topic: str, max_rows: int) -> DataFrame:
    return (
        spark.readStream.format("headrace")
        .option("log", log)
        .option("topic", topic)
        .option("max_rows", max_rows)
        .option("tasks", spark.sparkContext.defaultParallelism)
        .load()
    )


def _start(rows: DataFrame, log: str, out: str, folder: Path) -> StreamingQuery:
    return (
        rows.writeStream.format("headrace")
        .option("log", log)
        .option("topic", out)
        .option("checkpointLocation", str(folder))
        .outputMode("append")
        .trigger(availableNow=True)
        .start()
    )
