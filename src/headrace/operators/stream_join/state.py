"""State of an outer join: rows are kept until a match arrives, or none can arrive any more."""

from __future__ import annotations

from collections.abc import Iterator

import apsw
import pyarrow as pa
import pyarrow.compute as pc

from headrace.clock import micros
from headrace.operators.stream_join.declare import JOINED_AT, Join
from headrace.operators.stream_join.spark import KIND, LEFT, LEFT_ROW, PAIR, RIGHT, RIGHT_ROW
from headrace.pipeline.stream import Stream, sources
from headrace.plan.batch import Rows, StepBatch
from headrace.plan.law import Law
from headrace.plan.position import Positions
from headrace.plan.staging import Staged
from headrace.plan.steps import Step
from headrace.store.keeper import Keeper, Passage, Stored
from headrace.store.outbox import put
from headrace.store.sqlite.database import PREFIX
from headrace.store.sqlite.values import check_storable, insert, quoted, sql_type, tables_from


class UnmatchedRows:
    """Rows without a match so far, by side and position in the log."""

    def __init__(self, step: Step, schema: pa.Schema) -> None:
        check_storable(schema, f"step {step.name!r}")
        self._schema = schema
        self._name = quoted(f"{PREFIX}alone_{step.name}")
        self._index = quoted(f"{PREFIX}alone_known_{step.name}")

    def create(self, db: apsw.Connection) -> None:
        columns = ", ".join(f"{quoted(f.name)} {sql_type(f.type)}" for f in self._schema)
        db.execute(
            f"CREATE TABLE {self._name} (kind INTEGER NOT NULL, row TEXT NOT NULL, {columns}, "
            "PRIMARY KEY (kind, row)) WITHOUT ROWID"
        )
        db.execute(f"CREATE INDEX {self._index} ON {self._name} (kind, {JOINED_AT})")

    def add(self, db: apsw.Connection, kind: int, places: pa.ChunkedArray, rows: pa.Table) -> None:
        """Keep rows of a side."""
        kinds = pa.repeat(kind, rows.num_rows)
        insert(db, self._name, rows.add_column(0, "row", places).add_column(0, "kind", kinds))

    def strike(self, db: apsw.Connection, kind: int, places: pa.Array) -> None:
        """Remove rows of a side that have matched."""
        db.executemany(
            f"DELETE FROM {self._name} WHERE kind = ? AND row = ?",
            ((kind, place) for place in places.to_pylist()),
        )

    def leaving(self, db: apsw.Connection, kind: int, known: int) -> Iterator[pa.Table]:
        """Remove and return the rows of a side whose wait ended by a time."""
        names = ", ".join(quoted(name) for name in self._schema.names)
        where = f"kind = ? AND {JOINED_AT} <= ?"
        rows = db.execute(
            f"SELECT {names} FROM {self._name} WHERE {where} ORDER BY {JOINED_AT}, row",
            (kind, known),
        )
        yield from tables_from(rows, self._schema)
        db.execute(f"DELETE FROM {self._name} WHERE {where}", (kind, known))


class JoinKeeper(Keeper):
    """Publishes pairs and unmatched rows, and keeps the rows that may still match."""

    def __init__(self, stored: Stored) -> None:
        step = stored.step
        assert isinstance(step.stream, Join)
        (self._topic,) = step.outputs
        self._join = step.stream
        self.schema = stored.shapes.rows
        self._log = stored.log
        self._crash_point = stored.crash_point
        self._alone = UnmatchedRows(step, self.schema) if self._join.how != "inner" else None

    def create(self, db: apsw.Connection) -> None:
        if self._alone is not None:
            self._alone.create(db)

    def store(self, db: apsw.Connection, batch: StepBatch[Rows], passage: Passage) -> Law:
        """Publish pairs, and rows that no match can reach any more."""
        rows = batch.payload.rows
        assert isinstance(rows, Staged)
        if self._join.how != "anti":
            for some in rows.slices(pc.field(KIND) == PAIR):
                put(db, self._topic, some.select(self.schema.names))
        if self._alone is not None:
            self._settle(db, self._alone, rows, batch.end)
        self._crash_point("stored panes")
        return Law(counted=batch.taken)

    def _settle(
        self, db: apsw.Connection, alone: UnmatchedRows, rows: Staged, end: Positions
    ) -> None:
        sides = [(LEFT, LEFT_ROW, self._join.right)] * self._join.keeps_left
        sides += [(RIGHT, RIGHT_ROW, self._join.left)] * self._join.keeps_right
        for kind, place, other in sides:
            for some in rows.slices(pc.field(KIND) == kind):
                alone.add(db, kind, some.column(place), some.select(self.schema.names))
            for some in rows.slices(pc.field(KIND) == PAIR):
                alone.strike(db, kind, some.column(place).unique())
            reached = [self._log.frontier(t, end[t].commit) for t in _topics(other)]
            if None not in reached:
                known = min(f for f in reached if f is not None) - micros(self._join.delay)
                for some in alone.leaving(db, kind, known):
                    put(db, self._topic, some)


def _topics(stream: Stream) -> list[str]:
    return [source.topic.name for source in sources(stream)]


keeper = JoinKeeper
