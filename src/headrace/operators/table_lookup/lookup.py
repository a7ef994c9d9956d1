"""What a table says of rows, looked up by Spark.

A version is valid from one moment to another, and a row is joined with the one that was valid at
its own moment. Versions that came while rows were already ready do not count for all of these: of
such, all versions of a key are an array, and Spark's own functions find the one for each row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.operators.table_lookup.declare import Enriched
from headrace.operators.table_lookup.validity import SINCE, UNTIL, validity
from headrace.pipeline.tables import REVISION, ROW
from headrace.plan import metadata
from headrace.plan.arrow_frames import frame_of
from headrace.plan.compile import checked, row_place
from headrace.plan.counters import Counters
from headrace.plan.table_changes import AMENDS, FROM, ORDER

_BROADCAST = 64 << 20
"""Versions that take up no more are sent to every task; beyond that, rows are sent to theirs."""

MOMENT = "_moment"
"""The event time of a row that may be amended, in microseconds."""

FOUND = tuple(f"_found{name}" for name in ORDER)
"""Which version was found for it."""

_VERSIONS, _VALUE = "_versions", "_value_"

FEW = 10_000
"""Of so few versions it is worked out each time when they are valid."""

_SHARE = 4
"""New versions are looked at by themselves until they are one in so many."""


class Lookup:
    """Looks rows up in versions that only become more.

    To work out when each version is valid costs as much as there are versions. So where they are
    many, Spark keeps that from one time to the next, and new ones are beside them until they are
    many as well.
    """

    def __init__(self, spark: SparkSession, enriched: Enriched) -> None:
        self._spark = spark
        self._enriched = enriched
        self._old, self._new = _Spans(enriched, "_old_"), _Spans(enriched, "_new_")
        self._listed = _Listed(enriched, "_new_")
        self._kept: DataFrame | None = None
        self._count = 0

    def settles(self, versions: pa.Table, settled: int | None) -> bool:
        """Whether it can do without knowing when each row became ready."""
        return self._enriched.amend is None and _known(versions.slice(self._count), settled)

    def found(
        self,
        rows: DataFrame,
        versions: pa.Table,
        counters: Counters | None = None,
        settled: int | None = None,
    ) -> DataFrame:
        """Rows with what the versions say of them, in the columns of the enriched stream.

        Versions up to the commit `settled` count for all of the rows; without one, all do.
        """
        enriched, found = self._enriched, []
        for part, known in self._parts(versions, settled):
            rows, valid = part.looked_up(rows, known)
            found.append(valid)
        valid = reduce(_newer, found)
        there = F.coalesce(~valid[metadata.DELETED], F.lit(False))
        if enriched.how == "inner":
            if counters is not None:
                name = counters.name(counters.filtered, "unknown")
                rows = rows.observe(name, F.count_if(~there).alias("n"))
            rows = rows.where(there)
        return rows.select(
            *(F.col(f"`{name}`") for name in enriched.input.columns),
            *(
                F.when(there, valid[f"{_VALUE}{column}"]).alias(name)
                for column, name in enriched.from_table
            ),
            *(_notes(valid) if enriched.amend is not None else ()),
        )

    def forget(self) -> None:
        """Have Spark keep no versions."""
        if self._kept is not None:
            self._kept.unpersist()
        self._kept, self._count = None, 0

    def _parts(self, versions: pa.Table, settled: int | None) -> list[tuple[_Part, DataFrame]]:
        """The versions: those that are kept, and the new ones."""
        new = versions.slice(self._count)
        known = _known(new, settled)
        if known and versions.num_rows > FEW and new.num_rows * _SHARE > versions.num_rows:
            self.forget()
            self._kept = self._old.frame(self._spark, versions).persist()
            self._count, new = versions.num_rows, versions.slice(versions.num_rows)
        parts: list[tuple[_Part, DataFrame]] = []
        if self._kept is not None:
            parts.append((self._old, _sent(self._kept, versions.slice(0, self._count))))
        if new.num_rows or not parts:
            part = self._new if known else self._listed
            parts.append((part, _sent(part.frame(self._spark, new), new)))
        return parts


Valid = Mapping[str, Column]
"""The version that is valid for a row: what it is in order by, whether it ends, and its values."""


@dataclass(frozen=True)
class _Part(ABC):
    """How versions of one kind are looked up, in columns that begin with a prefix."""

    enriched: Enriched
    prefix: str

    @abstractmethod
    def frame(self, spark: SparkSession, versions: pa.Table) -> DataFrame:
        """The versions as Spark has them."""

    @abstractmethod
    def match(self) -> Column:
        """What has to be true beside the keys."""

    @abstractmethod
    def valid(self, rows: DataFrame) -> tuple[DataFrame, Valid]:
        """The version that is valid for a row, of what was matched."""

    def looked_up(self, rows: DataFrame, known: DataFrame) -> tuple[DataFrame, Valid]:
        """Rows with the version that is valid for each; all of it is null if there is none."""
        match = self.match()
        for mine, theirs in self.enriched.on:
            match = match & (F.col(f"`{mine}`") == F.col(f"`{self.prefix}{theirs}`"))
        return self.valid(checked(self.enriched.where, rows.join, known, match, "left"))

    def columns(self, versions: pa.Table) -> pa.Table:
        """The keys of versions and what is told of them, under names of their own."""
        columns = {
            f"{self.prefix}{name}": versions.column(name) for name in self.enriched.table.key
        }
        columns |= {f"{self.prefix}{name}": versions.column(name) for name in self.told}
        for name, _ in self.enriched.from_table:
            columns[f"{self.prefix}{_VALUE}{name}"] = versions.column(name)
        return pa.table(columns)

    @property
    def told(self) -> list[str]:
        """What is told of a version beside its values."""
        amends = [AMENDS] if self.enriched.amend is not None else []
        return [*ORDER, metadata.DELETED, *amends]

    @property
    def parts(self) -> list[str]:
        """What a version is made of."""
        return [*self.told, *(f"{_VALUE}{name}" for name, _ in self.enriched.from_table)]


class _Spans(_Part):
    """Versions by when they are valid, of which each row has one at most."""

    def frame(self, spark: SparkSession, versions: pa.Table) -> DataFrame:
        latest = self.enriched.mode == "latest"
        made = validity(versions, self.enriched.table.key, latest=latest)
        table = self.columns(made)
        for name in (SINCE, UNTIL):
            table = table.append_column(f"{self.prefix}{name}", made.column(name))
        return frame_of(spark, table)

    def match(self) -> Column:
        if self.enriched.mode == "latest":
            return F.lit(True)
        moment = F.unix_micros(metadata.TIME)
        since, until = F.col(f"{self.prefix}{SINCE}"), F.col(f"{self.prefix}{UNTIL}")
        return (moment >= since) & (moment < until)

    def valid(self, rows: DataFrame) -> tuple[DataFrame, Valid]:
        return rows, {name: F.col(f"`{self.prefix}{name}`") for name in self.parts}


class _Listed(_Part):
    """All versions of a key together, for rows that were ready before some of them came."""

    def frame(self, spark: SparkSession, versions: pa.Table) -> DataFrame:
        keys = [F.col(f"`{self.prefix}{name}`") for name in self.enriched.table.key]
        version = F.struct(*(F.col(f"`{self.prefix}{name}`").alias(name) for name in self.parts))
        by_key = frame_of(spark, self.columns(versions)).groupBy(*keys)
        return by_key.agg(F.array_sort(F.collect_list(version)).alias(_VERSIONS))

    def match(self) -> Column:
        return F.lit(True)

    def valid(self, rows: DataFrame) -> tuple[DataFrame, Valid]:
        moment, ready = F.unix_micros(metadata.TIME), F.col(metadata.READY)

        def counts(version: Column) -> Column:
            known = version[metadata.COMMIT] <= ready
            known = known | version[AMENDS] if self.enriched.amend is not None else known
            return (version[FROM] <= moment) & known

        last = F.try_element_at(F.filter(_VERSIONS, counts), F.lit(-1))
        rows = rows.withColumn(_VERSIONS, last)
        return rows, {name: F.col(f"{_VERSIONS}.`{name}`") for name in self.parts}


def _sent(known: DataFrame, versions: pa.Table) -> DataFrame:
    """Versions as they get to rows: they are sent to every task if they are few."""
    return F.broadcast(known) if versions.nbytes <= _BROADCAST else known.hint("shuffle_hash")


def _known(new: pa.Table, settled: int | None) -> bool:
    """Whether versions count for all rows."""
    if settled is None or not new.num_rows:
        return True
    return bool(pc.max(new.column(metadata.COMMIT)).as_py() <= settled)


def _newer(one: Valid, other: Valid) -> Valid:
    """The later of two versions, either of which may not be there."""
    first, second = (F.struct(*(valid[name] for name in ORDER)) for valid in (one, other))
    return {name: F.when(second > first, other[name]).otherwise(one[name]) for name in one}


def _notes(valid: Valid) -> tuple[Column, ...]:
    """What has to be known of a row to amend it: which it is, when it was, and what was found."""
    version = F.coalesce(valid[metadata.COMMIT], F.lit(0))
    return (
        row_place().alias(ROW),
        F.greatest(metadata.READY, version).alias(REVISION),
        F.unix_micros(metadata.TIME).alias(MOMENT),
        F.col(metadata.READY),
        *(valid[name].alias(note) for name, note in zip(ORDER, FOUND, strict=True)),
    )
