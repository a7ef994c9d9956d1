"""A sink whose results are read once and then gone."""

from __future__ import annotations

import apsw
import pyarrow as pa

from headrace.log import Log
from headrace.operators.registry import operator_of
from headrace.plan.batch import Payload, Shapes, StepBatch
from headrace.plan.crash_points import nothing
from headrace.plan.law import Law
from headrace.plan.position import Position, position_at
from headrace.plan.steps import Step
from headrace.store.outbox import SilentOutbox
from headrace.store.sqlite.database import Database
from headrace.store.sqlite.sink import ViewSink


class MemorySink(ViewSink):
    """Stores results in a temporary database, keeps late rows and dead letters, sends nothing."""

    def __init__(
        self, database: Database, log: Log, step: Step, shapes: Shapes, after: int, until: int
    ) -> None:
        self._after = after
        self._until = until
        self.late = None if shapes.late is None else shapes.late.empty_table()
        self.dead: list[pa.Table] = []
        keeper = operator_of(step.stream).keeper
        super().__init__(
            database,
            SilentOutbox(),
            log,
            step,
            shapes,
            keeper,
            changelog=False,
            crash_point=nothing,
        )

    def limit(self, topic: str) -> int:
        return self._until

    def store(self, batch: StepBatch[Payload]) -> Law:
        if batch.late is not None:
            self.late = pa.concat_tables([self.late, batch.late])
        if batch.dead is not None:
            self.dead.append(batch.dead)
        return super().store(batch)

    def _beginning(self, topic: str) -> Position:
        if not self._after:
            return super()._beginning(topic)
        return position_at(self._log, topic, self._after)

    def _create_topics(self, late_schema: pa.Schema | None, changes: str | None) -> None:
        """Create none: nothing is published."""

    def _enter_outputs(self) -> None:
        with self._database.writing() as db:
            self._keeper.enter(db, self.frontier, [])


def published_in(db: apsw.Connection) -> dict[str, pa.Table]:
    """The rows for each topic in the outbox."""
    found: dict[str, list[pa.Table]] = {}
    for topic, data in db.execute("SELECT topic, data FROM _headrace_outbox ORDER BY sequence"):
        found.setdefault(str(topic), []).append(pa.ipc.open_stream(data).read_all())
    return {topic: pa.concat_tables(parts) for topic, parts in found.items()}
