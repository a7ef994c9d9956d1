"""Lookup of rows in table versions, by Spark.

A version is valid for a span of time, and a row is joined with the version valid at its event time.
A version that arrived after some rows were ready counts only for the others. Then all versions of a
key go into an array, and Spark's own functions find the one for each row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.operators.table_lookup.declare import Enriched
from headrace.pipeline.tables import REVISION, ROW
from headrace.plan import metadata
from headrace.plan.arrow_frames import frame_of
from headrace.plan.compile import checked, row_place
from headrace.plan.counters import Counters, counted
from headrace.plan.lateness import Moments
from headrace.plan.table_changes import AMENDS, FROM, ORDER
from headrace.schema.keys import as_spark_compares, coded

SINCE, UNTIL = "_since", "_until"
"""The span of time for which a version is valid."""

MOMENT = "_moment"
"""The event time of a row that may be amended, in microseconds."""

FOUND = tuple(f"_found{name}" for name in ORDER)
"""The version that was found for it."""

FEW = 10_000
"""The number of versions whose validity is computed every time."""

_SHARE = 4
"""New versions stay separate until they are more than one in this many."""

_BROADCAST = 64 << 20
"""The most bytes of versions that are broadcast; more are joined by shuffle."""

_FOR_EVER, _NEVER = (1 << 63) - 1, -(1 << 63)
_VERSIONS, _VALUE = "_versions", "_value_"


def validity(versions: pa.Table, keys: Sequence[str], *, latest: bool = False) -> pa.Table:
    """The versions that are ever valid, each until the next of its key; or the `latest` of each.

    A version without a known start is never valid.
    """
    since, *others = (_numbers(versions, name) for name in ORDER)
    (key,), _ = coded([as_spark_compares(versions.select(keys))], keys, in_order=False)
    order = np.lexsort([*reversed([since, *others]), key])
    since, key = since[order], key[order]
    same = np.append(key[1:] == key[:-1], False)[: len(order)]
    until = np.where(same, np.roll(since, -1), _FOR_EVER)
    kept = ~same if latest else (since < until) & (since > _NEVER)
    made = versions.take(pa.array(order[kept])).append_column(SINCE, pa.array(since[kept]))
    return made.append_column(UNTIL, pa.array(until[kept]))


def _numbers(versions: pa.Table, name: str) -> Moments:
    """A column of integers, with the lowest for null."""
    column = pc.fill_null(versions.column(name).cast(pa.int64()), _NEVER)
    found: Moments = column.to_numpy()
    return found


class Lookup:
    """Looks rows up in a growing set of versions.

    Computing the validity of all versions costs as much as there are versions. If there are many,
    Spark keeps them between batches, and new versions stay separate until they are many as well.
    """

    def __init__(self, spark: SparkSession, enriched: Enriched) -> None:
        self._spark = spark
        self._enriched = enriched
        self._old, self._new = _Spans(enriched, "_old_"), _Spans(enriched, "_new_")
        self._listed = _Listed(enriched, "_new_")
        self._kept: DataFrame | None = None
        self._count = 0

    def settles(self, versions: pa.Table, settled: int | None) -> bool:
        """True if the lookup does not depend on the commit at which each row became ready."""
        return self._enriched.amend is None and _known(versions.slice(self._count), settled)

    def found(
        self,
        rows: DataFrame,
        versions: pa.Table,
        counters: Counters | None = None,
        settled: int | None = None,
    ) -> DataFrame:
        """Rows with the values of their versions, in the columns of the enriched stream.

        Versions up to the commit `settled` count for all rows; if it is None, all versions do.
        """
        enriched, found = self._enriched, []
        for part, known in self._parts(versions, settled):
            rows, valid = part.looked_up(rows, known)
            found.append(valid)
        valid = reduce(_newer, found)
        there = F.coalesce(~valid[metadata.DELETED], F.lit(False))
        if enriched.how == "inner":
            rows = counted(rows, counters, "filtered", F.count_if(~there)).where(there)
        return rows.select(
            *(F.col(f"`{name}`") for name in enriched.input.columns),
            *(
                F.when(there, valid[f"{_VALUE}{column}"]).alias(name)
                for column, name in enriched.from_table
            ),
            *(_notes(valid) if enriched.amend is not None else ()),
        )

    def forget(self) -> None:
        """Release the versions that Spark keeps."""
        if self._kept is not None:
            self._kept.unpersist()
        self._kept, self._count = None, 0

    def _parts(self, versions: pa.Table, settled: int | None) -> list[tuple[_Part, DataFrame]]:
        """The versions in one or two parts: the kept ones and the new ones."""
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
"""The version that is valid for a row: its order, its deletion flag and its values."""


@dataclass(frozen=True)
class _Part(ABC):
    """A way to look up versions, in columns with a prefix."""

    enriched: Enriched
    prefix: str

    @abstractmethod
    def frame(self, spark: SparkSession, versions: pa.Table) -> DataFrame:
        """The versions as a frame."""

    @abstractmethod
    def match(self) -> Column:
        """The join condition besides equal keys."""

    @abstractmethod
    def valid(self, rows: DataFrame) -> tuple[DataFrame, Valid]:
        """The version that is valid for each row, among those matched."""

    def looked_up(self, rows: DataFrame, known: DataFrame) -> tuple[DataFrame, Valid]:
        """Rows with the version that is valid for each, or nulls."""
        match = self.match()
        for mine, theirs in self.enriched.on:
            match = match & (F.col(f"`{mine}`") == F.col(f"`{self.prefix}{theirs}`"))
        return self.valid(checked(self.enriched.where, rows.join, known, match, "left"))

    def columns(self, versions: pa.Table) -> pa.Table:
        """The keys, metadata and values of versions, under prefixed names."""
        own = (*self.enriched.table.key, *self.details)
        columns = {f"{self.prefix}{name}": versions.column(name) for name in own}
        for name, _ in self.enriched.from_table:
            columns[f"{self.prefix}{_VALUE}{name}"] = versions.column(name)
        return pa.table(columns)

    @property
    def details(self) -> list[str]:
        """The columns of a version besides its key and values."""
        amends = [AMENDS] if self.enriched.amend is not None else []
        return [*ORDER, metadata.DELETED, *amends]

    @property
    def parts(self) -> list[str]:
        """The columns of a version besides its key."""
        return [*self.details, *(f"{_VALUE}{name}" for name, _ in self.enriched.from_table)]


class _Spans(_Part):
    """Versions by span of validity: at most one matches a row."""

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
    """All versions of a key in one array, for rows that were ready before some versions arrived."""

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
    """Versions with a join hint: a broadcast if they are small."""
    return F.broadcast(known) if versions.nbytes <= _BROADCAST else known.hint("shuffle_hash")


def _known(new: pa.Table, settled: int | None) -> bool:
    """True if all of these versions count for all rows."""
    if settled is None or not new.num_rows:
        return True
    return bool(pc.max(new.column(metadata.COMMIT)).as_py() <= settled)


def _newer(one: Valid, other: Valid) -> Valid:
    """The later of two versions, either of which may be missing."""
    first, second = (F.struct(*(valid[name] for name in ORDER)) for valid in (one, other))
    return {name: F.when(second > first, other[name]).otherwise(one[name]) for name in one}


def _notes(valid: Valid) -> tuple[Column, ...]:
    """The columns needed to amend a row: its identity, its times and the version found."""
    version = F.coalesce(valid[metadata.COMMIT], F.lit(0))
    return (
        row_place().alias(ROW),
        F.greatest(metadata.READY, version).alias(REVISION),
        F.unix_micros(metadata.TIME).alias(MOMENT),
        F.col(metadata.READY),
        *(valid[name].alias(note) for name, note in zip(ORDER, FOUND, strict=True)),
    )
