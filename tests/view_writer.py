"""A writer of a view and its changelog without Spark: what a step's sink does, in short."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.closing import Closing
from headrace.log import Log, Topic
from headrace.plan import metadata
from headrace.plan.crash_points import CrashPoint, nothing
from headrace.store import changelog
from headrace.store.location import database_of
from headrace.store.outbox import Outbox, put
from headrace.store.sqlite.database import LIVE, Database, panes_of
from headrace.store.sqlite.values import create_table, insert, quoted, table_from

ORDERS = pa.schema([("id", pa.int64()), ("note", pa.string())])


class ViewWriter(Closing):
    """Keeps one view with these columns by a key, and its changelog, in a log."""

    def __init__(
        self,
        log: Log,
        app: str = "shop",
        view: str = "orders",
        columns: pa.Schema = ORDERS,
        key: Sequence[str] = ("id",),
        *,
        crash_point: CrashPoint = nothing,
    ) -> None:
        self.log, self.app, self.view, self.key = log, app, view, tuple(key)
        self.schema = columns.append(pa.field(metadata.REVISION, pa.int64()))
        self.topic = changelog.topic_of(app, view)
        log.ensure_topic(Topic(self.topic, 1, changelog.envelope_schema(self.schema), "key"))
        self._table = quoted(panes_of(view))
        self._path = database_of(log.home, app)
        self._stack = contextlib.ExitStack()
        self._crash_point = crash_point
        self._open()

    def begin_anew(self) -> None:
        """Remove the results, as `headrace run --fresh` does."""
        self._stack.close()
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self._path}{suffix}").unlink(missing_ok=True)
        self._open()

    def write(
        self,
        *rows: Mapping[str, Any],
        deleted: Sequence[Mapping[str, Any]] = (),
        revision: int = 1,
        send: bool = True,
    ) -> None:
        """Store rows, delete others by their keys, and send both to the changelog."""
        made = [{**row, metadata.REVISION: revision} for row in rows]
        now = pa.Table.from_pylist(made, schema=self.schema)
        with self._database.writing() as db:
            before = self._take(db, now.select(list(self.key)).to_pylist())
            insert(db, self._table, now)
            gone = self._take(db, deleted)
            there = pa.array([row is not None for row in gone], pa.bool_())
            if now.num_rows:
                was = pa.Table.from_pylist([row or {} for row in before], schema=self.schema)
                put(db, self.topic, changelog.changes(self.app, self.view, self.key, now, was, 0))
            if pa.compute.any(there).as_py():
                old = pa.Table.from_pylist([row for row in gone if row], schema=self.schema)
                put(db, self.topic, changelog.deletions(self.app, self.view, self.key, old, 0))
            self._outbox.forget_sent(db)
        if send:
            self._outbox.send()

    def rows(self) -> list[dict[str, Any]]:
        """The rows of the view, with their revision, by the first column."""
        with self._database.reading() as db:
            found = table_from(list(db.execute(f"SELECT * FROM {self._table}")), self.schema)
        renamed = found.rename_columns([*self.schema.names[:-1], "revision"])
        return sorted(renamed.to_pylist(), key=lambda row: row[self.schema.names[0]])

    def send(self) -> None:
        """Send what a crash has left."""
        self._outbox.send()

    def close(self) -> None:
        self._stack.close()

    def _open(self) -> None:
        self._database = Database(self._path, self.app)
        self._stack.callback(self._database.close)
        producer = self._stack.enter_context(
            self.log.producer(id=f"{self.app}.{self._database.generation}")
        )
        self._outbox = Outbox(self._database, self.log, producer, self._crash_point)
        with self._database.writing() as db:
            if db.execute("SELECT count(*) FROM _headrace_view").get:
                return
            create_table(db, self._table, self.schema, self.key, rowid=True)
            columns = [[f.name, str(f.type)] for f in self.schema]
            db.execute(
                "INSERT INTO _headrace_view VALUES (?, ?, ?, ?, ?, 0, 0)",
                (self.view, self.view, json.dumps(self.key), json.dumps(columns), LIVE),
            )
            db.execute(
                "INSERT INTO _headrace_step VALUES (?, '', '{}', '{}', '{}', NULL, ?, 0)",
                (self.view, json.dumps({})),
            )
            db.execute(f"CREATE VIEW {quoted(self.view)} AS SELECT * FROM {self._table}")

    def _take(self, db: Any, keys: Sequence[Mapping[str, Any]]) -> list[dict[str, Any] | None]:
        """Remove rows by their keys; return each, None if there was none."""
        match = " AND ".join(f"{quoted(name)} IS ?" for name in self.key)
        taken: list[dict[str, Any] | None] = []
        for key in keys:
            values = [key[name] for name in self.key]
            rows = list(db.execute(f"SELECT * FROM {self._table} WHERE {match}", values))
            taken.append(table_from(rows, self.schema).to_pylist()[0] if rows else None)
            db.execute(f"DELETE FROM {self._table} WHERE {match}", values)
        return taken
