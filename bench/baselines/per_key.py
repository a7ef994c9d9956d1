"""The same state in Spark's own `transformWithState`, which is called once per key.

It uses the session and the source of headrace, RocksDB, and Python rows, the fastest of PySpark's
three ways. It writes no output, so all of its time is state.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import (
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)
from pyspark.sql.types import LongType, StringType, StructType

from headrace.operators.stateful.spark import SETTINGS
from headrace.plan.python_operators import transform_with_state

NAME = "transformWithState, per key"

_STATE = StructType().add("total", LongType()).add("rows", LongType())
_OUTPUT = StructType().add("k", StringType()).add("total", LongType()).add("rows", LongType())


class Totals(StatefulProcessor):
    """The running total of each key."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("totals", _STATE)

    def handleInputRows(
        self, key: Any, rows: Iterator[Row], timerValues: TimerValues
    ) -> Iterator[Row]:
        total, count = self._state.get() or (0, 0)
        for row in rows:
            total, count = total + row["n"], count + 1
        self._state.update((total, count))
        yield Row(k=key[0], total=total, rows=count)

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


def start(
    spark: SparkSession, log: str, topic: str, folder: Path, *, max_rows: int, seen: list[int]
) -> StreamingQuery:
    """Keep totals by key until caught up. Appends the number of keys of each batch to `seen`."""
    rows = (
        spark.readStream.format("headrace")
        .option("log", log)
        .option("topic", topic)
        .option("columns", '["k", "n"]')
        .option("max_rows", max_rows)
        .option("tasks", spark.sparkContext.defaultParallelism)
        .load()
    )

    def note(batch: DataFrame, _: int) -> None:
        seen.append(batch.count())

    before = {name: str(spark.conf.get(name)) for name in SETTINGS}
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    try:
        return (
            transform_with_state(rows, "k", Totals(), _OUTPUT)
            .writeStream.outputMode("append")
            .option("checkpointLocation", str(folder / "checkpoint"))
            .foreachBatch(note)
            .trigger(availableNow=True)
            .start()
        )
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
