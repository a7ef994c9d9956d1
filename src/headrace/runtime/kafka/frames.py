"""The data frames of a step that reads Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.clock import micros
from headrace.log.kafka.log import KafkaLog
from headrace.pipeline.stream import Source
from headrace.plan import metadata
from headrace.plan.batch import Payload, Rows, Sink
from headrace.plan.compile import Compiler, Load
from headrace.plan.counters import Counters
from headrace.plan.kafka.decode import Decoder
from headrace.plan.kafka.source import between, stream
from headrace.plan.plans import StreamPlan
from headrace.plan.position import Position
from headrace.plan.python_operators import map_in_arrow
from headrace.plan.source_options import BatchLimits
from headrace.plan.watermark import watermarked
from headrace.runtime.frames import Frames
from headrace.runtime.kafka.oldest import Oldest, watched
from headrace.runtime.kafka.outlet import DELIVERED, Outlet

Range = tuple[Position, Position]


class KafkaFrames(Frames):
    """Makes the frames of a step. Rows have no commits, and Spark's watermark drops late ones."""

    plan: StreamPlan

    @property
    def merges_in_store(self) -> bool:
        """True if the store keeps the state, as that of sessions, and Spark drops no late rows."""
        return self.plan.closing is not None and self.plan.held is None

    @property
    def settings(self) -> Mapping[str, str]:
        """Use one watermark for late rows and for state eviction."""
        return {"spark.sql.streaming.statefulOperator.allowMultiple": "false"}

    def judged(self, batch: DataFrame, sink: Sink, revision: int, frontier: int | None) -> Payload:
        """The results of a batch, without the late rows that Spark has not dropped."""
        if self.delivers:
            return self.deliver(batch, sink.generation, revision)
        closing = self.plan.closing
        if self.merges_in_store and closing is not None and frontier is not None:
            batch = batch.where(F.unix_micros(metadata.TIME) >= closing.all_open_from(frontier))
        return self.plan.results(batch, sink, revision)

    def late_between(
        self,
        ranges: Mapping[str, Range],
        frontier: int,
        oldest: Mapping[str, Oldest],
        arrived: int,
    ) -> pa.Table:
        """The pairs of row and window that are late by a frontier, or by their own arrival.

        Only the `oldest` rows of each topic are checked, if they are known. `arrived` is the
        newest time of the batch.
        """
        assert self.plan.closing is not None
        highest = max(frontier, arrived) if self._by_frontier else frontier
        suspect = self.plan.closing.all_open_from(highest)

        def load(source: Source) -> DataFrame:
            name = source.topic.name
            if name not in oldest:
                return self._job.empty(source)
            decoder = self._decoder(name)
            records = self._suspects(decoder, ranges[name], oldest[name].before(suspect))
            rows = decoder.placed(records, tuple(metadata.TYPES), source.columns)
            rows = rows.withColumn(metadata.FRONTIER, self._met(F.lit(frontier)))
            return rows.withColumn(metadata.TOPIC, F.lit(name)) if self._ordered else rows

        return self.plan.late(Compiler(load, self._ordered)).toArrow().cast(self.plan.shapes.late)

    def _suspects(self, decoder: Decoder, range: Range, only: Oldest | None) -> DataFrame:
        """The records of a topic that may be late: `only` these, or all if it is None."""
        if only is not None and (kept := only.records(self._spark)) is not None:
            return kept
        topic = decoder.topic.name
        records = between(self._spark, self._log, topic, *range, decoder.reading)
        assert records is not None
        return records if only is None else only.among(records)

    def misplaced(self, topic: str, start: Position, end: Position) -> pa.Table:
        """The records of a topic between two positions that have no valid event time."""
        decoder = self._decoder(topic)
        records = between(self._spark, self._log, topic, start, end, decoder.reading)
        assert records is not None
        return decoder.misplaced(records).orderBy("partition", "offset").toArrow()

    @property
    def delivers(self) -> bool:
        """True if the tasks that read rows write the results to their topic themselves."""
        return self.plan.closing is None

    def deliver(self, batch: DataFrame, generation: str, commit: int) -> Rows:
        """Write the rows of a batch to their topic, and count them."""
        assert isinstance(self._log, KafkaLog)
        (topic,) = self._step.outputs
        writer = f"{self._step.app}.{generation}.{self._step.name}"
        outlet = Outlet(self._log.address, topic, writer, commit)
        counts = map_in_arrow(batch, outlet, DELIVERED).toArrow()
        rows = pc.sum(counts.column("rows")).as_py() or 0
        return Rows(self.plan.shapes.rows.empty_table(), rows)

    def _streamed(self, compiler: Compiler) -> DataFrame:
        if compiler.numbered or not self.delivers:
            return super()._streamed(compiler)
        made = self._step.computed
        columns = (*made.columns, metadata.TOPIC, metadata.PARTITION, metadata.OFFSET)
        return compiler.rows(made).select(*(F.col(f"`{n}`") for n in columns))

    def _met(self, frontier: Column) -> Column:
        return F.greatest(F.col(metadata.FRONTIER), frontier) if self._by_frontier else frontier

    def _compiler(self, load: Load, counters: Counters) -> Compiler:
        return Compiler(
            load,
            self._ordered,
            counters=counters,
            judged=self._by_frontier,
            numbered=False,
            shift=self._shift,
        )

    def _load_stream(self, source: Source, sink: Sink, batch_limits: BatchLimits) -> DataFrame:
        name = source.topic.name
        # A task that writes results has to read a whole partition.
        tasks = None if self.delivers else self._spark.sparkContext.defaultParallelism
        decoder, start = self._decoder(name), sink.reached[name]
        records = stream(self._spark, self._log, name, start, batch_limits, tasks, decoder.reading)
        rows = decoder.placed(records, self._metadata(), raw=not self.delivers)
        if not self.delivers:
            rows = watched(rows, name)
        if self._ordered or self.delivers:
            rows = rows.withColumn(metadata.TOPIC, F.lit(name))
        # A step without state has a watermark too: Spark counts times there.
        patience = f"{micros(self.plan.held or timedelta(0))} microseconds"
        moment = F.col(metadata.FRONTIER) if self._by_frontier else F.unix_micros(metadata.TIME)
        return watermarked(rows, moment, patience, self._shift)

    def _metadata(self) -> tuple[str, ...]:
        if self._ordered:
            return tuple(metadata.TYPES)
        found = (metadata.PARTITION, metadata.OFFSET)
        if self.delivers:
            return found
        if self.merges_in_store:
            return (metadata.COMMIT, *found)
        return (metadata.FRONTIER, *found) if self._by_frontier else found

    def _decoder(self, name: str) -> Decoder:
        return Decoder.of(self._log.topic(name).topic, self._needed[name], self._log)
