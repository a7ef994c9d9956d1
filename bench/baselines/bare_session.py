"""A bare Spark session that counts rows per minute, for the time it takes to start.

    python -m bench.baselines.bare_session FOLDER

It has the settings and the class archive of headrace, and reads `rows` in the folder, Parquet
files, with Spark's own source. It writes the counts to `hits.db` beside it, in one transaction.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.runtime.session import SparkSettings, configuration, spark_class_path
from headrace.servers.java.archive import options

NAME = "a bare Spark session"

SCHEMA = "url string, user string, at timestamp"


def main(folder: Path) -> None:
    quoted = " ".join(f'"{option}"' for option in options("spark", spark_class_path()))
    builder = SparkSession.builder.master(f"local[{os.cpu_count()}]")
    for name, value in configuration(SparkSettings()).items():
        builder = builder.config(name, value)
    spark = builder.config("spark.driver.extraJavaOptions", quoted).getOrCreate()
    db = sqlite3.connect(folder / "hits.db", isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA synchronous = FULL")
    db.execute("CREATE TABLE hits (url, window_start, hits, PRIMARY KEY (url, window_start))")

    def store(batch: DataFrame, _: int) -> None:
        columns = [column.to_pylist() for column in batch.toArrow().columns]
        db.execute("BEGIN IMMEDIATE")
        db.executemany("INSERT OR REPLACE INTO hits VALUES (?, ?, ?)", zip(*columns, strict=True))
        db.execute("COMMIT")

    counted = (
        spark.readStream.schema(SCHEMA)
        .parquet(str(folder / "rows"))
        .withWatermark("at", "310 seconds")
        .groupBy(F.window("at", "1 minute"), "url")
        .agg(F.count("*").alias("hits"), F.approx_count_distinct("user", 0.02))
        .select("url", F.unix_micros("window.start"), "hits")
        .writeStream.outputMode("update")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .foreachBatch(store)
        .trigger(availableNow=True)
        .start()
    )
    counted.awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
