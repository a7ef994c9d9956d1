"""A table that is looked things up in: as it is when a batch begins, and the same until the next
one."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.engine import places
from headrace.engine.compile import Compiler, column
from headrace.engine.kafka.decode import KEY, REASON, VALUE, Decoder
from headrace.engine.realtime.reading import READING
from headrace.streams.stream import Source, sources
from headrace.streams.tables import Table

_GONE, _VERSION, _VERSIONS = "_gone", "_version", "_versions"


def table_now(spark: SparkSession, connection: Mapping[str, str], table: Table) -> DataFrame:
    """The newest version of each key: by its time, and after the last tombstone of the key."""
    (source,) = sources(table.input)
    reader = spark.read.format("kafka").options(**connection, **READING)
    records = reader.option("subscribe", source.topic.name).load()
    tombstones = records.where("value IS NULL").select(F.col("key").alias(KEY), "offset")
    gone = tombstones.groupBy(KEY).agg(F.max("offset").alias(_GONE))

    def load(source: Source) -> DataFrame:
        rows = Decoder.of(source.topic).judged(records).where(F.col(REASON) == F.lit(""))
        return rows.drop(VALUE, REASON)

    rows = Compiler(load).rows(table.input)
    own = table.key == (source.topic.key,)
    if own:
        rows = rows.join(gone, KEY, "left")
        rows = rows.where(F.col(_GONE).isNull() | (F.col(places.OFFSET) > F.col(_GONE)))
    order = F.struct(places.TIME, places.PARTITION, places.OFFSET)
    version = F.struct(*(F.col(f"`{name}`") for name in table.columns))
    newest = rows.groupBy(*(F.col(f"`{key}`") for key in table.key)).agg(
        F.max_by(version, order).alias(_VERSION)
    )
    found = newest.select(f"{_VERSION}.*")
    if table.deleted is not None:
        found = found.where(~F.coalesce(column(table.deleted, table.where), F.lit(False)))
    return found
