"""A step as one query in real time: from its topics to records of the topics that it writes."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.engine import places
from headrace.engine.compile import Compiler
from headrace.engine.handing import arrow_schema
from headrace.engine.realtime.alerts import Alerting
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
        self.late_schema: pa.Schema | None = None
        """The columns of late rows, of a step that can have any."""
        (topic,) = step.outputs
        rows = self._rows()
        self.schema = arrow_schema(rows.select(*(F.col(f"`{n}`") for n in step.stream.columns)))
        """The columns of the results."""
        self.records = written(rows, record(topic, as_json(*told(rows, step.stream.columns))))
        """All that the step writes: topic, key and value."""

    def _rows(self) -> DataFrame:
        """The results, and what is beside them."""
        stream = self._step.stream
        compiler = Compiler(
            self._load, _told_apart(self._step), counters=self.counting.counters, beside=True
        )
        if not isinstance(stream, Alerts):
            return self.counting.judged(compiler.rows(stream), F.lit(False))
        known, late = stream.known, next(iter(self._step.late), None)
        table = None
        if known is not None:
            table = table_now(self._spark, self._connection, known.table)
        made = Alerting(stream, compiler, self.counting, late, table)
        self.late_schema = arrow_schema(made.late_rows)
        return made.rows

    def _load(self, source: Source) -> DataFrame:
        records = records_of(self._spark, self._connection, source.topic.name)
        rows = rows_of(self.counting.read(records), source, self._step, self._settings.hold)
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
