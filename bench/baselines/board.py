"""A hand-written leaderboard in PySpark: add up, sort all players, write the first.

It uses the session and the source of headrace, and one SQLite transaction per batch. It publishes
no changes, and counts a batch twice if a crash repeats it.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

NAME = "PySpark by hand, everybody sorted"

TABLES = """
    CREATE TABLE totals (player TEXT PRIMARY KEY, score INTEGER);
    CREATE TABLE board (rank INTEGER PRIMARY KEY, player TEXT, score INTEGER);
"""
ADD = """
    INSERT INTO totals VALUES (?, ?)
    ON CONFLICT (player) DO UPDATE SET score = score + excluded.score
"""
RANK = """
    INSERT INTO board
    SELECT row_number() OVER (ORDER BY score DESC, player), player, score
    FROM totals ORDER BY score DESC, player LIMIT ?
"""


def start(spark: SparkSession, log: str, topic: str, folder: Path, n: int) -> StreamingQuery:
    """Keep the top n of a topic's players in `board.db` in a new folder."""
    folder.mkdir(parents=True)
    db = sqlite3.connect(folder / "board.db", isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.executescript(TABLES)

    def upsert(batch: DataFrame, _: int) -> None:
        totals = batch.groupBy("player").agg(F.sum("won")).toArrow()
        db.execute("BEGIN IMMEDIATE")
        db.executemany(ADD, zip(*(c.to_pylist() for c in totals.columns), strict=True))
        db.execute("DELETE FROM board")
        db.execute(RANK, (n,))
        db.execute("COMMIT")

    return (
        spark.readStream.format("headrace")
        .option("log", log)
        .option("topic", topic)
        .option("columns", '["player", "won"]')
        .option("tasks", spark.sparkContext.defaultParallelism)
        .load()
        .writeStream.option("checkpointLocation", str(folder / "checkpoint"))
        .foreachBatch(upsert)
        .start()
    )


def board(folder: Path) -> list[tuple[str, int]]:
    """The players on the board and their points, by rank."""
    db = sqlite3.connect(f"file:{folder / 'board.db'}?mode=ro", uri=True)
    rows = db.execute("SELECT player, score FROM board ORDER BY rank").fetchall()
    db.close()
    return rows
