"""The data frames of a step whose topics are Kafka's."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.clock import micros
from headrace.engine import places
from headrace.engine.compile import Compiler, Load
from headrace.engine.counters import Counters
from headrace.engine.frames import Frames, Portions, Results
from headrace.engine.kafka.decode import Decoder
from headrace.engine.kafka.source import between, stream
from headrace.engine.position import Position
from headrace.engine.sink import Sink
from headrace.log import Topic
from headrace.streams.stream import Source

Range = tuple[Position, Position]


class KafkaFrames(Frames):
    """Makes the frames of a step. Rows have no commits, and Spark's watermark judges them."""

    @property
    def settings(self) -> Mapping[str, str]:
        """Spark is to go by one watermark, for what is too late and for what can be forgotten."""
        return {"spark.sql.streaming.statefulOperator.allowMultiple": "false"}

    def judged(self, batch: DataFrame, sink: Sink, revision: int, frontier: int | None) -> Results:
        """The results of a batch. Spark has no state of sessions, so it has judged none of them."""
        step = self._step.aggregation
        if self._sessions is not None and step is not None and frontier is not None:
            (after,) = step.window.ends(0)
            closed = F.unix_micros(places.TIME) + F.lit(after + micros(step.patience))
            batch = batch.where(closed > F.lit(frontier))
        return self.results(batch, sink, revision)

    def late_between(self, ranges: Mapping[str, Range], frontier: int) -> pa.Table:
        """The pairs that were too late by a frontier, or by the time of their own arrival."""
        step = self._step.aggregation
        assert step is not None
        assert self.late_schema is not None

        def load(source: Source) -> DataFrame:
            name = source.topic.name
            records = between(self._spark, self._log, name, *ranges[name])
            if records is None:
                return self._empty(source)
            decoder = Decoder.of(self._topic(name), source.columns)
            rows = decoder.placed(records, tuple(places.TYPES))
            rows = rows.withColumn(places.FRONTIER, self._met(F.lit(frontier)))
            return rows.withColumn(places.TOPIC, F.lit(name)) if self._ordered else rows

        return Compiler(load, self._ordered).late(step).toArrow().cast(self.late_schema)

    def misplaced(self, topic: str, start: Position, end: Position) -> pa.Table:
        """The records of a topic between two places that have no place in time."""
        records = between(self._spark, self._log, topic, start, end)
        assert records is not None
        decoder = Decoder.of(self._topic(topic), self._needed[topic])
        return decoder.misplaced(records).orderBy("partition", "offset").toArrow()

    def _met(self, frontier: Column) -> Column:
        return F.greatest(F.col(places.FRONTIER), frontier) if self._by_frontier else frontier

    def _compiler(self, load: Load, counters: Counters) -> Compiler:
        return Compiler(
            load, self._ordered, counters=counters, judged=self._by_frontier, numbered=False
        )

    def _load_stream(self, source: Source, sink: Sink, portions: Portions) -> DataFrame:
        name = source.topic.name
        tasks = self._spark.sparkContext.defaultParallelism
        records = stream(self._spark, self._log, name, sink.reached[name], portions, tasks)
        rows = Decoder.of(self._topic(name), self._needed[name]).placed(records, self._places())
        if self._ordered:
            rows = rows.withColumn(places.TOPIC, F.lit(name))
        step = self._step.aggregation
        # A step that Spark keeps nothing of has a watermark too: it is where times are looked at.
        patience = f"{micros(step.patience) if step is not None else 0} microseconds"
        if not self._by_frontier:
            return rows.withWatermark(places.TIME, patience)
        met = F.timestamp_micros(places.FRONTIER)
        return rows.withColumn(places.MET, met).withWatermark(places.MET, patience)

    def _places(self) -> tuple[str, ...]:
        if self._ordered:
            return tuple(places.TYPES)
        if self._sessions is not None:
            return (places.COMMIT,)
        return (places.FRONTIER,) if self._by_frontier else ()

    def _topic(self, name: str) -> Topic:
        return self._log.topic(name).topic
