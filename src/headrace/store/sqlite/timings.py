"""The timings of the last batches of each step, kept beside the law.

An older database lacks this table. A run adds it without changing the format, so readers must
expect databases without it.
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
    """The timings of one step. They are written with the next transaction; the last at once."""

    def __init__(self, database: Database, step: str) -> None:
        self._database = database
        self._step = step
        self._waiting: list[Timing] = []
        with database.writing() as db:
            db.execute(_TABLE)

    def note(self, timing: Timing, *, last: bool) -> None:
        """Keep a timing; write it at once if it is the last."""
        self._waiting.append(timing)
        if last:
            with self._database.writing() as db:
                self.write(db)

    def write(self, db: apsw.Connection) -> None:
        """Write the waiting timings, in a transaction, and delete old ones."""
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
