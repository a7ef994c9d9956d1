"""The topics and lookup tables that a real-time query reads."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.clock import micros
from headrace.log import Log, Topic
from headrace.log.dead_letter import DEAD_LETTER, UNREADABLE
from headrace.pipeline.stream import Source, sources
from headrace.pipeline.tables import Table
from headrace.plan import metadata
from headrace.plan.compile import Compiler, column
from headrace.plan.kafka.decode import KEY, REASON, TEXT, VALUE, Decoder
from headrace.plan.steps import Step
from headrace.runtime.realtime.outlets import Outlet, as_json

READING = {
    # Skip aborted transactions, and fail if retention has removed unread records.
    "kafka.isolation.level": "read_committed",
    "failOnDataLoss": "true",
    "startingOffsets": "earliest",
}

_GONE, _VERSIONS, _NEWEST = "_gone", "_versions", "_newest"


def records_of(spark: SparkSession, connection: Mapping[str, str], decoder: Decoder) -> DataFrame:
    """The stream of a topic's records, as bytes."""
    reader = spark.readStream.format("kafka").options(**connection, **READING, **decoder.reading)
    return reader.option("subscribe", decoder.topic.name).load()


def rows_of(
    decoder: Decoder, records: DataFrame, step: Step, hold: timedelta, dead: Outlet
) -> DataFrame:
    """The rows of a topic. Rows that cannot be counted become dead letters for `dead`.

    The frontier of a row is the time at which the broker appended it, which does not depend on the
    reader. For a row that was not read within `hold` it is later, since the state that the row
    needs is evicted.
    """
    rows = decoder.judged(records)
    appended = F.timestamp_micros(metadata.FRONTIER)
    remembered = F.unix_micros(now()) - F.lit(micros(hold))
    return rows.withColumns(
        {
            metadata.BESIDE: F.when(F.col(REASON) != F.lit(""), _letter(decoder.topic, step, dead)),
            metadata.APPENDED: appended,
            # The broker's clock may be ahead of ours, but Spark's watermark must not be.
            metadata.MET: F.least(appended, now()),
            metadata.FRONTIER: F.greatest(metadata.FRONTIER, remembered),
        }
    ).drop(REASON, TEXT, KEY, VALUE)


def now() -> Column:
    """The time at which the batch began, the same for all of its rows."""
    return F.current_timestamp()


def _letter(topic: Topic, step: Step, dead: Outlet) -> Column:
    """A dead letter: the position of a record, the reason, and its text."""
    text = F.col(VALUE).cast("string")
    unread = F.when(F.is_valid_utf8(VALUE), as_json(text.alias("value"))).otherwise(
        as_json(F.lower(F.hex(VALUE)).alias("bytes"))
    )
    row = F.when(F.col(REASON).startswith(UNREADABLE), unread).otherwise(F.coalesce(TEXT, text))
    letter = {
        "step": F.lit(step.name),
        "topic": F.lit(topic.name),
        "partition": F.col(metadata.PARTITION),
        "offset": F.col(metadata.OFFSET),
        "appended": F.timestamp_micros(metadata.FRONTIER),
        "reason": F.col(REASON),
        "row": row,
    }
    schema = pa.schema([DEAD_LETTER.field(name) for name in letter])
    return dead.record(schema, list(letter.values()))


def table_now(
    spark: SparkSession, log: Log, connection: Mapping[str, str], table: Table
) -> DataFrame:
    """The newest version by event time of each key, after its last tombstone.

    It is read when a batch begins, and stays the same for the batch.
    """
    (source,) = sources(table.input)
    options = Decoder.of(source.topic, log=log).reading
    reader = spark.read.format("kafka").options(**connection, **READING, **options)
    return newest(reader.option("subscribe", source.topic.name).load(), table, log)


def newest(records: DataFrame, table: Table, log: Log | None = None) -> DataFrame:
    """The table that records make, in one shuffle, since rows wait for it."""

    def load(source: Source) -> DataFrame:
        rows = Decoder.of(source.topic, log=log).judged(records, tombstones=True)
        # A tombstone has no reason; rows that do not decode have one, and are dropped.
        return rows.where(F.coalesce(REASON, F.lit("")) == F.lit(""))

    (source,) = sources(table.input)
    rows = Compiler(load).rows(table.input)
    tombstone = F.col(VALUE).isNull()
    version = F.struct(
        metadata.TIME,
        metadata.PARTITION,
        metadata.OFFSET,
        *(F.col(f"`{name}`") for name in table.input.columns),
    )
    # A tombstone has the topic's key and no columns.
    own = table.key == (source.topic.key,)
    keys = [F.col(KEY)] if own else [F.col(f"`{key}`") for key in table.key]
    found = (
        (rows if own else rows.where(~tombstone))
        .groupBy(*keys)
        .agg(
            F.max(F.when(tombstone, F.col(metadata.OFFSET))).alias(_GONE),
            F.collect_list(F.when(~tombstone, version)).alias(_VERSIONS),
        )
    )
    after = F.expr(f"filter({_VERSIONS}, v -> {_GONE} IS NULL OR v.{metadata.OFFSET} > {_GONE})")
    found = found.select(F.array_max(after).alias(_NEWEST)).where(F.col(_NEWEST).isNotNull())
    found = found.select(f"{_NEWEST}.*")
    if table.deleted is not None:
        found = found.where(~F.coalesce(column(table.deleted, table.where), F.lit(False)))
    return found.select(*(F.col(f"`{name}`") for name in table.columns))
