"""The plan of deduplication.

The open groups are looked up for the keys of a batch. Then the rows are taken in log order, and
each opens a group or joins an open one.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.clock import micros
from headrace.errors import InvalidPipeline
from headrace.operators.dedup.declare import Deduplicated
from headrace.operators.dedup.duplicate_groups import repeats
from headrace.operators.dedup.payload import Distinct, GroupShapes
from headrace.plan import metadata
from headrace.plan.accounting import all_dead, terms
from headrace.plan.arrow_frames import arrow_schema
from headrace.plan.batch import Sink, StepBatch
from headrace.plan.compile import Compiler
from headrace.plan.counters import Counters, observed
from headrace.plan.crash_points import CrashPoint
from headrace.plan.lateness import Mask, Moments, too_late
from headrace.plan.law import Law
from headrace.plan.metadata import OPENED
from headrace.plan.plans import Job, RoundPlan
from headrace.plan.position import Positions, lowest_frontier, rows_by_topic
from headrace.plan.range_read import RangeRead
from headrace.plan.refused_rows import with_refused
from headrace.plan.uncounted import all_uncounted
from headrace.schema.keys import Codes, as_spark_compares, coded

_AT = "_at"
_ORDER = (
    metadata.COMMIT,
    metadata.TOPIC,
    metadata.PARTITION,
    metadata.OFFSET,
    metadata.INDEX,
)
_MOMENT = pa.timestamp("us", tz="UTC")


class DedupPlan(RoundPlan):
    """Deduplicates the rows between two positions. The sink keeps the open groups."""

    max_rows = 500_000
    shapes: GroupShapes

    def __init__(self, job: Job) -> None:
        assert isinstance(job.step.stream, Deduplicated)
        self._log = job.log
        self._step = job.step
        self._made = job.step.stream
        self._range = RangeRead(job.spark, job.log)
        self._schema = arrow_schema(self._rows(self._range.nothing(ordered=True)))
        rows = pa.schema([self._schema.field(name) for name in self._made.columns])
        for name in self._made.by:
            if pa.types.is_nested(rows.field(name).type):
                raise InvalidPipeline(
                    f"Duplicates cannot be found by {name!r}, which is {rows.field(name).type}",
                    hint=f"Use its parts, or a string made of them. See {self._made.where}",
                )
        last = self._made.keep == "last"
        kept = rows if last else pa.schema([rows.field(name) for name in self._made.by])
        late = [pa.field("watermark", _MOMENT), pa.field("late_by", pa.float64())]
        groups = kept.append(pa.field(OPENED, pa.int64()))
        self.shapes = GroupShapes(rows, pa.schema([*rows, *late]), groups)

    def batch(
        self, sink: Sink, start: Positions, end: Positions, crash_point: CrashPoint
    ) -> StepBatch[Distinct]:
        """The rows between two positions, without duplicates."""
        counters = Counters()
        found = self._rows(self._range.compiler(start, end, counters=counters, ordered=True))
        rows = found.toArrow().cast(self._schema)
        rows = rows.sort_by([(name, "ascending") for name in _ORDER])
        late = self._too_late(rows)
        decided = self._decide(rows.filter(pa.array(~late)), sink)
        crash_point("computed")
        uncounted = all_uncounted(self._log, self._step.name, self._made, start, end)
        came = rows_by_topic(self._log, start, end)
        seen = observed(found, counters.all)
        uncounted = with_refused(self._log, self._step.name, self._made, uncounted, counters, seen)
        law = terms(self._made, came, uncounted, counters, seen)
        law += Law(pairs=law.passed, late=int(late.sum()), duplicates=decided.duplicates)
        return StepBatch(
            start,
            end,
            lowest_frontier(self._log, end),
            self._late(rows.filter(pa.array(late))) if late.any() else None,
            all_dead(uncounted),
            law,
            decided,
        )

    def _rows(self, compiler: Compiler) -> DataFrame:
        """The rows of the input with their positions in the log."""
        # As text of equal length, numbers are in order, and Arrow can sort it.
        index = F.transform(F.col(metadata.INDEX).cast("array<int>"), lambda n: F.lpad(n, 10, "0"))
        return compiler.rows(self._made.input).select(
            *(F.col(f"`{name}`") for name in self._made.columns),
            *(F.col(name) for name in _ORDER[:-1]),
            F.concat_ws("", index).alias(metadata.INDEX),
            F.unix_micros(metadata.TIME).alias(_AT),
            F.col(metadata.FRONTIER),
        )

    def _too_late(self, rows: pa.Table) -> Mask:
        times, frontiers = (rows.column(name).to_numpy() for name in (_AT, metadata.FRONTIER))
        return too_late(times, frontiers, micros(self._made.delay))

    def _late(self, rows: pa.Table) -> pa.Table:
        watermark = rows.column(metadata.FRONTIER).to_numpy() - micros(self._made.delay)
        by = (watermark - rows.column(_AT).to_numpy()) / 1_000_000.0
        columns = rows.select(list(self._made.columns)).columns
        moments = pa.array(watermark).cast(_MOMENT)
        return pa.Table.from_arrays([*columns, moments, pa.array(by)], schema=self.shapes.late)

    def _decide(self, rows: pa.Table, sink: Sink) -> Distinct:
        """The rows to publish and the groups to store, for rows in log order."""
        by, groups = list(self._made.by), self.shapes.groups
        alone = pc.is_null(rows.column(by[0]))
        for name in by[1:]:
            alone = pc.or_(alone, pc.is_null(rows.column(name)))
        emitted, keyed = (np.flatnonzero(which) for which in (alone, pc.invert(alone)))
        opened, last, duplicates = self._groups(rows.take(pa.array(keyed)), sink)
        kept = rows.take(pa.array(keyed[last])).select(groups.names[:-1])
        made = kept.append_column(groups.field(OPENED), pa.array(opened)).cast(groups)
        if self._made.keep == "first":
            emitted = np.sort(np.concatenate([emitted, keyed[last]]))
        columns = list(self._made.columns)
        return Distinct(rows.take(pa.array(emitted)).select(columns), made, duplicates)

    def _groups(self, rows: pa.Table, sink: Sink) -> tuple[Moments, Codes, int]:
        """The new and changed groups: opening times and rows to keep; and the duplicates."""
        by = list(self._made.by)
        held = sink.recall(rows.group_by(by).aggregate([]).select(by))
        theirs, mine = (as_spark_compares(table.select(by)) for table in (held, rows))
        codes, _ = coded([theirs, mine.cast(theirs.schema)], by, in_order=False)
        times = np.concatenate([held.column(OPENED).to_numpy(), rows.column(_AT).to_numpy()])
        found = repeats(np.concatenate(codes), times, held.num_rows, micros(self._made.ttl))
        openers, last = found.last_of_each()
        if self._made.keep == "first":
            last = openers
        order = np.argsort(last)
        order = order[last[order] >= held.num_rows]
        duplicates = int(np.count_nonzero(~found.opens))
        return times[openers[order]], last[order] - held.num_rows, duplicates


plan = DedupPlan
