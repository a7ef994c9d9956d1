"""Keeps what an enriched stream has to remember, and publishes what was found for its rows."""

from __future__ import annotations

from collections.abc import Mapping

import apsw
import pyarrow as pa

from headrace.log import Log
from headrace.operators.table_lookup.amending import ToldRows
from headrace.operators.table_lookup.versions import FrontierTable, VersionTable
from headrace.operators.window.emission.policy import Passage
from headrace.plan.batch import Portion, Shapes
from headrace.plan.crash_points import Reach
from headrace.plan.law import Law
from headrace.plan.steps import Step
from headrace.store.keeper import Keeper
from headrace.store.outbox import put


class EnrichKeeper(Keeper):
    """Versions in a table, and rows with what was found in a topic."""

    def __init__(self, step: Step, shapes: Shapes, log: Log, reach: Reach) -> None:
        assert step.enriched is not None
        assert shapes.versions is not None
        assert shapes.told is not None
        (self._topic,) = step.outputs
        self.schema = shapes.rows
        self._log = log
        self._reach = reach
        self._table = step.enriched.table
        self._versions = VersionTable(step.name, self._table.key, shapes.versions)
        self._frontiers = FrontierTable(step.name)
        amends = step.enriched.amend is not None
        self._told = ToldRows(step, shapes.told, self._versions) if amends else None

    def create(self, db: apsw.Connection) -> None:
        self._versions.create(db)
        if self._told is not None:
            self._told.create(db)

    def versions(self, db: apsw.Connection) -> pa.Table:
        return self._versions.all(db)

    def frontiers(self, db: apsw.Connection) -> Mapping[str, int]:
        return self._frontiers.all(db)

    def store(self, db: apsw.Connection, portion: Portion, passage: Passage) -> Law:
        assert portion.versions is not None
        counted = self._versions.add(db, portion.versions)
        self._frontiers.keep(db, portion.frontiers)
        if self._told is not None:
            self._told.correct(db, portion.versions, self._topic)
        for some in portion.slices():
            if self._told is not None:
                self._told.add(db, some)
            counted += put(db, self._topic, some.select(self.schema.names))
        if self._told is not None:
            topic = self._table.topic
            self._told.forget(db, self._log.frontier(topic, portion.end[topic].commit))
        self._reach("stored panes")
        return Law(counted=counted)
