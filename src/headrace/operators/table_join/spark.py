"""The plan of a table-table join: it reads the new versions, and the store joins them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
from pyarrow import types

from headrace.errors import InvalidPipeline
from headrace.operators.table_join.declare import TableJoin
from headrace.operators.table_join.payload import TableChanges, TableShapes
from headrace.pipeline.tables import Table
from headrace.plan import metadata
from headrace.plan.accounting import all_dead, terms
from headrace.plan.arrow_frames import arrow_schema
from headrace.plan.batch import Sink, StepBatch
from headrace.plan.crash_points import CrashPoint
from headrace.plan.law import Law
from headrace.plan.plans import Job, RoundPlan
from headrace.plan.position import Positions, lowest_frontier
from headrace.plan.range_read import RangeRead
from headrace.plan.table_changes import TOMBSTONE, Changes, change_rows
from headrace.plan.uncounted import Uncounted, all_uncounted


class TableJoinPlan(RoundPlan):
    """Reads the new versions of each table, and holds nothing."""

    ahead = True
    max_rows = 500_000

    def __init__(self, job: Job) -> None:
        assert isinstance(job.step.stream, TableJoin)
        self._log = job.log
        self._step = job.step
        self._join = job.step.stream
        self._range = RangeRead(job.spark, job.log)
        nothing = self._range.nothing(metadata.DELETED)
        self._schemas = tuple(
            arrow_schema(change_rows(table, nothing).drop(TOMBSTONE)) for table in self._join.tables
        )
        self._rows = self._row_schema()
        self.shapes = TableShapes(self._rows, None, self._schemas)

    def batch(
        self, sink: Sink, start: Positions, end: Positions, crash_point: CrashPoint
    ) -> StepBatch[TableChanges]:
        """The versions between two positions."""
        while True:
            there = self._there(start, end)
            found = [
                self._changes(number, table, start, end)
                for number, table in enumerate(self._join.tables)
            ]
            # Compaction during the reads would make them disagree, so read again.
            if there == self._there(start, end):
                break
        crash_point("computed")
        uncounted = all_uncounted(self._log, self._step.name, self._join, start, end)
        return StepBatch(
            start,
            end,
            lowest_frontier(self._log, end),
            None,
            all_dead(uncounted, *(changes.dead for changes in found)),
            self._law(there, uncounted, found),
            TableChanges(tuple(changes.versions for changes in found)),
        )

    def _there(self, start: Positions, end: Positions) -> dict[str, int]:
        return {
            topic: self._range.rows(self._log.topic(topic).topic, start[topic], end[topic])
            for topic in end
        }

    def _changes(self, number: int, table: Table, start: Positions, end: Positions) -> Changes:
        schema = self._schemas[number]
        if not end[table.topic].rows_after(start[table.topic]):
            return Changes(schema.empty_table(), None, 0)
        rows = change_rows(table, self._range.compiler(start, end, metadata.DELETED)).toArrow()
        return Changes.of(rows, table, schema, self._step.name, self._log)

    def _law(
        self, rows: Mapping[str, int], uncounted: Mapping[str, Uncounted], found: list[Changes]
    ) -> Law:
        """The part of the law that is known before the sink stores the rows."""
        # A table joined with itself reads each row twice, tombstones included.
        unended = {topic: replace(part, tombstones=0) for topic, part in uncounted.items()}
        law = terms(self._join, rows, unended) + Law(
            tombstones=sum(changes.tombstones for changes in found),
            dead=sum(changes.dead.num_rows for changes in found if changes.dead is not None),
        )
        return law + Law(pairs=law.passed)

    def _row_schema(self) -> pa.Schema:
        """The columns of a row; raises if join columns have different types."""
        join, kinds = self._join, self._schemas
        fields = [
            kinds[number].field(column).with_name(name)
            for name, (number, column) in join.origins.items()
        ]
        for number, link in enumerate(join.links, 1):
            for mine, theirs in link.on:
                from_, column = join.origins[mine]
                one, other = kinds[from_].field(column).type, kinds[number].field(theirs).type
                if one != other and not (types.is_integer(one) and types.is_integer(other)):
                    raise InvalidPipeline(
                        f"{mine!r} is {one} and {theirs!r} is {other}: they are never equal",
                        hint=f"Cast one of them with derive(). See {join.where}",
                    )
        return pa.schema([*fields, pa.field(metadata.REVISION, pa.int64())])


plan = TableJoinPlan
