"""A step as one real-time query: from its topics to records of the topics that it writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.log import Log, Topic
from headrace.operators.alerts.declare import APPENDED, RECENT, Alerts, Rule
from headrace.operators.alerts.spark import flagged, held
from headrace.pipeline.row_steps import Explode
from headrace.pipeline.stream import Source, contains
from headrace.pipeline.where import Where
from headrace.plan import metadata
from headrace.plan.arrow_frames import arrow_schema
from headrace.plan.compile import Compiler, column
from headrace.plan.kafka.decode import Decoder
from headrace.plan.late_rows import late_columns, late_rows, too_late
from headrace.plan.steps import Step
from headrace.plan.watermark import HELD, watermarked
from headrace.runtime.realtime.counting import Counting
from headrace.runtime.realtime.outlets import Outlet, written
from headrace.runtime.realtime.reading import now, records_of, rows_of, table_now
from headrace.runtime.realtime.settings import RealTime


class Plan:
    """The Spark plan of a step.

    `connection` are the options of Spark's Kafka source, `there` the topics of the log, and `shift`
    is added to event times for Spark's watermark.
    """

    def __init__(
        self,
        spark: SparkSession,
        log: Log,
        connection: Mapping[str, str],
        step: Step,
        settings: RealTime,
        there: Mapping[str, Topic],
        shift: int,
    ) -> None:
        self._spark = spark
        self._log = log
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
            table = table_now(self._spark, self._log, self._connection, known.table)
        made = AlertFrames(stream, compiler, self.counting, late, table)
        self.late_schema = made.late_schema
        return made.rows

    def _load(self, source: Source) -> DataFrame:
        decoder = Decoder.of(source.topic, log=self._log)
        records = records_of(self._spark, self._connection, decoder)
        dead = self._outlet(self._step.dead_letters)
        rows = rows_of(decoder, self.counting.read(records), self._step, self._settings.hold, dead)
        if _needs_topic(self._step):
            rows = rows.withColumn(metadata.TOPIC, F.lit(source.topic.name))
        if self._step.stream.has_spark_state:
            held = self._settings.held_for(self._step.delay)
            rows = watermarked(rows, F.unix_micros(metadata.MET), held, self._shift)
        return rows

    def _outlet(self, topic: str) -> Outlet:
        return Outlet(self._step, topic, self._there)


def _needs_topic(step: Step) -> bool:
    """True if partition and offset alone do not identify a row."""
    return len(step.topics) > 1 or contains(step.stream, Explode)


_SIDE = "_which"
"""The identity of a row for a side output; null for an event. State has a column of this name."""

_ARRIVED = "_arrived"
"""Arrival index within its pane."""

_PASSING = "_passing"
"""The rule that emits rows for side outputs."""


class AlertFrames:
    """The frames of alerts: each event is checked as soon as it is in its pane.

    Spark merges an event into the state of its pane and emits the new state, so the event is the
    last of the array. Records of side outputs take the same way, each in a pane of its own, and a
    rule of their own emits them. `late` is the side output of late events.
    """

    def __init__(
        self,
        step: Alerts,
        compiler: Compiler,
        counting: Counting,
        late: Outlet | None,
        table: DataFrame | None,
    ) -> None:
        self._step = step
        self._shift = compiler.shift
        rows = counting.judged(compiler.rows(step.input), too_late(step.delay))
        self.late_schema = arrow_schema(late_rows(rows, step.input.columns, step.delay))
        """The columns of late events."""
        self.rows = self._alerts(_apart(self._set_late_aside(rows, late)), table)
        """The alerts, and the rows for side outputs."""

    def _set_late_aside(self, rows: DataFrame, outlet: Outlet | None) -> DataFrame:
        """Turn late events into rows for their side output, or drop them without one."""
        step = self._step
        is_late = F.col(metadata.BESIDE).isNull() & too_late(step.delay)
        if outlet is None:
            return rows.where(~is_late)
        own = [F.col(f"`{name}`") for name in step.input.columns]
        late = outlet.record(self.late_schema, [*own, *late_columns(step.delay)])
        uncounted = F.when(is_late, late).otherwise(F.col(metadata.BESIDE))
        return rows.withColumn(metadata.BESIDE, uncounted)

    def _alerts(self, rows: DataFrame, table: DataFrame | None) -> DataFrame:
        step = self._step
        passing = (_PASSING, Rule(f"{_SIDE} IS NOT NULL", RECENT, None))
        each = replace(step, by=(*step.by, _SIDE), rules=(*_rules_of_events(step), passing))
        in_order = F.transform(HELD, lambda row, place: row.withField(_ARRIVED, place))
        alerts = flagged(
            held(rows, each, self._shift).withColumn(HELD, in_order),
            each,
            since=F.size(HELD) - F.lit(2),
            arrival=_ARRIVED,
            table=table,
            carried=(metadata.BESIDE, metadata.APPENDED),
        )
        return alerts.withColumnRenamed(metadata.APPENDED, APPENDED)


def _apart(rows: DataFrame) -> DataFrame:
    """Give each row for a side output its own key, and a time at which no state is evicted."""
    uncounted = F.col(metadata.BESIDE).isNotNull()
    where = (metadata.TOPIC, metadata.PARTITION, metadata.OFFSET, metadata.INDEX)
    place = [F.col(name).cast("string") for name in where if name in rows.columns]
    moment = now() + F.expr("INTERVAL 1 HOUR")
    return rows.withColumns(
        {
            _SIDE: F.when(uncounted, F.concat_ws("/", *place)),
            metadata.TIME: F.when(uncounted, moment).otherwise(F.col(metadata.TIME)),
        }
    )


def _rules_of_events(step: Alerts) -> Iterator[tuple[str, Rule]]:
    """The rules, restricted to events."""
    for name, rule in step.rules:
        yield name, replace(rule, condition=partial(_of_event, rule, step.where))


def _of_event(rule: Rule, where: Where) -> Column:
    return F.col(_SIDE).isNull() & column(rule.condition, where)
