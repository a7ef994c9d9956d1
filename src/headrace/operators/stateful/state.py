"""Publishes the output of a stateful step, and the rows that its function failed for."""

from __future__ import annotations

from functools import lru_cache

import apsw
import pyarrow as pa

from headrace.log.dead_letter import dead_letters, row_text
from headrace.operators.stateful.declare import Stateful
from headrace.operators.stateful.outcome import Outcome
from headrace.operators.stateful.workers import REASON
from headrace.plan import metadata
from headrace.plan.batch import StepBatch
from headrace.plan.law import Law
from headrace.schema.python_rows import to_rows
from headrace.store.keeper import Keeper, Passage, Stored
from headrace.store.outbox import put


class OutcomeKeeper(Keeper):
    """Publishes the outcome of a stateful step."""

    def __init__(self, stored: Stored) -> None:
        step = stored.step
        assert isinstance(step.stream, Stateful)
        (self._topic,) = step.outputs
        self.schema = stored.shapes.rows
        self._crash_point = stored.crash_point
        self._step = step
        self._columns = step.stream.input.columns
        self._appended = lru_cache(maxsize=10_000)(stored.log.commit_time)

    def store(self, db: apsw.Connection, batch: StepBatch[Outcome], passage: Passage) -> Law:
        """Publish the output. Failed rows were counted on arrival, and are dead letters now."""
        outcome = batch.payload
        for some in outcome.slices():
            put(db, self._topic, some)
        self._crash_point("stored panes")
        failed = self._store_failed(db, outcome)
        return Law(counted=outcome.taken - failed, dead=failed, pairs=-failed)

    def _store_failed(self, db: apsw.Connection, outcome: Outcome) -> int:
        """Publish failures as dead letters; returns the number of rows of the log among them.

        A failed timer is published too, without a position in the log.
        """
        failed = 0
        for some in outcome.failed_slices():
            letters = put(db, self._step.dead_letters, self._letters(some))
            failed += letters - some.column(metadata.COMMIT).null_count
        return failed

    def _letters(self, rows: pa.Table) -> pa.Table:
        topics = rows.column(metadata.TOPIC) if metadata.TOPIC in rows.column_names else None
        places = (rows.column(name).to_pylist() for name in (metadata.COMMIT, metadata.TIME))
        appended = [
            moment if commit is None else self._appended(commit)
            for commit, moment in zip(*places, strict=True)
        ]
        return dead_letters(
            rows.num_rows,
            step=self._step.name,
            topic=topics or self._step.topics[0],
            partition=rows.column(metadata.PARTITION),
            offset=rows.column(metadata.OFFSET),
            commit_number=rows.column(metadata.COMMIT),
            appended=pa.array(appended, pa.int64()),
            reason=rows.column(REASON),
            row=[row_text(row) for row in to_rows(rows.select(list(self._columns)))],
        )


keeper = OutcomeKeeper
