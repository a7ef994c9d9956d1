"""The latest windows of a view, at a cost that does not grow with the view.

A view of windows is an SQL view of one table, which has an index by the end of the window. In a
WHERE, SQLite takes a name for the table's column before the view's, so a bound on the end of the
window uses that index.
"""

from __future__ import annotations

from dataclasses import dataclass

import apsw

from headrace.pipeline.time import WINDOW_END, WINDOW_START
from headrace.store.sqlite.database import panes_of, slots_of
from headrace.store.sqlite.values import quoted


@dataclass(frozen=True)
class Recent:
    """The SELECT of a view, and its table with an index by the end of the window if it has one."""

    select: str
    table: str | None

    def since(self, end: int | None) -> str:
        """The SELECT of the windows that end at a moment or later; of all without a moment."""
        if end is None or self.table is None:
            return self.select
        return f"{self.select} {self._joint} {WINDOW_END} >= {end}"

    def bound(self, db: apsw.Connection, rows: int) -> int | None:
        """A moment such that the rows whose windows begin last have windows that end after it.

        So many rows with the latest ends begin at `start` or later. Any row that begins later than
        one of those ends after `start` too, however long sessions are.
        """
        if self.table is None:
            return None
        # Where only final rows are shown, the others are in the table nevertheless.
        end = db.execute(
            f"SELECT {WINDOW_END} FROM {self.table} {self._condition} "
            f"ORDER BY {WINDOW_END} DESC LIMIT 1 OFFSET {rows}"
        ).get
        if end is None:
            return None
        start = db.execute(
            f"SELECT {WINDOW_START} FROM {self.table} {self._condition} {self._joint} "
            f"{WINDOW_END} >= {end} ORDER BY {WINDOW_START} DESC LIMIT 1 OFFSET {rows}"
        ).get
        return int(start)

    def ends(self, db: apsw.Connection, most: int) -> list[int]:
        """The ends of the latest windows, by one step in the index for each."""
        ends: list[int] = []
        while self.table is not None and len(ends) < most:
            before = (ends[-1],) if ends else (1 << 62,)
            sql = f"SELECT max({WINDOW_END}) FROM {self.table} WHERE {WINDOW_END} < ?"
            end = db.execute(sql, before).get
            if end is None:
                break
            ends.append(int(end))
        return ends

    @property
    def _joint(self) -> str:
        return "AND" if self._condition else "WHERE"

    @property
    def _condition(self) -> str:
        """The WHERE of a view of one table, if it has one."""
        return self.select.rpartition(f" FROM {self.table}")[2]


def recent(step: str, sql: str) -> Recent:
    """The latest windows of a view that has this SQL, by the name of its step."""
    _, _, select = sql.partition(" AS ")
    tables = (quoted(panes_of(step)), quoted(slots_of(step)))
    return Recent(select, next((table for table in tables if f" FROM {table}" in sql), None))
