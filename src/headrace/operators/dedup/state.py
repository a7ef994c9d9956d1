"""State of deduplication: the open groups, in SQLite."""

from __future__ import annotations

from collections.abc import Iterator

import apsw
import pyarrow as pa

from headrace.clock import micros
from headrace.operators.dedup.declare import Deduplicated
from headrace.operators.dedup.payload import Distinct, GroupShapes
from headrace.plan.batch import StepBatch
from headrace.plan.law import Law
from headrace.plan.metadata import OPENED
from headrace.store.keeper import Keeper, Passage, Stored
from headrace.store.outbox import put
from headrace.store.sqlite.database import PREFIX, groups_of
from headrace.store.sqlite.values import (
    check_storable,
    create_table,
    fill_temporary,
    insert,
    quoted,
    table_from,
    tables_from,
    to_sqlite,
)


class GroupTable:
    """Open groups, by key and event time of their first row."""

    def __init__(self, step: str, by: tuple[str, ...], schema: pa.Schema) -> None:
        check_storable(schema, f"step {step!r}")
        self._schema = schema
        self._by = by
        self._key = [*by, OPENED]
        self._name = quoted(groups_of(step))
        self._index = quoted(f"{PREFIX}groups_opened_{step}")
        self._wanted = quoted(f"{PREFIX}groups_wanted_{step}")

    def create(self, db: apsw.Connection) -> None:
        create_table(db, self._name, self._schema, self._key)
        db.execute(f"CREATE INDEX {self._index} ON {self._name} ({OPENED})")

    def of(self, db: apsw.Connection, keys: pa.Table) -> pa.Table:
        """The keys and opening times of the groups of these keys."""
        fill_temporary(db, self._wanted, keys.select(list(self._by)))
        found = ", ".join(f"o.{quoted(name)}" for name in self._key)
        same = " AND ".join(f"o.{quoted(name)} = n.{quoted(name)}" for name in self._by)
        rows = list(
            db.execute(f"SELECT {found} FROM {self._wanted} n CROSS JOIN {self._name} o ON {same}")
        )
        db.execute(f"DELETE FROM {self._wanted}")
        return table_from(rows, pa.schema([self._schema.field(name) for name in self._key]))

    def replace(self, db: apsw.Connection, groups: pa.Table) -> int:
        """Insert or update groups; return the number of new ones."""
        before = db.total_changes()
        same = " AND ".join(f"{quoted(name)} = ?" for name in self._key)
        keys = zip(*(to_sqlite(groups.column(name)) for name in self._key), strict=True)
        db.executemany(f"DELETE FROM {self._name} WHERE {same}", keys)
        replaced = db.total_changes() - before
        insert(db, self._name, groups)
        return int(groups.num_rows) - replaced

    def over(self, db: apsw.Connection, opened: int) -> Iterator[pa.Table]:
        """The groups opened up to a time, in the order of their opening."""
        order = ", ".join(map(quoted, [OPENED, *self._by]))
        rows = db.execute(
            f"SELECT * FROM {self._name} WHERE {OPENED} <= ? ORDER BY {order}", (opened,)
        )
        yield from tables_from(rows, self._schema)

    def forget(self, db: apsw.Connection, opened: int) -> int:
        """Remove the groups opened up to a time; return their number."""
        before = db.total_changes()
        db.execute(f"DELETE FROM {self._name} WHERE {OPENED} <= ?", (opened,))
        return db.total_changes() - before


class GroupKeeper(Keeper):
    """Keeps groups while a row can join them, and publishes the row that each keeps."""

    def __init__(self, stored: Stored) -> None:
        made, shapes = stored.step.stream, stored.shapes
        assert isinstance(made, Deduplicated)
        assert isinstance(shapes, GroupShapes)
        (self._topic,) = stored.step.outputs
        self.schema = shapes.rows
        self._crash_point = stored.crash_point
        self._last = made.keep == "last"
        self._held_for = micros(made.ttl) + micros(made.delay)
        self._groups = GroupTable(stored.step.name, made.by, shapes.groups)

    def create(self, db: apsw.Connection) -> None:
        self._groups.create(db)

    def recall(self, db: apsw.Connection, request: pa.Table | None) -> pa.Table:
        """The open groups of the keys of a request."""
        assert request is not None
        return self._groups.of(db, request)

    def store(self, db: apsw.Connection, batch: StepBatch[Distinct], passage: Passage) -> Law:
        counted = put(db, self._topic, batch.payload.rows)
        new, gone = self._groups.replace(db, batch.payload.groups), 0
        if passage.after is not None:
            # A row that would join one of these groups is late by now.
            opened = passage.after - self._held_for
            for groups in self._groups.over(db, opened) if self._last else ():
                counted += put(db, self._topic, groups.select(self.schema.names))
            gone = self._groups.forget(db, opened)
        self._crash_point("stored panes")
        more = new - gone if self._last else 0
        return Law(counted=counted, waiting=more, pairs=-more)


keeper = GroupKeeper
