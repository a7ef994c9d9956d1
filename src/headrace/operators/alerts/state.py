"""State of alerts: the ids of published alerts, kept while they can occur again."""

from __future__ import annotations

from functools import lru_cache

import apsw
import pyarrow as pa

from headrace.clock import micros, to_datetime
from headrace.operators.alerts.declare import ALERT, APPENDED, AT, Alerts
from headrace.operators.alerts.spark import TURN
from headrace.plan import metadata
from headrace.plan.batch import Rows, StepBatch
from headrace.plan.law import Law
from headrace.store.keeper import Keeper, Passage, Stored
from headrace.store.outbox import put
from headrace.store.sqlite.database import PREFIX
from headrace.store.sqlite.values import quoted

_MOMENT = pa.timestamp("us", tz="UTC")
_DUE = (TURN, AT, metadata.COMMIT, metadata.PARTITION, metadata.OFFSET, ALERT)
"""The order of publication."""

_COMMITS = 10_000
"""The number of commits whose times are cached."""


class PublishedAlerts:
    """The ids of published alerts, with the times of their events."""

    def __init__(self, step: str) -> None:
        self._name = quoted(f"{PREFIX}alerted_{step}")
        self._index = quoted(f"{PREFIX}alerted_at_{step}")

    def create(self, db: apsw.Connection) -> None:
        db.execute(
            f"CREATE TABLE {self._name} (alert TEXT PRIMARY KEY, at INTEGER NOT NULL) WITHOUT ROWID"
        )
        db.execute(f"CREATE INDEX {self._index} ON {self._name} (at)")

    def add(self, db: apsw.Connection, alert: str, at: int, forgotten: int) -> bool:
        """Add an alert; True if it is new. Alerts of events up to `forgotten` do not count."""
        known = db.execute(f"SELECT at FROM {self._name} WHERE alert = ?", (alert,)).get
        if known is not None and int(str(known)) > forgotten:
            return False
        db.execute(f"INSERT OR REPLACE INTO {self._name} VALUES (?, ?)", (alert, at))
        return True

    def forget(self, db: apsw.Connection, upto: int) -> None:
        """Remove the alerts of events up to a time."""
        db.execute(f"DELETE FROM {self._name} WHERE at <= ?", (upto,))


class AlertKeeper(Keeper):
    """Publishes each alert once."""

    def __init__(self, stored: Stored) -> None:
        step, log = stored.step, stored.log
        assert isinstance(step.stream, Alerts)
        (self._topic,) = step.outputs
        (source,) = step.topics
        self._crash_point = stored.crash_point
        self._delay = micros(step.stream.delay)
        self._published = PublishedAlerts(step.name)
        self._appended = lru_cache(_COMMITS)(log.commit_time)
        self._frontier = lru_cache(_COMMITS)(lambda commit: log.frontier(source, commit))
        kinds = {field.name: field.type for field in stored.shapes.rows} | {APPENDED: _MOMENT}
        self.schema = pa.schema([(name, kinds[name]) for name in step.stream.columns])

    def create(self, db: apsw.Connection) -> None:
        self._published.create(db)

    def store(self, db: apsw.Connection, batch: StepBatch[Rows], passage: Passage) -> Law:
        """Publish the new alerts, in the order of their turns."""
        (rows,) = batch.payload.slices()
        found = rows.sort_by([(name, "ascending") for name in _DUE])
        moments = found.column(AT).cast(pa.int64()).to_pylist()
        new = [
            self._published.add(db, alert, at, self._forgotten(turn))
            for alert, at, turn in zip(
                found.column(ALERT).to_pylist(),
                moments,
                found.column(TURN).to_pylist(),
                strict=True,
            )
        ]
        due = found.filter(pa.array(new, pa.bool_()))
        commits = due.column(metadata.COMMIT).to_pylist()
        appended = [to_datetime(self._appended(commit)) for commit in commits]
        due = due.append_column(APPENDED, pa.array(appended, _MOMENT)).select(self.schema.names)
        put(db, self._topic, due)
        if passage.after is not None:
            self._published.forget(db, passage.after - self._delay)
        self._crash_point("stored panes")
        return Law(counted=batch.taken)

    def _forgotten(self, turn: int) -> int:
        """The event time up to which no event can be evaluated again, as of a commit.

        It depends on the log and not on the batch. So if an id is used again for another event,
        long after, its alert is published whatever the batches are.
        """
        frontier = self._frontier(turn - 1)
        return metadata.NO_FRONTIER if frontier is None else frontier - self._delay


keeper = AlertKeeper
