"""The data frames of a step that reads Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.clock import FIRST_MOMENT
from headrace.log.kafka.log import KafkaLog
from headrace.pipeline.stream import Source
from headrace.plan import metadata
from headrace.plan.batch import Payload, Rows, Sink
from headrace.plan.compile import Compiler, Load
from headrace.plan.counters import Counters
from headrace.plan.kafka.decode import Decoder
from headrace.plan.kafka.frontiers import LOWEST, Frontiers, Met, Reached
from headrace.plan.kafka.source import between, stream
from headrace.plan.plans import Job, StreamPlan
from headrace.plan.position import Position
from headrace.plan.python_operators import map_in_arrow
from headrace.plan.source_options import BatchLimits
from headrace.plan.watermark import milliseconds, watermarked
from headrace.runtime.frames import Frames
from headrace.runtime.kafka.oldest import Oldest, watched
from headrace.runtime.kafka.outlet import DELIVERED, Outlet

Range = tuple[Position, Position]

_NO_DELAY = "0 seconds"


class KafkaFrames(Frames):
    """Makes the frames of a step. A row meets the frontier of its own partition."""

    plan: StreamPlan

    def __init__(self, job: Job, plan: StreamPlan) -> None:
        super().__init__(job, plan)
        self._met = Met(job.spark.sparkContext)

    def begin(self, frontiers: Frontiers) -> None:
        """Begin a batch at these frontiers."""
        self._met.begin(frontiers)

    @property
    def reached(self) -> Reached:
        """The highest frontiers that rows of the batch met."""
        return self._met.reached

    @property
    def settings(self) -> Mapping[str, str]:
        """Use one watermark for late rows and for state eviction."""
        return {"spark.sql.streaming.statefulOperator.allowMultiple": "false"}

    def judged(self, batch: DataFrame, sink: Sink, revision: int) -> Payload:
        """The results of a batch, in which no row is too late."""
        if self.delivers:
            return self.deliver(batch, sink.generation, revision)
        return self.plan.results(batch, sink, revision)

    def late_between(
        self, ranges: Mapping[str, Range], highest: int, oldest: Mapping[str, Oldest]
    ) -> pa.Table:
        """The late pairs of row and window.

        Only the `oldest` rows of each topic are checked, if they are known. `highest` is the
        highest frontier of any partition.
        """
        assert self.plan.closing is not None
        suspect = self.plan.closing.all_open_from(highest)

        def load(source: Source) -> DataFrame:
            name = source.topic.name
            if name not in oldest:
                return self._job.empty(source)
            rows = self._suspects(source, ranges[name], oldest[name].before(suspect))
            return rows.withColumn(metadata.TOPIC, F.lit(name)) if self._ordered else rows

        return self.plan.late(Compiler(load, self._ordered)).toArrow().cast(self.plan.shapes.late)

    def _suspects(self, source: Source, range: Range, only: Oldest | None) -> DataFrame:
        """The rows of a topic that may be late: `only` these, or all if it is None."""
        topic = source.topic.name
        decoder, places = self._decoder(topic), tuple(metadata.TYPES)
        if only is not None and (kept := only.records(self._spark)) is not None:
            return only.met(self._spark, decoder.placed(kept, places, source.columns))
        records = between(self._spark, self._log, topic, *range, decoder.reading)
        assert records is not None
        rows = self._judged(decoder.placed(records, places, source.columns), topic).drop(LOWEST)
        return rows if only is None else only.among(rows)

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

    def _judged(self, rows: DataFrame, topic: str) -> DataFrame:
        """Add the frontier that each row met in its partition, by event time or by arrival."""
        time = F.unix_micros(metadata.TIME)
        moment = F.col(metadata.FRONTIER) if self._by_frontier else time
        return self._met.add(rows, topic, moment)

    def _compiler(self, load: Load, counters: Counters) -> Compiler:
        return Compiler(
            load,
            self._ordered,
            counters=counters,
            numbered=False,
            shift=self._shift,
        )

    def _load_stream(self, source: Source, sink: Sink, batch_limits: BatchLimits) -> DataFrame:
        name = source.topic.name
        decoder, start = self._decoder(name), sink.reached[name]
        # A task that writes results, or compares rows with those before them, reads all of a
        # partition.
        records = stream(self._spark, self._log, name, start, batch_limits, None, decoder.reading)
        rows = decoder.placed(records, self._metadata(), raw=not self.delivers)
        if self.delivers:
            # It has a watermark only because Spark counts times there.
            rows = rows.withColumn(metadata.TOPIC, F.lit(name))
            return watermarked(rows, F.unix_micros(metadata.TIME), _NO_DELAY, self._shift)
        rows = watched(self._judged(rows, name), name)
        if self._ordered:
            rows = rows.withColumn(metadata.TOPIC, F.lit(name))
        # Not the frontier of the row's own partition: others may be behind it.
        lowest = F.greatest(LOWEST, F.lit(FIRST_MOMENT))
        delay = milliseconds(self.plan.held or timedelta(0))
        return watermarked(rows, lowest, delay, self._shift).drop(LOWEST)

    def _metadata(self) -> tuple[str, ...]:
        if self._ordered:
            return tuple(metadata.TYPES)
        found = (metadata.PARTITION, metadata.OFFSET)
        if self.delivers:
            return found
        commit = () if self.plan.held is not None else (metadata.COMMIT,)
        return (*commit, metadata.FRONTIER, *found) if self._by_frontier else (*commit, *found)

    def _decoder(self, name: str) -> Decoder:
        return Decoder.of(self._log.topic(name).topic, self._needed[name], self._log)
