"""Sessions, sliding windows and rankings, hand-written in PySpark.

Sessions use Spark's own `session_window`, which emits final results only. Spark has no sliding
windows on streams, so each batch is a plain window function over its rows and the latest earlier
ones, which are kept in files: this is fast, but wrong after a crash between the two writes. The top
of each window is computed from the table of counts.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from bench.baselines import hand_written

Write = Callable[[sqlite3.Connection, list[Any]], None]


def session(
    spark: SparkSession,
    log: str,
    topic: str,
    max_rows: int,
    folder: Path,
    gap: timedelta,
    delay: timedelta,
) -> StreamingQuery:
    """Count the rows of each session of a url into `hits.db` in a new folder."""
    counted = (
        _rows(spark, log, topic, max_rows)
        .withWatermark("at", _sql(delay))
        .groupBy(F.session_window("at", _sql(gap)), "url")
        .count()
        .select(
            "url",
            F.unix_micros("session_window.start"),
            F.unix_micros("session_window.end"),
            "count",
        )
    )
    return _start(counted, "append", folder, _upsert)


def sliding(
    spark: SparkSession,
    log: str,
    topic: str,
    max_rows: int,
    folder: Path,
    size: timedelta,
    delay: timedelta,
) -> StreamingQuery:
    """Count for each row the rows of its url in the time before it.

    Rows that later batches may need are kept in a file.
    """
    span, kept = (_micros(size), _micros(size + delay))
    moment = F.unix_micros("at")
    window = Window.partitionBy("url").orderBy("moment").rangeBetween(-span, 0)
    tails: list[Path] = []

    def count(batch: DataFrame, number: int) -> DataFrame:
        rows = batch.select("url", moment.alias("moment"), F.lit(True).alias("new"))
        if tails:
            rows = rows.unionByName(spark.read.parquet(str(tails[-1])))
        rows = rows.persist()
        newest = rows.agg(F.max("moment")).collect()[0][0]
        tail = rows.where(F.col("moment") > newest - kept).withColumn("new", F.lit(False))
        tails.append(folder / f"tail-{number}")
        tail.write.parquet(str(tails[-1]))
        counted = rows.select(
            "url",
            F.col("moment") - F.lit(span),
            "moment",
            F.count(F.lit(1)).over(window).alias("hits"),
            F.max("new").over(window).alias("changed"),
        )
        return counted.where("changed").drop("changed").distinct()

    rows = _rows(spark, log, topic, max_rows)
    return _start(rows, "append", folder, _upsert, count)


def top(
    spark: SparkSession,
    log: str,
    topic: str,
    max_rows: int,
    folder: Path,
    size: timedelta,
    delay: timedelta,
    n: int,
) -> StreamingQuery:
    """Count by url and window, and keep the top `n` of each window in another table."""

    def write(db: sqlite3.Connection, rows: list[Any]) -> None:
        _upsert(db, rows)
        changed = ", ".join(str(start) for start in {row[1] for row in rows})
        db.execute(f"DELETE FROM top WHERE window_start IN ({changed})")
        db.execute(
            f"""
            INSERT INTO top SELECT * FROM (
                SELECT url, window_start, hits, row_number() OVER (
                    PARTITION BY window_start ORDER BY hits DESC, url
                ) AS rank FROM hits WHERE window_start IN ({changed})
            ) WHERE rank <= {n}
            """
        )

    counted = (
        _rows(spark, log, topic, max_rows)
        .withWatermark("at", _sql(delay))
        .groupBy(F.window("at", _sql(size)), "url")
        .count()
        .select("url", F.unix_micros("window.start"), F.unix_micros("window.end"), "count")
    )
    return _start(counted, "update", folder, write)


def _rows(spark: SparkSession, log: str, topic: str, max_rows: int) -> DataFrame:
    return (
        spark.readStream.format("headrace")
        .option("log", log)
        .option("topic", topic)
        .option("columns", '["url", "at"]')
        .option("max_rows", max_rows)
        .option("tasks", spark.sparkContext.defaultParallelism)
        .load()
    )


def _start(
    streamed: DataFrame,
    mode: str,
    folder: Path,
    write: Write,
    count: Callable[[DataFrame, int], DataFrame] = lambda batch, _: batch,
) -> StreamingQuery:
    folder.mkdir(parents=True)
    db = sqlite3.connect(folder / "hits.db", isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute(hand_written.TABLE)
    db.execute("CREATE INDEX starts ON hits (window_start)")
    db.execute("CREATE TABLE top (url TEXT, window_start INTEGER, hits INTEGER, rank INTEGER)")

    def store(batch: DataFrame, number: int) -> None:
        columns = [column.to_pylist() for column in count(batch, number).toArrow().columns]
        rows = list(zip(*columns, strict=True))
        db.execute("BEGIN IMMEDIATE")
        if rows:
            write(db, rows)
        db.execute("COMMIT")

    return (
        streamed.writeStream.outputMode(mode)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .foreachBatch(store)
        .start()
    )


def _upsert(db: sqlite3.Connection, rows: list[Any]) -> None:
    db.executemany(hand_written.UPSERT, rows)


def _sql(span: timedelta) -> str:
    return f"{span.total_seconds()} seconds"


def _micros(span: timedelta) -> int:
    return span // timedelta(microseconds=1)
