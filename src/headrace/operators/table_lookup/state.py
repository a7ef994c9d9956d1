"""State of the stream-table join: table versions, frontiers, and rows that may be amended."""

from __future__ import annotations

from collections.abc import Mapping

import apsw
import pyarrow as pa

from headrace.clock import micros
from headrace.operators.table_lookup.declare import Enriched
from headrace.operators.table_lookup.lookup import FOUND, MOMENT
from headrace.operators.table_lookup.payload import LookedUp, LookupShapes
from headrace.pipeline.tables import REVISION, ROW
from headrace.plan import metadata
from headrace.plan.batch import StepBatch
from headrace.plan.law import Law
from headrace.plan.steps import Step
from headrace.plan.table_changes import AMENDS, FROM, ORDER
from headrace.store.keeper import Keeper, Passage, Stored
from headrace.store.outbox import put
from headrace.store.sqlite.database import PREFIX
from headrace.store.sqlite.values import (
    check_storable,
    create_table,
    fill_temporary,
    insert,
    quoted,
    table_from,
    tables_from,
)


class VersionTable:
    """The versions of each key, in order."""

    def __init__(self, name: str, key: tuple[str, ...], schema: pa.Schema) -> None:
        check_storable(schema, f"table {name!r}")
        self.schema = schema
        self.name = quoted(f"{PREFIX}versions_{name}")
        self._key = key

    def create(self, db: apsw.Connection) -> None:
        create_table(db, self.name, self.schema, (*self._key, *ORDER))

    def add(self, db: apsw.Connection, versions: pa.Table) -> int:
        """Add versions; return the number of new ones."""
        before = db.total_changes()
        insert(db, self.name, versions)
        return db.total_changes() - before

    def all(self, db: apsw.Connection) -> pa.Table:
        """Every version."""
        return table_from(list(db.execute(f"SELECT * FROM {self.name}")), self.schema)


class FrontierTable:
    """The frontiers of topics at the last stored batch, which retention may remove from the log."""

    def __init__(self, step: str) -> None:
        self._table = f"{PREFIX}frontiers_{step}"
        self._name = quoted(self._table)

    def keep(self, db: apsw.Connection, frontiers: Mapping[str, int]) -> None:
        """Replace the frontiers. Steps of earlier versions do not have this table yet."""
        if not frontiers:
            return
        db.execute(
            f"CREATE TABLE IF NOT EXISTS {self._name} "
            "(topic TEXT PRIMARY KEY, frontier INTEGER NOT NULL)"
        )
        db.executemany(f"INSERT OR REPLACE INTO {self._name} VALUES (?, ?)", frontiers.items())

    def all(self, db: apsw.Connection) -> dict[str, int]:
        """The stored frontiers by topic."""
        there = "SELECT count(*) FROM sqlite_schema WHERE name = ?"
        if not db.execute(there, (self._table,)).get:
            return {}
        return {str(t): int(f) for t, f in db.execute(f"SELECT * FROM {self._name}")}


class PublishedRows:
    """Published rows that a late change may still correct, by lookup columns and event time."""

    def __init__(self, step: Step, schema: pa.Schema, versions: VersionTable) -> None:
        assert isinstance(step.stream, Enriched)
        assert step.stream.amend is not None
        self._enriched = step.stream
        self._amend = micros(step.stream.amend)
        self._versions = versions
        own = [*self._enriched.input.columns, ROW, MOMENT, metadata.READY, *FOUND]
        self._kept = pa.schema([schema.field(name) for name in own])
        self._public = pa.schema([schema.field(name) for name in self._enriched.columns])
        check_storable(self._kept, f"step {step.name!r}")
        self._name = quoted(f"{PREFIX}told_rows_{step.name}")
        self._index = quoted(f"{PREFIX}told_rows_by_{step.name}")
        self._past = quoted(f"{PREFIX}told_rows_past_{step.name}")
        self._new = quoted(f"{PREFIX}new_versions_{step.name}")
        self._fix = quoted(f"{PREFIX}fixed_{step.name}")

    def create(self, db: apsw.Connection) -> None:
        by = ", ".join(quoted(mine) for mine, _ in self._enriched.on)
        create_table(db, self._name, self._kept, [ROW])
        db.execute(f"CREATE INDEX {self._index} ON {self._name} ({by}, {MOMENT})")
        db.execute(f"CREATE INDEX {self._past} ON {self._name} ({MOMENT})")

    def add(self, db: apsw.Connection, rows: pa.Table) -> None:
        """Keep published rows."""
        insert(db, self._name, rows.select(self._kept.names))

    def correct(self, db: apsw.Connection, versions: pa.Table, topic: str) -> None:
        """Publish again the rows for which new versions, already stored, are valid."""
        if not versions.num_rows:
            return
        names = [theirs for _, theirs in self._enriched.on]
        fill_temporary(db, self._new, versions.select([*names, FROM, AMENDS]))
        self._find(db)
        rows = db.execute(f"SELECT {self._columns()} FROM {self._fix} ORDER BY {ROW}")
        for some in tables_from(rows, self._public):
            put(db, topic, some)
        found = ", ".join(f"{name} = f.{name}" for name in FOUND)
        db.execute(
            f"UPDATE {self._name} SET {found} FROM {self._fix} f WHERE f.{ROW} = {self._name}.{ROW}"
        )
        db.execute(f"DROP TABLE {self._fix}")

    def forget(self, db: apsw.Connection, frontier: int | None) -> None:
        """Remove the rows that no change can correct any more, at a frontier of the table."""
        if frontier is not None:
            db.execute(f"DELETE FROM {self._name} WHERE {MOMENT} <= ?", (frontier - self._amend,))

    def _find(self, db: apsw.Connection) -> None:
        """Select the rows whose valid version has changed, with the new version."""
        on = self._enriched.on
        keys = ", ".join(quoted(theirs) for _, theirs in on)
        mine = " AND ".join(f"t.{quoted(m)} = n.{quoted(theirs)}" for m, theirs in on)
        best = " AND ".join(f"w.{quoted(theirs)} = t.{quoted(m)}" for m, theirs in on)
        same = " AND ".join(f"v.{quoted(theirs)} = t.{quoted(m)}" for m, theirs in on)
        order, newest = ", ".join(ORDER), ", ".join(f"w.{name} DESC" for name in ORDER)
        theirs = ", ".join(
            f"iif(v.{metadata.DELETED}, NULL, v.{quoted(column)}) AS {quoted(name)}"
            for column, name in self._enriched.from_table
        )
        events = ", ".join(f"t.{quoted(name)}" for name in self._enriched.input.columns)
        found = ", ".join(f"v.{name} AS {note}" for name, note in zip(ORDER, FOUND, strict=True))
        differs = " OR ".join(
            f"v.{name} IS NOT t.{note}" for name, note in zip(ORDER, FOUND, strict=True)
        )
        db.execute(f"DROP TABLE IF EXISTS {self._fix}")
        db.execute(
            f"CREATE TEMP TABLE {self._fix} AS SELECT {events}{', ' * bool(theirs)}{theirs}, "
            f"t.{ROW}, max(t.{metadata.READY}, v.{metadata.COMMIT}) AS {REVISION}, {found} "
            f"FROM (SELECT {keys}, min({FROM}) AS since FROM {self._new} WHERE {AMENDS} "
            f"GROUP BY {keys}) n "
            f"JOIN {self._name} t ON {mine} AND t.{MOMENT} >= n.since "
            f"JOIN {self._versions.name} v ON {same} AND "
            f"({', '.join(f'v.{name}' for name in ORDER)}) = (SELECT {order} "
            f"FROM {self._versions.name} w WHERE {best} AND w.{FROM} <= t.{MOMENT} "
            f"AND (w.{metadata.COMMIT} <= t.{metadata.READY} OR w.{AMENDS}) "
            f"ORDER BY {newest} LIMIT 1) WHERE {differs}"
        )

    def _columns(self) -> str:
        return ", ".join(quoted(name) for name in self._public.names)


class LookupKeeper(Keeper):
    """Keeps the versions, and publishes the rows with their table columns."""

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
        self._published = PublishedRows(step, shapes.amendable, self._versions) if amends else None

    def create(self, db: apsw.Connection) -> None:
        self._versions.create(db)
        if self._published is not None:
            self._published.create(db)

    def recall(self, db: apsw.Connection, request: pa.Table | None) -> pa.Table:
        """The versions of the table."""
        return self._versions.all(db)

    def frontiers(self, db: apsw.Connection) -> Mapping[str, int]:
        return self._frontiers.all(db)

    def store(self, db: apsw.Connection, batch: StepBatch[LookedUp], passage: Passage) -> Law:
        found = batch.payload
        counted = self._versions.add(db, found.versions)
        self._frontiers.keep(db, found.frontiers)
        if self._published is not None:
            self._published.correct(db, found.versions, self._topic)
        for some in found.rows.slices():
            if self._published is not None:
                self._published.add(db, some)
            counted += put(db, self._topic, some.select(self.schema.names))
        if self._published is not None:
            topic = self._table.topic
            self._published.forget(db, self._log.frontier(topic, batch.end[topic].commit))
        self._crash_point("stored panes")
        return Law(counted=counted)


keeper = LookupKeeper
