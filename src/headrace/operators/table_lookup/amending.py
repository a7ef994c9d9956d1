"""Rows that were told with what a table said, kept as long as a late change may correct it."""

from __future__ import annotations

import itertools

import apsw
import pyarrow as pa

from headrace.clock import micros
from headrace.operators.table_lookup.declare import Enriched
from headrace.operators.table_lookup.lookup import FOUND, MOMENT
from headrace.operators.table_lookup.versions import VersionTable
from headrace.pipeline.tables import REVISION, ROW
from headrace.plan import metadata
from headrace.plan.steps import Step
from headrace.plan.table_changes import AMENDS, FROM, ORDER
from headrace.store.outbox import put
from headrace.store.sqlite.database import PREFIX
from headrace.store.sqlite.values import check_storable, insert, quoted, sql_type, table_from

_ROWS_AT_ONCE = 50_000


class PublishedRows:
    """Rows of an enriched stream, by the columns they were looked up by and their time."""

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
        columns = ", ".join(f"{quoted(f.name)} {sql_type(f.type)}" for f in self._kept)
        by = ", ".join(quoted(mine) for mine, _ in self._enriched.on)
        db.execute(f"CREATE TABLE {self._name} ({columns}, PRIMARY KEY ({ROW})) WITHOUT ROWID")
        db.execute(f"CREATE INDEX {self._index} ON {self._name} ({by}, {MOMENT})")
        db.execute(f"CREATE INDEX {self._past} ON {self._name} ({MOMENT})")

    def add(self, db: apsw.Connection, rows: pa.Table) -> None:
        """Keep rows that were told."""
        insert(db, self._name, rows.select(self._kept.names))

    def correct(self, db: apsw.Connection, versions: pa.Table, topic: str) -> None:
        """Tell again of the rows that new versions, which are stored already, are valid for."""
        if not versions.num_rows:
            return
        self._remember(db, versions)
        self._find(db)
        rows = db.execute(f"SELECT {self._columns()} FROM {self._fix} ORDER BY {ROW}")
        while some := [tuple(row) for row in itertools.islice(rows, _ROWS_AT_ONCE)]:
            put(db, topic, table_from(some, self._public))
        found = ", ".join(f"{name} = f.{name}" for name in FOUND)
        db.execute(
            f"UPDATE {self._name} SET {found} FROM {self._fix} f WHERE f.{ROW} = {self._name}.{ROW}"
        )
        db.execute(f"DROP TABLE {self._fix}")

    def forget(self, db: apsw.Connection, frontier: int | None) -> None:
        """Forget the rows that no change can correct, now that the table has come so far."""
        if frontier is not None:
            db.execute(f"DELETE FROM {self._name} WHERE {MOMENT} <= ?", (frontier - self._amend,))

    def _remember(self, db: apsw.Connection, versions: pa.Table) -> None:
        """The keys that have new versions, and from when on."""
        keys = [quoted(theirs) for _, theirs in self._enriched.on]
        db.execute(
            f"CREATE TEMP TABLE IF NOT EXISTS {self._new} ({', '.join(keys)}, {FROM}, amends)"
        )
        db.execute(f"DELETE FROM {self._new}")
        names = [theirs for _, theirs in self._enriched.on]
        insert(db, self._new, versions.select([*names, FROM, AMENDS]))

    def _find(self, db: apsw.Connection) -> None:
        """The rows for which another version is valid now than was told, beside it."""
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
            f"FROM (SELECT {keys}, min({FROM}) AS since FROM {self._new} WHERE amends "
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
