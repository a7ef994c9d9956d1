"""The same jobs hand-written in PySpark, without an engine in between.

It uses the session and the source of headrace, Spark's own watermark, and an upsert into SQLite in
one transaction per batch. It has no late rows, no changelog and no accounting of rows.
"""

from __future__ import annotations

import sqlite3
from datetime import timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

NAME = "PySpark by hand"

TABLE = """
    CREATE TABLE hits (url TEXT, window_start INTEGER, window_end INTEGER, hits INTEGER,
        PRIMARY KEY (url, window_start))
"""
UPSERT = """
    INSERT INTO hits VALUES (?, ?, ?, ?)
    ON CONFLICT (url, window_start) DO UPDATE SET hits = excluded.hits
"""


def start(
    spark: SparkSession,
    log: str,
    topic: str,
    folder: Path,
    *,
    size: timedelta,
    every: timedelta,
    delay: timedelta,
    until_caught_up: bool,
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

    writer = (
        spark.readStream.format("headrace")
        .option("log", log)
        .option("topic", topic)
        .option("columns", '["url", "at"]')
        .option("tasks", spark.sparkContext.defaultParallelism)
        .load()
        .withWatermark("at", _sql(delay))
        .groupBy(F.window("at", _sql(size), _sql(every)), "url")
        .count()
        .select("url", F.unix_micros("window.start"), F.unix_micros("window.end"), "count")
        .writeStream.outputMode("update")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .foreachBatch(upsert)
    )
    if until_caught_up:
        writer = writer.trigger(availableNow=True)
    return writer.start()


def counted(folder: Path) -> int:
    """The number of rows that the table counts."""
    db = sqlite3.connect(f"file:{folder / 'hits.db'}?mode=ro", uri=True)
    (total,) = db.execute("SELECT coalesce(sum(hits), 0) FROM hits").fetchone()
    db.close()
    return int(total)


def _sql(span: timedelta) -> str:
    return f"{span.total_seconds()} seconds"
