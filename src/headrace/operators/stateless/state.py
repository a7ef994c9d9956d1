"""The keeper of stateless steps, which publishes rows and keeps none."""

from __future__ import annotations

import apsw

from headrace.plan.batch import Rows, StepBatch
from headrace.plan.law import Law
from headrace.store.keeper import Keeper, Passage, Stored
from headrace.store.outbox import put


class RowKeeper(Keeper):
    """Publishes rows."""

    def __init__(self, stored: Stored) -> None:
        (self._topic,) = stored.step.outputs
        self.schema = stored.shapes.rows
        self._crash_point = stored.crash_point

    def store(self, db: apsw.Connection, batch: StepBatch[Rows], passage: Passage) -> Law:
        found = batch.payload
        counted = sum(put(db, self._topic, some) for some in found.slices())
        self._crash_point("stored panes")
        return Law(counted=counted if found.delivered is None else found.delivered)


keeper = RowKeeper
