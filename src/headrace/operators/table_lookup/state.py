"""Keeps what an enriched stream has to remember, and publishes what was found for its rows."""

from __future__ import annotations

from collections.abc import Mapping

import apsw
import pyarrow as pa

from headrace.operators.table_lookup.amending import PublishedRows
from headrace.operators.table_lookup.declare import Enriched
from headrace.operators.table_lookup.payload import LookedUp, LookupShapes
from headrace.operators.table_lookup.versions import FrontierTable, VersionTable
from headrace.plan.batch import StepBatch
from headrace.plan.law import Law
from headrace.store.keeper import Keeper, Passage, Stored
from headrace.store.outbox import put


class LookupKeeper(Keeper):
    """Versions in a table, and rows with what was found in a topic."""

    def __init__(self, stored: Stored) -> None:
        step, shapes = stored.step, stored.shapes
        assert isinstance(step.stream, Enriched)
        assert isinstance(shapes, LookupShapes)
        (self._topic,) = step.outputs
        self.schema = shapes.rows
        self._log = stored.log
        self._crash_point = stored.crash_point
        self._table = step.stream.table
        self._versions = VersionTable(step.name, self._table.key, shapes.versions)
        self._frontiers = FrontierTable(step.name)
        amends = step.stream.amend is not None
        self._told = PublishedRows(step, shapes.told, self._versions) if amends else None

    def create(self, db: apsw.Connection) -> None:
        self._versions.create(db)
        if self._told is not None:
            self._told.create(db)

    def recall(self, db: apsw.Connection, request: pa.Table | None) -> pa.Table:
        """The versions of the table."""
        return self._versions.all(db)

    def frontiers(self, db: apsw.Connection) -> Mapping[str, int]:
        return self._frontiers.all(db)

    def store(self, db: apsw.Connection, batch: StepBatch[LookedUp], passage: Passage) -> Law:
        found = batch.payload
        counted = self._versions.add(db, found.versions)
        self._frontiers.keep(db, found.frontiers)
        if self._told is not None:
            self._told.correct(db, found.versions, self._topic)
        for some in found.rows.slices():
            if self._told is not None:
                self._told.add(db, some)
            counted += put(db, self._topic, some.select(self.schema.names))
        if self._told is not None:
            topic = self._table.topic
            self._told.forget(db, self._log.frontier(topic, batch.end[topic].commit))
        self._crash_point("stored panes")
        return Law(counted=counted)


keeper = LookupKeeper
