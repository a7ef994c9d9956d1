"""Decoding of Kafka records with Spark's own functions, and the reasons for dead letters.

A row is valid if its value decodes, has an event time in the years 1 to 9999, and is not ahead of
the clock by more than the topic's skew. The clock is the record's own timestamp: on topics that
headrace creates, the time of the append.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import cached_property

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.clock import FIRST_MOMENT, LAST_MOMENT, micros
from headrace.log import Log, Topic
from headrace.log.dead_letter import (
    AHEAD,
    LIKELY_MILLIS,
    MILLIS,
    NO_TIME,
    OUTSIDE,
    bytes_text,
    dead_letters,
    is_unreadable,
)
from headrace.log.event_time import time_column, time_inputs
from headrace.log.kafka.rows_bytes import own_bytes
from headrace.plan import metadata
from headrace.plan.kafka.event_time import with_time
from headrace.plan.kafka.formats import ROW as _ROW
from headrace.plan.kafka.formats import Format, format_of
from headrace.plan.kafka.schemas import Schemas, schemas_of
from headrace.plan.steps import Step
from headrace.plan.uncounted import Uncounted

REASON = "_reason"
TEXT = "_text"
ROW = "row"
KEY, VALUE = "_key", "_value"
"""A record's own bytes."""

_AT = "_at"
_KEPT = (metadata.FRONTIER, metadata.PARTITION, metadata.OFFSET)


@dataclass(frozen=True)
class Decoder:
    """Decodes a topic. Columns that no step reads are not checked."""

    topic: Topic
    columns: tuple[str, ...]
    schemas: Schemas = field(default_factory=dict)
    """The schemas of its records, if these name them."""

    @staticmethod
    def of(topic: Topic, needed: Collection[str] | None = None, log: Log | None = None) -> Decoder:
        """A decoder of the columns that are needed, and of the event time.

        `log` has the schemas of records that name theirs.
        """
        made = Decoder(topic, (), schemas_of(log, topic))
        return replace(made, columns=_columns(topic, needed))

    @property
    def reading(self) -> dict[str, str]:
        """Options of Spark's Kafka source that the format needs."""
        return {"includeHeaders": "true"} if self.format.by_headers else {}

    def misplaced(self, records: DataFrame) -> DataFrame:
        """The records that are not valid, each with the reason; tombstones have none."""
        rows = self._decoded(records, "value", "partition", "offset", "timestamp")
        kept = ("value", "partition", "offset", "timestamp")
        found = rows.select(*kept, self.format.text().alias(TEXT), self._reason.alias(REASON))
        return found.where(F.coalesce(REASON, F.lit("tombstone")) != F.lit(""))

    def judged(self, records: DataFrame, *, tombstones: bool = False) -> DataFrame:
        """All records as rows and as bytes, each with the reason if it is not valid, else ''.

        Tombstones are left out by default, and have no reason.
        """
        there = records if tombstones else records.where(F.col("value").isNotNull())
        rows = self._decoded(there, "key", "value", "partition", "offset", "timestamp")
        return rows.select(
            *(self._column(name).alias(name) for name in self.columns),
            self._time.alias(metadata.TIME),
            *(_place(name).alias(name) for name in _KEPT),
            F.col("key").alias(KEY),
            F.col("value").alias(VALUE),
            self.format.text().alias(TEXT),
            self._reason.alias(REASON),
        )

    @property
    def _reason(self) -> Column:
        return (
            F.when(F.col("value").isNull(), F.lit(None))
            .when(~self.format.decodes(), self.format.fault())
            .when(self._time.isNull(), F.lit(NO_TIME))
            .when(self._ahead, self._misread(AHEAD))
            .when(self._outside, self._misread(OUTSIDE))
            .otherwise(F.lit(""))
        )

    def _misread(self, reason: str) -> Column:
        """As `dead_letter.misread`. An expression has not read a number as seconds by itself."""
        if self._computed:
            return F.lit(reason)
        seconds = F.unix_seconds(self._time)
        cause = F.concat(F.lit(f"{reason}: "), seconds.cast("string"), F.lit(MILLIS))
        return F.when(seconds.between(*LIKELY_MILLIS), cause).otherwise(F.lit(reason))

    @cached_property
    def format(self) -> Format:
        """The format of the records."""
        assert self.topic.schema is not None
        columns = pa.schema([self.topic.schema.field(name) for name in self.columns])
        return format_of(self.topic, columns, self.schemas)

    def _decoded(self, records: DataFrame, *kept: str) -> DataFrame:
        inputs = (*self.format.inputs, *(["headers"] if self.format.by_headers else []))
        kept = (*kept, *(name for name in inputs if name not in kept))
        rows = self.format.checked(records).select(*kept, self.format.row().alias(_ROW))
        return with_time(rows, self.topic, _ROW, _AT) if self._computed else rows

    def _column(self, name: str) -> Column:
        if name == self.topic.event_time:
            return self._time
        return F.col(f"{_ROW}.`{name}`")

    @property
    def _computed(self) -> bool:
        """True if the event time is an expression."""
        return time_column(self.topic) is None

    @property
    def _by_arrival(self) -> bool:
        return self.topic.settings.missing_time == "arrival"

    @property
    def _time(self) -> Column:
        time = F.col(_AT if self._computed else f"{_ROW}.`{self.topic.event_time}`")
        if self._by_arrival:
            return F.coalesce(time, F.col("timestamp"))
        return time

    @property
    def _outside(self) -> Column:
        """True for a time outside of the type's range: Spark reads the year 20000."""
        inside = F.unix_micros(self._time).between(FIRST_MOMENT, LAST_MOMENT)
        return F.coalesce(~inside, F.lit(False))

    @property
    def _ahead(self) -> Column:
        skew = self.topic.settings.skew
        if skew is None:
            return F.lit(False)
        bound = F.unix_micros("timestamp") + F.lit(micros(skew))
        return F.coalesce(F.unix_micros(self._time) > bound, F.lit(False))


def _columns(topic: Topic, needed: Collection[str] | None) -> tuple[str, ...]:
    assert topic.schema is not None
    if needed is None:
        return tuple(topic.schema.names)
    wanted = {*needed, *time_inputs(topic)}
    if topic.settings.format == "bytes":
        wanted.add(own_bytes(topic.schema).name)  # it shows if the value is text
    return tuple(name for name in topic.schema.names if name in wanted)


def _place(name: str) -> Column:
    """A metadata column of a Kafka record. By `arrival`, a row meets its own timestamp."""
    match name:
        case metadata.COMMIT:
            return F.lit(0).cast("bigint")
        case metadata.FRONTIER:
            return F.unix_micros("timestamp")
        case metadata.PARTITION:
            return F.col("partition")
        case metadata.OFFSET:
            return F.col("offset")
        case _:
            raise ValueError(name)


def letters(step: Step, topic: str, commit: int, records: pa.Table) -> Uncounted:
    """The letters of records that were left out. Those without a reason are tombstones."""
    dead = records.filter(records.column(REASON).is_valid())
    if not dead.num_rows:
        return Uncounted(tombstones=records.num_rows)
    told = zip(*(dead.column(name).to_pylist() for name in (REASON, "value", TEXT)), strict=True)
    found = dead_letters(
        dead.num_rows,
        step=step.name,
        topic=topic,
        partition=dead.column("partition"),
        offset=dead.column("offset"),
        commit_number=commit,
        appended=dead.column("timestamp"),
        reason=dead.column(REASON),
        row=[
            bytes_text(value, readable=not is_unreadable(reason))
            if is_unreadable(reason) or text is None
            else text
            for reason, value, text in told
        ],
    )
    return Uncounted(dead=[found], tombstones=records.num_rows - dead.num_rows)
