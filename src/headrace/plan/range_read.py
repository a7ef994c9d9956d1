"""The rows between two positions in the log: as DataFrames, and those that are not counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from headrace.log import Commit, Log, Topic
from headrace.log.event_time import time_column
from headrace.pipeline.stream import Source
from headrace.plan import metadata
from headrace.plan.arrow_frames import frame_of
from headrace.plan.compile import Compiler, placed
from headrace.plan.counters import Counters
from headrace.plan.plans import with_metadata
from headrace.plan.position import Position, Positions, rows_in
from headrace.plan.source_options import FORMAT, SourceOptions
from headrace.plan.waiting import Waiting

PLACES = (metadata.COMMIT, metadata.FRONTIER, metadata.PARTITION, metadata.OFFSET)


@dataclass(frozen=True)
class RangeRead:
    """Reads topics from one position to another."""

    spark: SparkSession
    log: Log

    def compiler(
        self,
        start: Positions,
        end: Positions,
        *extra: str,
        beside: tuple[str, ...] = PLACES,
        ordered: bool = False,
        waiting: Waiting | None = None,
        counters: Counters | None = None,
        needed: Mapping[str, set[str] | None] | None = None,
    ) -> Compiler:
        """Return a compiler for the rows between two positions, with their metadata.

        `beside` and `extra` are metadata columns, each of which costs as much as any column.
        `ordered` adds those that order rows. `needed` are the columns to read of each topic.
        """

        def load(source: Source) -> DataFrame:
            topic = source.topic.name
            wish = SourceOptions(
                self.log.url,
                topic,
                _columns(source, None if needed is None else needed[topic]),
                (*beside, *extra, *metadata.times_beside(source.topic)),
                clean=True,
                start=start[topic],
                tasks=self.spark.sparkContext.defaultParallelism,
                until=end[topic].commit,
                waiting=waiting,
                settings=tuple(self.log.settings.items()),
            )
            rows = self.spark.read.format(FORMAT).options(**wish.options()).load()
            return placed(rows, source, ordered=ordered)

        return Compiler(load, ordered, counters=counters)

    def nothing(self, *extra: str, ordered: bool = False) -> Compiler:
        """Return a compiler for no rows, to learn the columns of streams."""

        def load(source: Source) -> DataFrame:
            empty = with_metadata(source, *PLACES, *extra).empty_table()
            return placed(frame_of(self.spark, empty), source, ordered=ordered)

        return Compiler(load, ordered)

    def compacted(self, topic: Topic, start: Position, end: Position) -> int:
        """The number of rows of a topic that compaction removed."""
        if not topic.settings.compacts:
            return 0
        rows = self.log.read(
            topic.name,
            start=Commit(start.commit),
            stop=Commit(end.commit),
            columns=[topic.key] if topic.key is not None else None,
            judged=True,
        )
        return rows_in(self.log, topic.name, start, end) - sum(map(len, rows))

    def rows(self, topic: Topic, start: Position, end: Position) -> int:
        """The number of rows that compaction left of a topic."""
        return rows_in(self.log, topic.name, start, end) - self.compacted(topic, start, end)


def _columns(source: Source, needed: set[str] | None) -> tuple[str, ...] | None:
    """The columns to read of a topic; None means all."""
    if needed is None:
        return None
    return tuple(name for name in source.columns if name in {*needed, time_column(source.topic)})
