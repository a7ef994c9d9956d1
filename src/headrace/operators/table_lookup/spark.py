"""The plan of a stream-table join.

Rows wait in the log until the table has caught up with them. A version that arrived after a row was
ready does not count. The log alone decides that, so a replay finds the same versions.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from headrace.clock import micros
from headrace.errors import InvalidPipeline
from headrace.log import Commit
from headrace.log.event_time import time_inputs
from headrace.operators.table_lookup.declare import Enriched
from headrace.operators.table_lookup.lookup import Lookup
from headrace.operators.table_lookup.payload import LookedUp, LookupShapes
from headrace.pipeline.stream import sources
from headrace.plan import metadata
from headrace.plan.accounting import all_dead, terms
from headrace.plan.arrow_frames import arrow_schema
from headrace.plan.batch import Sink, StepBatch
from headrace.plan.counters import Counters
from headrace.plan.crash_points import CrashPoint
from headrace.plan.law import Law
from headrace.plan.log_rows import event_times, in_time
from headrace.plan.plans import Job, RoundPlan
from headrace.plan.position import (
    Commits,
    Positions,
    last_commit,
    lowest_frontier,
    position_at,
    rows_by_topic,
)
from headrace.plan.range_read import PLACES, RangeRead
from headrace.plan.refused_rows import judges_rows, with_refused
from headrace.plan.staging import stage
from headrace.plan.table_changes import TOMBSTONE, Changes, change_rows
from headrace.plan.uncounted import all_uncounted
from headrace.plan.waiting import Ready, Waiting, frontier_after


@dataclass(frozen=True)
class Held:
    """State after a batch: the versions, and the number of rows that wait after commit `low`."""

    versions: pa.Table
    low: int = 0
    waiting: Mapping[str, int] = field(default_factory=dict)
    frontiers: Mapping[str, int] = field(default_factory=dict)
    """The frontier of each topic at that point."""


class LookupPlan(RoundPlan):
    """Looks up the rows between two positions. The sink keeps the versions of the table."""

    ahead = True

    def __init__(self, job: Job) -> None:
        assert isinstance(job.step.stream, Enriched)
        self._log = job.log
        self._step = job.step
        self._staging = job.staging
        self._enriched = job.step.stream
        self._range = RangeRead(job.spark, job.log)
        self._topics = {s.topic.name: s.topic for s in sources(self._enriched.input)}
        (table,) = sources(self._enriched.table)
        self._table = table.topic
        self._waits = self._enriched.mode == "as_of"
        if self._waits and judges_rows(self._enriched.input):
            raise InvalidPipeline(
                "Events of a domain cannot wait for a table as of their time",
                hint="Publish them with app.publish('events', ...), and enrich that topic. See "
                f"{self._enriched.where}",
            )
        self._amends = self._enriched.amend is not None
        changes = change_rows(
            self._enriched.table, self._range.nothing(metadata.DELETED), self._enriched.amend
        )
        self._versions_schema = arrow_schema(changes.drop(TOMBSTONE))
        self._lookup = Lookup(job.spark, self._enriched)
        nothing = self._range.nothing(metadata.READY, ordered=self._amends)
        rows = nothing.rows(self._enriched.input)
        versions = self._versions_schema.empty_table()
        self._schema = arrow_schema(self._lookup.found(rows, versions))
        public = pa.schema([self._schema.field(name) for name in self._enriched.columns])
        self.shapes = LookupShapes(public, None, self._versions_schema, self._schema)
        self._held = Held(versions)

    def begin(self, sink: Sink) -> None:
        """Load the versions and count the waiting rows."""
        self._lookup.forget()
        shutil.rmtree(self._staging, ignore_errors=True)
        begun, reached = last_commit(sink.begun), last_commit(sink.reached)
        known = sink.frontiers()
        frontiers = {
            topic: known.get(topic, frontier_after(self._log, topic, reached))
            for topic in (self._table.name, *self._topics)
        }
        ready = self._ready(begun, reached, reached, frontiers)
        self._held = self._still(sink.recall(), ready, reached)

    def batch(
        self, sink: Sink, start: Positions, end: Positions, crash_point: CrashPoint
    ) -> StepBatch[LookedUp]:
        """The rows that become ready, each looked up."""
        upto = last_commit(end)
        changes = self._changes(start, end)
        versions = self._held.versions
        if changes.versions.num_rows:
            versions = pa.concat_tables([versions, changes.versions]).combine_chunks()
        ready = self._ready(self._held.low, last_commit(start), upto, self._held.frontiers)
        counters = Counters()
        settled = ready.earliest if ready is not None else None
        timely = ready is None or self._lookup.settles(versions, settled)
        compiler = self._range.compiler(
            {topic: position_at(self._log, topic, self._held.low) for topic in self._topics}
            if ready is not None
            else start,
            end,
            *([] if timely else [metadata.READY]),
            beside=PLACES if self._amends else (),
            ordered=self._amends,
            waiting=ready.waiting if ready is not None else None,
            counters=counters,
        )
        rows = compiler.rows(self._enriched.input)
        found = self._lookup.found(rows, versions, counters, settled)
        # Any number of rows may have waited, so they go through files.
        results = stage(found, self._staging / str(upto), self._schema, counters.all)
        crash_point("computed")
        held = self._still(versions, ready, upto)
        more = {t: held.waiting.get(t, 0) - self._held.waiting.get(t, 0) for t in self._topics}
        self._held = held
        uncounted = all_uncounted(self._log, self._step.name, self._enriched, start, end)
        if not self._waits:
            uncounted = with_refused(
                self._log,
                self._step.name,
                self._enriched.input,
                uncounted,
                counters,
                results.counts,
            )
        came = rows_by_topic(self._log, start, end)
        table = self._table.name
        # The tombstones of the table are versions, and already counted among its changes.
        unended = {**uncounted, table: replace(uncounted[table], tombstones=0)}
        law = terms(self._enriched.input, came, unended, counters, results.counts, more)
        law += Law(
            tombstones=changes.tombstones,
            dead=changes.dead.num_rows if changes.dead is not None else 0,
            compacted=self._range.compacted(self._table, start[table], end[table]),
        )
        return StepBatch(
            start,
            end,
            lowest_frontier(self._log, end),
            None,
            all_dead(uncounted, changes.dead),
            law + Law(pairs=law.passed),
            LookedUp(results, changes.versions, held.frontiers),
        )

    def ended(self) -> None:
        """Release what the lookup holds."""
        self._lookup.forget()
        shutil.rmtree(self._staging, ignore_errors=True)

    def _changes(self, start: Positions, end: Positions) -> Changes:
        table, topic = self._enriched.table, self._table.name
        if not end[topic].rows_after(start[topic]):
            return Changes(self._versions_schema.empty_table(), None, 0)
        compiler = self._range.compiler(start, end, metadata.DELETED)
        rows = change_rows(table, compiler, self._enriched.amend).toArrow()
        return Changes.of(rows, table, self._versions_schema, self._step.name, self._log)

    def _ready(self, low: int, after: int, upto: int, frontiers: Mapping[str, int]) -> Ready | None:
        if not self._waits:
            return None
        patience = micros(self._enriched.wait)
        table, topics = self._table.name, tuple(self._topics)
        return Ready(self._log, Waiting(table, topics, patience, low, after, upto, frontiers))

    def _still(self, versions: pa.Table, ready: Ready | None, upto: int) -> Held:
        """State after a commit; the waiting rows are counted in the log."""
        if ready is None:
            return Held(versions, upto)
        low, found = ready.first_waiting(self._log), {}
        for name, topic in self._topics.items():
            commits, count = Commits(self._log, name), 0
            for batch in self._log.read(
                name, start=Commit(low), stop=Commit(upto), columns=time_inputs(topic)
            ):
                assert batch.commit is not None
                late = ready.at(batch.commit, event_times(batch, topic)) > upto
                count += int((late & in_time(batch, topic, commits)).sum())
            found[name] = count
        return Held(versions, low, found, ready.frontiers)


plan = LookupPlan
