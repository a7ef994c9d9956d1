"""The data frames of a step: its stream from the log, its results, and its late rows."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.clock import FIRST_MOMENT
from headrace.log.event_time import time_column
from headrace.pipeline.row_steps import needed_columns
from headrace.pipeline.stream import Source
from headrace.plan import metadata
from headrace.plan.arrow_frames import frame_of
from headrace.plan.batch import Payload, Sink
from headrace.plan.compile import Compiler, Load
from headrace.plan.counters import Counters, Observations
from headrace.plan.plans import Job, StreamPlan, with_metadata
from headrace.plan.position import Positions
from headrace.plan.side_output import SideOutput
from headrace.plan.source_options import FORMAT, BatchLimits, SourceOptions
from headrace.plan.uncounted import Uncounted
from headrace.plan.watermark import driven, milliseconds, watermarked


def frames_of(job: Job, plan: StreamPlan) -> Frames:
    """The frames of a step. On Kafka, tasks write rows that are only published themselves."""
    if job.log.judges_rows and plan.delivers and len(job.step.outputs) == 1:
        # Kafka's client is optional, so it is imported only for a log on Kafka.
        module = importlib.import_module("headrace.runtime.kafka.delivery")
        made: Frames = module.DeliveryFrames(job, plan)
        return made
    return Frames(job, plan)


class Frames:
    """Makes the frames of a step from its operator's plan."""

    def __init__(self, job: Job, plan: StreamPlan) -> None:
        self._job = job
        self._spark = job.spark
        self._log = job.log
        self._step = job.step
        self.plan = plan
        self._needed = needed_columns(job.step.computed)
        self._ordered = job.ordered
        self._shift = 0
        self._by_frontier = any(
            job.log.topic(topic).topic.settings.frontier != "events" for topic in job.step.topics
        )
        """True if the watermark follows the log's frontier, not the newest event time."""
        self._by_partition = job.log.judges_rows
        """True if partitions have frontiers of their own, and the lowest drives the watermark."""
        self.beside = SideOutput(job.checkpoint.with_name(f"{job.checkpoint.name}.beside"))
        """The uncounted rows that tasks find."""

    @property
    def settings(self) -> Mapping[str, str]:
        """Spark settings of this query alone."""
        return self.plan.settings

    def stream(
        self, sink: Sink, batch_limits: BatchLimits, shift: int
    ) -> tuple[DataFrame, Counters]:
        """The step as a stream from its sink's first position, and the counters in it.

        `shift` is added to event times for Spark's watermark.
        """
        self._shift = shift
        loaded: dict[str, DataFrame] = {}

        def load(source: Source) -> DataFrame:
            # A topic that is read twice is one source, so it has one position.
            name = source.topic.name
            if name not in loaded:
                loaded[name] = self._load_stream(source, sink, batch_limits)
            return loaded[name]

        counters = Counters()
        return self._streamed(self._compiler(load, counters)), counters

    def bounded(self, start: Positions, end: Positions) -> tuple[DataFrame, Observations]:
        """The step over the rows between two positions, not as a stream; and its counters."""
        loaded: dict[str, DataFrame] = {}

        def load(source: Source) -> DataFrame:
            name = source.topic.name
            if name not in loaded:
                options = replace(self._options(source), start=start[name], until=end[name].commit)
                rows = self._spark.read.format(FORMAT).options(**options.options()).load()
                loaded[name] = self._job.placed(rows, source)
            return loaded[name]

        counters = Observations()
        return self._streamed(self._compiler(load, counters)), counters

    def results(self, batch: DataFrame, sink: Sink, commit: int) -> Payload:
        """Compute the results of a batch of the stream, which ends with a commit."""
        return self.plan.results(batch, sink)

    def clear(self) -> None:
        """Remove the staged results of a batch that was not stored."""
        shutil.rmtree(self._job.staging, ignore_errors=True)

    def late(self, uncounted: Mapping[str, Uncounted]) -> pa.Table | None:
        """The late rows among the candidates; None if there are no candidates."""
        if not any(found.candidates for found in uncounted.values()):
            return None
        candidates = {
            topic: pa.Table.from_batches(found.candidates)
            for topic, found in uncounted.items()
            if found.candidates
        }
        late = self.plan.late_without_spark(candidates)
        if late is not None:
            return late

        def load(source: Source) -> DataFrame:
            found = uncounted[source.topic.name].candidates
            if not found:
                return self._job.empty(source)
            table = pa.Table.from_batches(found, with_metadata(source))
            return self._job.placed(frame_of(self._spark, table), source)

        made = self.plan.late(Compiler(load, self._ordered))
        return made.toArrow().cast(self.plan.shapes.late)

    def _compiler(self, load: Load, counters: Counters) -> Compiler:
        return Compiler(load, self._ordered, self.plan.clears_source, counters, shift=self._shift)

    def _streamed(self, compiler: Compiler) -> DataFrame:
        return self.plan.streamed(compiler)

    def _options(self, source: Source) -> SourceOptions:
        """The columns to read of a topic, and the late rows to leave out."""
        topic = source.topic.name
        needed, columns = self._needed[topic], None
        if needed is not None:
            wanted = {*needed, time_column(source.topic)}
            columns = tuple(name for name in source.columns if name in wanted)
        return SourceOptions(
            self._log.url,
            topic,
            columns,
            (*self._metadata(), *metadata.times_beside(source.topic)),
            clean=True,
            tasks=self._spark.sparkContext.defaultParallelism,
            closing=self.plan.closing if self.plan.clears_source else None,
            ticks=self.plan.ticks,
            settings=tuple(self._log.settings.items()),
        )

    def _load_stream(self, source: Source, sink: Sink, batch_limits: BatchLimits) -> DataFrame:
        topic = source.topic.name
        options = replace(
            self._options(source),
            start=sink.begun[topic],
            max_rows=batch_limits.max_rows,
            max_commits=batch_limits.max_commits,
            seam=sink.reached[topic].commit,
            until=sink.limit(topic),
            beside=str(self.beside.folder) if self._by_partition else "",
            step=self._step.name,
            late=self.plan.closing if self._by_partition else None,
        )
        rows = self._spark.readStream.format(FORMAT).options(**options.options()).load()
        rows = self._job.placed(rows, source)
        if self.plan.held is None:
            return rows  # Spark has no state to evict
        delay = milliseconds(self.plan.held)
        if not self._by_frontier and not self._by_partition:
            return watermarked(rows, F.unix_micros(metadata.TIME), delay, self._shift)
        # Before there is a frontier, it is below any event time, and Spark evicts nothing.
        frontier = metadata.LOWEST if self._by_partition else metadata.FRONTIER
        moment = F.greatest(F.col(frontier), F.lit(FIRST_MOMENT))
        return driven(rows, moment, delay, self._shift).drop(metadata.LOWEST)

    def _metadata(self) -> tuple[str, ...]:
        """The metadata columns that the plan needs."""
        lowest = (metadata.LOWEST,) if self._by_partition and self.plan.held is not None else ()
        return (*self._of_rows(), *lowest)

    def _of_rows(self) -> tuple[str, ...]:
        if self._ordered:
            return tuple(metadata.TYPES)
        closing = self.plan.closing if self.plan.clears_source else None
        if closing is not None and closing.windows == 1 and not self._by_frontier:
            return (metadata.COMMIT,)
        return (metadata.COMMIT, metadata.FRONTIER)
