"""A step as one query in real time: from its topics to records of the topics that it writes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.engine import places
from headrace.engine.compile import Compiler
from headrace.engine.realtime.alerts import alert_records
from headrace.engine.realtime.beside import as_json, record, told, written
from headrace.engine.realtime.counting import Counting
from headrace.engine.realtime.reading import records_of, rows_of
from headrace.engine.realtime.settings import RealTime
from headrace.engine.realtime.tables import table_now
from headrace.engine.steps import Step
from headrace.streams.alerts import Alerts
from headrace.streams.stream import Explode, Source, Stream


class Plan:
    """What a step comes to in Spark. `connection` are the options of Spark's Kafka source."""

    def __init__(
        self, spark: SparkSession, connection: Mapping[str, str], step: Step, settings: RealTime
    ) -> None:
        self._spark = spark
        self._connection = connection
        self._step = step
        self._settings = settings
        self.counting = Counting()

    @cached_property
    def records(self) -> DataFrame:
        """All that the step writes: topic, key and value."""
        stream, (topic,) = self._step.stream, self._step.outputs
        compiler = Compiler(
            self._load, _told_apart(self._step), counters=self.counting.counters, beside=True
        )
        if isinstance(stream, Alerts):
            known = stream.known
            table = known and table_now(self._spark, self._connection, known.table)
            return alert_records(
                stream, compiler, self.counting, topic, self._step.late, table
            )
        rows = self.counting.judged(compiler.rows(stream), F.lit(False))
        return written(rows, record(topic, as_json(*told(rows, stream.columns))))

    def _load(self, source: Source) -> DataFrame:
        records = records_of(self._spark, self._connection, source.topic.name)
        rows = rows_of(self.counting.read(records), source, self._step, self._settings.memory)
        if _told_apart(self._step):
            rows = rows.withColumn(places.TOPIC, F.lit(source.topic.name))
        if isinstance(self._step.stream, Alerts):
            rows = rows.withWatermark(places.MET, self._settings.held_for(self._step.stream.delay))
        return rows


def _told_apart(step: Step) -> bool:
    """Whether partition and offset are not enough to tell a row from all others."""
    return len(step.topics) > 1 or _explodes(step.stream)


def _explodes(stream: Stream) -> bool:
    return isinstance(stream, Explode) or any(map(_explodes, stream.upstream))
