"""A step as one real-time query: from its topics to records of the topics that it writes."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.log import Topic
from headrace.operators.alerts.declare import Alerts
from headrace.pipeline.row_steps import Explode
from headrace.pipeline.stream import Source, Stream
from headrace.plan import metadata
from headrace.plan.arrow_frames import arrow_schema
from headrace.plan.compile import Compiler
from headrace.plan.steps import Step
from headrace.plan.watermark import watermarked
from headrace.runtime.realtime.alerts import AlertFrames
from headrace.runtime.realtime.counting import Counting
from headrace.runtime.realtime.outlets import Outlet, written
from headrace.runtime.realtime.reading import records_of, rows_of, table_now
from headrace.runtime.realtime.settings import RealTime


class Plan:
    """The Spark plan of a step.

    `connection` are the options of Spark's Kafka source, `there` the topics of the log, and `shift`
    is added to event times for Spark's watermark.
    """

    def __init__(
        self,
        spark: SparkSession,
        connection: Mapping[str, str],
        step: Step,
        settings: RealTime,
        there: Mapping[str, Topic],
        shift: int,
    ) -> None:
        self._spark = spark
        self._connection = connection
        self._step = step
        self._settings = settings
        self._there = there
        self._shift = shift
        self.counting = Counting()
        self.late_schema: pa.Schema | None = None
        """The columns of late rows, if the step can have any."""
        (topic,) = step.outputs
        rows = self._rows()
        results = [F.col(f"`{name}`") for name in step.stream.columns]
        self.schema = arrow_schema(rows.select(*results))
        """The columns of the results."""
        origin = F.col(metadata.PARTITION) if metadata.PARTITION in rows.columns else None
        self.records = written(rows, self._outlet(topic).record(self.schema, results, origin))
        """The records that the step writes: topic, key, value and partition."""

    def _rows(self) -> DataFrame:
        """The results, and the rows for side outputs."""
        stream = self._step.stream
        compiler = Compiler(
            self._load,
            _needs_topic(self._step),
            counters=self.counting.counters,
            beside=True,
            shift=self._shift,
        )
        if not isinstance(stream, Alerts):
            return self.counting.judged(compiler.rows(stream), F.lit(False))
        known, late = stream.known, next(map(self._outlet, self._step.late), None)
        table = None
        if known is not None:
            table = table_now(self._spark, self._connection, known.table)
        made = AlertFrames(stream, compiler, self.counting, late, table)
        self.late_schema = made.late_schema
        return made.rows

    def _load(self, source: Source) -> DataFrame:
        records = records_of(self._spark, self._connection, source.topic.name)
        dead = self._outlet(self._step.dead_letters)
        rows = rows_of(self.counting.read(records), source, self._step, self._settings.hold, dead)
        if _needs_topic(self._step):
            rows = rows.withColumn(metadata.TOPIC, F.lit(source.topic.name))
        if isinstance(self._step.stream, Alerts):
            held = self._settings.held_for(self._step.stream.delay)
            rows = watermarked(rows, F.unix_micros(metadata.MET), held, self._shift)
        return rows

    def _outlet(self, topic: str) -> Outlet:
        return Outlet(self._step, topic, self._there)


def _needs_topic(step: Step) -> bool:
    """True if partition and offset alone do not identify a row."""
    return len(step.topics) > 1 or _explodes(step.stream)


def _explodes(stream: Stream) -> bool:
    return isinstance(stream, Explode) or any(map(_explodes, stream.upstream))
