"""How long the last batches of each step took, kept beside the law for whoever asks later.

A database may be older than this table. It is made where it is missing, which leaves the format as
it is for others, and a reader has to do without it where nothing has run since.
"""

from __future__ import annotations

import json
from dataclasses import asdict

import apsw

from headrace.plan.timing import Timing
from headrace.store.sqlite.database import Database

_KEPT = 200

_TABLE = """
CREATE TABLE IF NOT EXISTS _headrace_timing (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    step TEXT NOT NULL,
    timing TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS _headrace_timing_by_step ON _headrace_timing (step, id);
"""


class Timings:
    """Those of one step. They wait for the next transaction, and the last ones have their own."""

    def __init__(self, database: Database, step: str) -> None:
        self._database = database
        self._step = step
        self._waiting: list[Timing] = []
        with database.writing() as db:
            db.execute(_TABLE)

    def note(self, timing: Timing, *, last: bool) -> None:
        """Keep one; if it is the last, at once."""
        self._waiting.append(timing)
        if last:
            with self._database.writing() as db:
                self.write(db)

    def write(self, db: apsw.Connection) -> None:
        """Write down what is waiting, in a transaction, and forget what is old."""
        for timing in self._waiting:
            db.execute(
                "INSERT INTO _headrace_timing (step, timing) VALUES (?, ?)",
                (self._step, json.dumps(asdict(timing))),
            )
        self._waiting.clear()
        db.execute(
            "DELETE FROM _headrace_timing WHERE step = ? AND id <= (SELECT id FROM "
            "_headrace_timing WHERE step = ? ORDER BY id DESC LIMIT 1 OFFSET ?)",
            (self._step, self._step, _KEPT),
        )
