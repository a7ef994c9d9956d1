"""Counts by window from Kafka, hand-written in PySpark.

Spark's own source and watermark, `from_json` or `from_avro`, and an upsert into SQLite in one
transaction per batch. It ignores late rows and rows that do not decode.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.streaming.query import StreamingQuery

from bench.baselines.hand_written import TABLE, UPSERT

NAME = "PySpark by hand"


def start(
    spark: SparkSession,
    servers: str,
    topic: str,
    folder: Path,
    *,
    schema: str,
    avro: str | None,
    size: timedelta,
    delay: timedelta,
    batch_rows: int,
    options: Mapping[str, str],
) -> StreamingQuery:
    """Count the rows of a topic by url and window into `hits.db` in a new folder."""
    folder.mkdir(parents=True)
    db = sqlite3.connect(folder / "hits.db", isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute(TABLE)

    def upsert(batch: DataFrame, _: int) -> None:
        columns = [column.to_pylist() for column in batch.toArrow().columns]
        db.execute("BEGIN IMMEDIATE")
        db.executemany(UPSERT, zip(*columns, strict=True))
        db.execute("COMMIT")

    row: Column = F.from_json(F.col("value").cast("string"), schema)
    if avro is not None:
        row = from_avro("value", avro)
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(batch_rows))
        .options(**options)
        .load()
        .select(row.alias("row"))
        .select("row.*")
        .withWatermark("at", _sql(delay))
        .groupBy(F.window("at", _sql(size)), "url")
        .count()
        .select("url", F.unix_micros("window.start"), F.unix_micros("window.end"), "count")
        .writeStream.outputMode("update")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .foreachBatch(upsert)
        .trigger(availableNow=True)
        .start()
    )


def _sql(span: timedelta) -> str:
    return f"{span.total_seconds()} seconds"


def relay(
    spark: SparkSession,
    servers: str,
    topic: str,
    into: str,
    folder: Path,
    *,
    schema: str,
    batch_rows: int,
) -> StreamingQuery:
    """Copy a topic to another with Spark's own sink, at least once."""
    row = F.from_json(F.col("value").cast("string"), schema)
    made = F.to_json(F.struct(F.lower("row.url").alias("url"), "row.user", "row.at"))
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(batch_rows))
        .load()
        .select(row.alias("row"))
        .select(made.alias("value"))
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", into)
        .option("checkpointLocation", str(folder))
        .trigger(availableNow=True)
        .start()
    )
