"""Random transactions on two tables of a shop in SQLite: all that an application does to rows."""

from __future__ import annotations

import contextlib
from pathlib import Path

import apsw

from headrace.clock import SECOND, SystemClock
from tests.recovery.loading import Loading

TABLES = ("orders", "lines")

_PAUSE = SECOND // 50
_clock = SystemClock()


class Load(Loading):
    """Transactions of a seed. Every row of one has the same number."""

    def __init__(self, path: Path, seed: int) -> None:
        super().__init__(seed)
        self._path = path
        with self._connected() as db:
            for table in TABLES:
                db.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, tx INT, note TEXT)")

    def run(self, transactions: int) -> None:
        with self._connected() as db:
            for _ in range(transactions):
                self._transaction(db)
                _clock.sleep(_PAUSE)

    def _connected(self) -> contextlib.closing[apsw.Connection]:
        db = apsw.Connection(str(self._path))
        db.set_busy_timeout(60_000)
        return contextlib.closing(db)

    def _transaction(self, db: apsw.Connection) -> None:
        chosen = self._random
        db.execute("BEGIN IMMEDIATE")
        number = chosen.randrange(1 << 40)
        for _ in range(chosen.choice([1, 3, 10])):
            table, key = chosen.choice(TABLES), chosen.randrange(300)
            what = chosen.random()
            if what < 0.02:
                sql = f"DELETE FROM {table}"
            elif what < 0.05:  # more than a commit may have
                rows = "WITH n(i) AS (VALUES (0) UNION ALL SELECT i + 1 FROM n WHERE i < 600)"
                sql = f"INSERT OR REPLACE INTO {table} {rows} SELECT 1000 + i, ?1, 'bulk' FROM n"
            elif what < 0.6:
                sql = f"INSERT OR REPLACE INTO {table} VALUES (?2, ?1, 'new')"
            elif what < 0.8:
                sql = f"UPDATE OR REPLACE {table} SET id = ?2 + 1, tx = ?1 WHERE id = ?2"
            elif what < 0.9:
                sql = f"UPDATE {table} SET note = note || 'x', tx = ?1 WHERE id < ?2 / 30"
            else:
                sql = f"DELETE FROM {table} WHERE id = ?2 AND tx != ?1"
            db.execute(sql, _bound(sql, number, key))
        db.execute("ROLLBACK" if chosen.random() < 0.1 else "COMMIT")


def _bound(sql: str, number: int, key: int) -> tuple[int, ...]:
    """The values of the parameters that a statement has."""
    return (number, key) if "?2" in sql else (number,) if "?1" in sql else ()
