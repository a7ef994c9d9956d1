"""A stream of events in Spark's own columns. Python runs only for `es.upcast(function)`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from headrace.eventsourcing.opening import Opening
from headrace.eventsourcing.reading import SLOW, EventReading
from headrace.operators.events.declare import ENVELOPE, STORED, Events
from headrace.plan import metadata
from headrace.plan.compile import checked
from headrace.plan.counters import Counters, counted
from headrace.plan.python_operators import map_in_arrow

_DEAD = "_dead"


def rows(stream: Events, given: DataFrame, counters: Counters | None) -> DataFrame:
    """The chosen events with their fields, without those that cannot be read."""
    reading = stream.reading
    if stream.opening is not None:
        given = map_in_arrow(given, _Opened(stream.opening), given.schema)
    if reading.is_slow:
        kinds = StructType([*given.schema.fields]).add(SLOW, StringType())
        given = map_in_arrow(given, _Upcasting(reading), kinds)
    found = given
    for step in reading.parses:
        found = found.withColumns({name: F.expr(sql) for name, sql in step.items()})
    found = found.withColumn(_DEAD, F.expr(reading.dead))
    # A filter does not move below counters. If it did, Spark would parse twice.
    dead = F.when(F.col(_DEAD), F.col(metadata.COMMIT))
    found = counted(found, counters, "dead_from", F.min(dead))
    found = counted(found, counters, "dead_upto", F.max(dead))
    wanted = ~F.col(_DEAD)
    if len(reading.types) < len(reading.known):
        other = wanted & F.expr(reading.other)
        found = counted(found, counters, "filtered", F.count_if(other))
        wanted = wanted & ~F.expr(reading.other)
    read = dict(reading.columns)
    fields = [F.expr(sql).alias(stream.prefix + name) for name, sql in read.items()]
    there = [F.col(name) for name in ENVELOPE if name in found.columns]
    added = {SLOW, _DEAD, *(name for step in reading.parses for name in step)}
    beside = [F.col(name) for name in found.columns if name.startswith("_") and name not in added]
    return checked(stream.where, found.where(wanted).select, *there, *fields, *beside)


@dataclass(frozen=True)
class _Opened:
    """Opens personal fields, a batch at a time."""

    opening: Opening

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return map(self.opening.batch, batches)


@dataclass(frozen=True)
class _Upcasting:
    """Adds what functions of the user's make of older events, a batch at a time."""

    reading: EventReading

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            stored = (batch.column(name).to_pylist() for name in STORED)
            made = pa.array(self.reading.upcasted(*stored), pa.string())
            yield pa.RecordBatch.from_arrays(
                [*batch.columns, made], names=[*batch.schema.names, SLOW]
            )
