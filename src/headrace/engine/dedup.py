"""Rows without those that repeat another, from one place in the log to another.

What a key has open is looked up for the keys of a batch. Then the rows of each key are taken in the
order of the log by Spark's own functions, and each opens a group or is in one that is open.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.clock import micros
from headrace.engine import places
from headrace.engine.aside import Aside
from headrace.engine.between import Between
from headrace.engine.compile import Compiler, checked
from headrace.engine.counters import Counters, observed
from headrace.engine.crash import Reach
from headrace.engine.handing import arrow_schema, frame_of
from headrace.engine.law import Law
from headrace.engine.places import OPENED
from headrace.engine.position import Position
from headrace.engine.reads import branches
from headrace.engine.sink import Portion, Shapes, Sink
from headrace.engine.steps import Step
from headrace.errors import InvalidPipeline
from headrace.log import Log
from headrace.streams.dedup import Deduplicated

_ROW, _AT, _ROWS, _GROUPS = "_row", "_at", "_rows", "_groups"
_HELD = -1
"""What a group that was open before a batch has instead of a row of it."""

_ORDER = (places.COMMIT, places.TOPIC, places.PARTITION, places.OFFSET, places.INDEX)
_MOMENT = pa.timestamp("us", tz="UTC")
_DUPLICATES = "duplicates"


@dataclass(frozen=True)
class Decided:
    """What a batch comes to: rows to tell of, groups that are new or another, and how many rows
    were neither first nor alone."""

    rows: pa.Table
    groups: pa.Table
    duplicates: int


class Deduplicating:
    """Computes what lies between two places. Its sink keeps the groups that are open."""

    ahead = False

    def __init__(self, spark: SparkSession, log: Log, step: Step) -> None:
        assert isinstance(step.stream, Deduplicated)
        self._spark = spark
        self._log = log
        self._step = step
        self._made: Deduplicated = step.stream
        self._between = Between(spark, log)
        self._schema = arrow_schema(self._rows(self._between.nothing(ordered=True)))
        rows = pa.schema([self._schema.field(name) for name in self._made.columns])
        for name in self._made.by:
            if pa.types.is_nested(rows.field(name).type):
                raise InvalidPipeline(
                    f"{name!r} is {rows.field(name).type}, by which no duplicates can be told",
                    hint=f"Go by its parts, or by text made of them. See {self._made.where}",
                )
        last = self._made.keep == "last"
        kept = rows if last else pa.schema([rows.field(name) for name in self._made.by])
        late = [pa.field("watermark", _MOMENT), pa.field("late_by", pa.float64())]
        groups = kept.append(pa.field(OPENED, pa.int64()))
        self.shapes = Shapes(rows, pa.schema([*rows, *late]), groups=groups)

    def begin(self, sink: Sink) -> None:
        """The sink has everything."""

    def portion(
        self, sink: Sink, start: Mapping[str, Position], end: Mapping[str, Position], reach: Reach
    ) -> Portion:
        """The rows that came between, but for those that repeat another."""
        counters = Counters()
        found = self._rows(self._between.compiler(start, end, counters=counters, ordered=True))
        rows = found.toArrow().cast(self._schema)
        rows = rows.sort_by([(name, "ascending") for name in _ORDER])
        late = self._too_late(rows)
        decided = self._decide(rows.filter(pa.array(~late)), sink)
        reach("computed")
        aside = self._between.aside(self._step.name, self._made, start, end)
        dead = [pa.Table.from_batches([b]) for part in aside.values() for b in part.dead]
        law = self._law(start, end, aside, observed(found, counters.all), counters)
        law += Law(late=int(late.sum()), duplicates=decided.duplicates)
        return Portion(
            start,
            end,
            self._between.frontier(end),
            decided.rows,
            self._late(rows.filter(pa.array(late))) if late.any() else None,
            pa.concat_tables(dead) if dead else None,
            law,
            groups=decided.groups,
        )

    def ended(self) -> None:
        """Nothing is left open."""

    def _rows(self, compiler: Compiler) -> DataFrame:
        """The rows of the input, and where each stands in the log."""
        # Numbers of the same length are in order as text, which Arrow can sort.
        index = F.transform(F.col(places.INDEX).cast("array<int>"), lambda n: F.lpad(n, 10, "0"))
        return compiler.rows(self._made.input).select(
            *(F.col(f"`{name}`") for name in self._made.columns),
            *(F.col(name) for name in _ORDER[:-1]),
            F.concat_ws("", index).alias(places.INDEX),
            F.unix_micros(places.TIME).alias(_AT),
            F.col(places.FRONTIER),
        )

    def _too_late(self, rows: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        times, frontiers = (rows.column(name).to_numpy() for name in (_AT, places.FRONTIER))
        late: np.ndarray[tuple[int], np.dtype[np.bool_]] = (
            times + micros(self._made.delay) <= frontiers
        )
        return late

    def _late(self, rows: pa.Table) -> pa.Table:
        watermark = rows.column(places.FRONTIER).to_numpy() - micros(self._made.delay)
        by = (watermark - rows.column(_AT).to_numpy()) / 1_000_000.0
        columns = rows.select(list(self._made.columns)).columns
        moments = pa.array(watermark).cast(_MOMENT)
        return pa.Table.from_arrays([*columns, moments, pa.array(by)], schema=self.shapes.late)

    def _decide(self, rows: pa.Table, sink: Sink) -> Decided:
        """What of some rows, which are in the order of the log, is to be told."""
        by, groups = list(self._made.by), self.shapes.groups
        assert groups is not None
        alone = pc.is_null(rows.column(by[0]))
        for name in by[1:]:
            alone = pc.or_(alone, pc.is_null(rows.column(name)))
        numbered = rows.select([*by, _AT]).append_column(_ROW, pa.array(np.arange(rows.num_rows)))
        keyed = numbered.filter(pc.invert(alone))
        told, opened, duplicates = pc.indices_nonzero(alone), groups.empty_table(), 0
        if keyed.num_rows:
            keys = keyed.select(by)
            held = sink.held(keys.group_by(by).aggregate([]).select(by))
            held = held.append_column(_ROW, pa.repeat(_HELD, held.num_rows).cast(pa.int64()))
            held = held.rename_columns([*by, _AT, _ROW]).cast(keyed.schema)
            frame = checked(self._made.where, self._grouped, pa.concat_tables([held, keyed]))
            made = frame.toArrow()
            duplicates = observed(frame, (_DUPLICATES,))[_DUPLICATES]
            made = made.sort_by(_ROW)
            which = made.column(_ROW)
            kept = rows.take(which).select(groups.names[:-1])
            opened = kept.append_column(groups.field(OPENED), made.column(OPENED)).cast(groups)
            if self._made.keep == "first":
                both = np.concatenate([told.to_numpy().astype(np.int64), which.to_numpy()])
                told = pa.array(np.sort(both))
        return Decided(rows.take(told).select(list(self._made.columns)), opened, duplicates)

    def _grouped(self, rows: pa.Table) -> DataFrame:
        """The groups that rows open or are the last of, among groups that are open."""
        frame = frame_of(self._spark, rows)
        in_order = F.array_sort(F.collect_list(F.struct(_ROW, _AT))).alias(_ROWS)
        keys = [F.col(f"`{name}`") for name in self._made.by]
        groups = frame.groupBy(*keys).agg(in_order).withColumn(_GROUPS, self._groups())
        repeated = F.sum(F.size(_ROWS) - F.size(_GROUPS)).alias("n")
        new = F.filter(_GROUPS, lambda group: group[_ROW] > _HELD)
        return groups.observe(_DUPLICATES, repeated).select(F.inline(new))

    def _groups(self) -> Column:
        """All groups of a key, one row after the other."""
        ttl, last = F.lit(micros(self._made.ttl)), self._made.keep == "last"
        nothing = F.expr(f"cast(array() as array<struct<{OPENED}: bigint, {_ROW}: bigint>>)")

        def group(opened: Column, row: Column) -> Column:
            return F.struct(opened.alias(OPENED), row.alias(_ROW))

        def add(groups: Column, row: Column) -> Column:
            def here(one: Column) -> Column:
                return (one[OPENED] <= row[_AT]) & (row[_AT] < one[OPENED] + ttl)

            def ahead(one: Column) -> Column:
                return (row[_AT] < one[OPENED]) & (one[OPENED] < row[_AT] + ttl)

            def taken(by: Column) -> Column:
                """The groups, of which one has a new last row."""
                return by if last else groups

            def ended(one: Column, there: Column) -> Column:
                return F.when(there, group(one[OPENED], row[_ROW])).otherwise(one)

            opened = F.array_append(groups, group(row[_AT], row[_ROW]))
            return (
                F.when(row[_ROW] == _HELD, opened)
                .when(
                    F.exists(groups, here), taken(F.transform(groups, lambda g: ended(g, here(g))))
                )
                .when(
                    F.exists(groups, ahead),
                    taken(F.transform(groups, lambda g: ended(g, ahead(g)))),
                )
                .otherwise(opened)
            )

        return F.aggregate(_ROWS, nothing, add)

    def _law(
        self,
        start: Mapping[str, Position],
        end: Mapping[str, Position],
        aside: Mapping[str, Aside],
        counts: Mapping[str, int],
        counters: Counters,
    ) -> Law:
        """What is known of the rows before the sink has them."""
        rows = {topic: end[topic].rows_after(start[topic]) for topic in end}
        living = {t: n - aside[t].dead_rows - aside[t].tombstones for t, n in rows.items()}
        ways = branches(self._made)
        law = Law(
            rows=sum(rows.values()),
            tombstones=sum(found.tombstones for found in aside.values()),
            dead=sum(found.dead_rows for found in aside.values()),
            filtered=sum(counts[name] for name in counters.filtered),
            exploded=sum(counts[name] for name in counters.exploded)
            + sum(n * (ways[topic] - 1) for topic, n in living.items()),
        )
        return law + Law(pairs=law.passed)
