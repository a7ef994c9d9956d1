"""A table that is looked things up in: as it is when a batch begins, and the same until the next
one."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.pipeline.stream import Source, sources
from headrace.pipeline.tables import Table
from headrace.plan import metadata
from headrace.plan.compile import Compiler, column
from headrace.plan.kafka.decode import KEY, REASON, VALUE, Decoder
from headrace.runtime.realtime.reading import READING

_GONE, _VERSIONS, _NEWEST = "_gone", "_versions", "_newest"


def table_now(spark: SparkSession, connection: Mapping[str, str], table: Table) -> DataFrame:
    """The newest version of each key: by its time, of those after the last tombstone of the key."""
    (source,) = sources(table.input)
    reader = spark.read.format("kafka").options(**connection, **READING)
    return newest(reader.option("subscribe", source.topic.name).load(), table)


def newest(records: DataFrame, table: Table) -> DataFrame:
    """What the records of a table's topic come to, in one shuffle: rows wait for it."""

    def load(source: Source) -> DataFrame:
        rows = Decoder.of(source.topic).judged(records, tombstones=True)
        # A tombstone has no reason, and of a row that does not decode there is nothing to keep.
        return rows.where(F.coalesce(REASON, F.lit("")) == F.lit(""))

    (source,) = sources(table.input)
    rows = Compiler(load).rows(table.input)
    tombstone = F.col(VALUE).isNull()
    version = F.struct(
        metadata.TIME,
        metadata.PARTITION,
        metadata.OFFSET,
        *(F.col(f"`{name}`") for name in table.columns),
    )
    # A tombstone is of a key of the topic, and has no columns.
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
    found = found.select(*(F.col(f"{_NEWEST}.`{name}`") for name in table.columns))
    if table.deleted is not None:
        found = found.where(~F.coalesce(column(table.deleted, table.where), F.lit(False)))
    return found
