"""The current state of a table, for lookups while a batch runs."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.log import Log
from headrace.pipeline.tables import Table
from headrace.plan import metadata
from headrace.plan.arrow_frames import frame_of
from headrace.plan.position import beginning, position_at
from headrace.plan.range_read import RangeRead
from headrace.plan.table_changes import ORDER, TOMBSTONE, change_rows


class LatestTable:
    """The newest version of each key. `frame` brings it up to date."""

    def __init__(self, spark: SparkSession, log: Log, table: Table) -> None:
        self._spark = spark
        self._log = log
        self._table = table
        self._range = RangeRead(spark, log)
        nothing = change_rows(table, self._range.nothing(metadata.DELETED))
        self._schema = nothing.drop(TOMBSTONE).schema
        self._versions: pa.Table | None = None
        self._upto: int | None = None
        self._frame = self._shown(nothing.drop(TOMBSTONE))

    def frame(self) -> DataFrame:
        """The columns of the table, with a row for each key."""
        topic = self._table.topic
        after = beginning(self._log, topic).commit if self._upto is None else self._upto
        if self._log.commits(topic, after, 1):
            head = self._log.head()
            self._add(after, head)
            self._upto = head
        return self._frame

    def _add(self, after: int, upto: int) -> None:
        """Add the changes between two commits."""
        topic = self._table.topic
        start, end = (position_at(self._log, topic, commit) for commit in (after, upto))
        compiler = self._range.compiler({topic: start}, {topic: end}, metadata.DELETED)
        found = change_rows(self._table, compiler).drop(TOMBSTONE)
        if self._versions is not None:
            found = found.unionByName(frame_of(self._spark, self._versions, self._schema))
        keys = [F.col(f"`{name}`") for name in self._table.key]
        newest = F.max_by(F.struct(*(F.col(f"`{n}`") for n in found.columns)), F.struct(*ORDER))
        every = found.groupBy(*keys).agg(newest.alias("_newest")).select("_newest.*")
        self._versions = every.toArrow()
        self._frame = self._shown(frame_of(self._spark, self._versions, self._schema))

    def _shown(self, versions: DataFrame) -> DataFrame:
        there = versions.where(~F.col(metadata.DELETED))
        return there.select(*(F.col(f"`{name}`") for name in self._table.columns))
