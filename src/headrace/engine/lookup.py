"""What a table says of rows, looked up by Spark.

The versions of a key are an array, in order, and Spark's own functions find the one that was valid,
so that each row is looked up once whatever the history.
"""

from __future__ import annotations

from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.engine import places
from headrace.engine.changes import AMENDS, FROM, ORDER
from headrace.engine.compile import checked
from headrace.engine.counters import Counters
from headrace.engine.handing import frame_of
from headrace.engine.identity import row_place
from headrace.streams.tables import REVISION, ROW, Enriched

_BROADCAST = 64 << 20
"""Versions that take up no more are sent to every task; beyond that, rows are sent to theirs."""

MOMENT = "_moment"
"""The event time of a row that may be amended, in microseconds."""

FOUND = tuple(f"_found{name}" for name in ORDER)
"""Which version was found for it."""

_VERSIONS, _FOUND, _VALUE = "_versions", "_found", "_value"

FEW = 10_000
"""So few versions are brought together each time."""

_SHARE = 4
"""New versions are looked at by themselves until they are one in so many."""


class Lookup:
    """Looks rows up in versions that only become more.

    To bring the versions of each key together costs as much as there are versions. So where they
    are many, Spark keeps them like that from one time to the next, and new ones are beside them
    until they are many as well.
    """

    def __init__(self, spark: SparkSession, enriched: Enriched) -> None:
        self._spark = spark
        self._enriched = enriched
        self._kept: DataFrame | None = None
        self._count = 0

    def found(
        self, rows: DataFrame, versions: pa.Table, counters: Counters | None = None
    ) -> DataFrame:
        """Rows with what the versions say of them, in the columns of the enriched stream."""
        enriched, valid = self._enriched, []
        for number, known in enumerate(self._parts(versions)):
            match = F.lit(True)
            for mine, theirs in enriched.on:
                match = match & (F.col(f"`{mine}`") == F.col(f"`_table_{theirs}`"))
            rows = checked(enriched.where, rows.join, known, match, "left")
            rows = rows.withColumn(f"{_FOUND}{number}", _valid(enriched))
            rows = rows.drop(_VERSIONS, *(f"_table_{name}" for name in enriched.table.key))
            valid.append(f"{_FOUND}{number}")
        rows = rows.withColumn(_FOUND, reduce(_newer, map(F.col, valid)))
        there = F.coalesce(~F.col(f"{_FOUND}.{places.DELETED}"), F.lit(False))
        if enriched.how == "inner":
            if counters is not None:
                name = counters.name(counters.filtered, "unknown")
                rows = rows.observe(name, F.count_if(~there).alias("n"))
            rows = rows.where(there)
        return rows.select(
            *(F.col(f"`{name}`") for name in enriched.input.columns),
            *(
                F.when(there, F.col(f"{_FOUND}.{_VALUE}.`{column}`")).alias(name)
                for column, name in enriched.from_table
            ),
            *(_notes() if enriched.amend is not None else ()),
        )

    def forget(self) -> None:
        """Have Spark keep no versions."""
        if self._kept is not None:
            self._kept.unpersist()
        self._kept, self._count = None, 0

    def _parts(self, versions: pa.Table) -> list[DataFrame]:
        """The versions by key: those that are kept, and the new ones."""
        many = versions.num_rows > FEW
        if many and (versions.num_rows - self._count) * _SHARE > versions.num_rows:
            self.forget()
            self._kept, self._count = self._by_key(versions).persist(), versions.num_rows
        new = versions.slice(self._count)
        parts = [] if self._kept is None else [_sent(self._kept, versions.slice(0, self._count))]
        return [*parts, _sent(self._by_key(new), new)] if new.num_rows or not parts else parts

    def _by_key(self, versions: pa.Table) -> DataFrame:
        """The versions of each key, in order."""
        enriched = self._enriched
        value = F.struct(*(F.col(f"`{name}`") for name, _ in enriched.from_table)).alias(_VALUE)
        amends = [AMENDS] if enriched.amend is not None else []
        version = F.struct(*ORDER, places.DELETED, *amends, value)
        keys = [F.col(f"`{name}`").alias(f"_table_{name}") for name in enriched.table.key]
        return (
            frame_of(self._spark, versions)
            .groupBy(*keys)
            .agg(F.array_sort(F.collect_list(version)).alias(_VERSIONS))
        )


def _newer(one: Column, other: Column) -> Column:
    """The later of two versions, either of which may be null."""
    first, second = (F.struct(*(found[name] for name in ORDER)) for found in (one, other))
    return F.when(one.isNull() | (second > first), other).otherwise(one)


def _sent(known: DataFrame, versions: pa.Table) -> DataFrame:
    small = versions.nbytes <= _BROADCAST
    return F.broadcast(known) if small else known.hint("shuffle_hash")


def _notes() -> tuple[Column, ...]:
    """What has to be known of a row to amend it: which it is, when it was, and what was found."""
    version = F.coalesce(F.col(f"{_FOUND}.{places.COMMIT}"), F.lit(0))
    return (
        row_place().alias(ROW),
        F.greatest(places.READY, version).alias(REVISION),
        F.unix_micros(places.TIME).alias(MOMENT),
        F.col(places.READY),
        *(F.col(f"{_FOUND}.{name}").alias(note) for name, note in zip(ORDER, FOUND, strict=True)),
    )


def _valid(enriched: Enriched) -> Column:
    """The version that is valid for a row; null if there is none."""
    if enriched.mode == "latest":
        return F.try_element_at(_VERSIONS, F.lit(-1))
    moment, ready = F.unix_micros(places.TIME), F.col(places.READY)

    def counts(version: Column) -> Column:
        known = version[places.COMMIT] <= ready
        known = known | version[AMENDS] if enriched.amend is not None else known
        return (version[FROM] <= moment) & known

    valid = F.filter(_VERSIONS, counts)
    return F.try_element_at(valid, F.lit(-1))
