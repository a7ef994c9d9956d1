"""The last published version of each pane that is not final yet, for one topic."""

from __future__ import annotations

import apsw
import numpy as np
import pyarrow as pa

from headrace.operators.window.table import PaneTable
from headrace.pipeline.time import WINDOW_END
from headrace.plan.steps import Step
from headrace.store.sqlite.database import PREFIX
from headrace.store.sqlite.values import fill_temporary, quoted, table_from

_ROWS_AT_ONCE = 100_000

_TOLD, _WAITING = "_told", "_waiting"
_OWN = [pa.field(_TOLD, pa.int64()), pa.field(_WAITING, pa.bool_())]
"""The time of publication by the log's clock, and whether the pane has changed since."""


class LastPublished(PaneTable):
    """Rows of a pane table as one topic has them, from their first publication on."""

    def __init__(self, step: Step, topic: str, of: PaneTable) -> None:
        # The space keeps it apart from the step's own tables.
        super().__init__(step, pa.schema([*of.schema, *_OWN]), name=f"told {topic}", key=of.key)
        self._of = of
        self._asked = quoted(f"{PREFIX}asked {topic}")
        self._waits = quoted(f"{PREFIX}waiting {topic}")

    def enter(self, db: apsw.Connection, closed: int | None, *, spoken: bool) -> None:
        """Create the table if it does not exist.

        A topic that was written to without one (`spoken`) got every change at once, so its last
        published versions are the current panes.
        """
        if self._exists(db):
            return
        self._create_table(db)
        db.execute(f"CREATE INDEX {self._waits} ON {self.name} ({_TOLD}) WHERE {_WAITING}")
        if spoken:
            open_ones = "" if closed is None else f"WHERE {WINDOW_END} > {closed}"
            db.execute(f"INSERT INTO {self.name} SELECT *, 0, 0 FROM {self._of.name} {open_ones}")

    def drop(self, db: apsw.Connection) -> None:
        """Drop the table, which would no longer be kept up to date."""
        db.execute(f"DROP TABLE IF EXISTS {self.name}")

    def find(self, db: apsw.Connection, panes: pa.Table) -> pa.Table:
        """The last published version of each pane; nulls if there is none."""
        self._ask(db, panes)
        there = list(
            db.execute(
                f"SELECT n.rowid, o.* FROM {self._asked} n JOIN {self.name} o ON {self._match}"
            )
        )
        found = np.full(panes.num_rows, -1)
        found[[row[0] - 1 for row in there]] = range(len(there))
        return table_from([row[1:] for row in there], self.schema).take(
            pa.array(found, mask=found < 0)
        )

    def tell(self, db: apsw.Connection, panes: pa.Table, now: int) -> None:
        """Record that these were published now."""
        count = panes.num_rows
        rows = pa.Table.from_arrays(
            [*panes.columns, pa.repeat(now, count), pa.repeat(False, count)], schema=self.schema
        )
        self.merge(db, rows, remember=False)

    def wait(self, db: apsw.Connection, panes: pa.Table) -> None:
        """Record that these have changed and wait to be published."""
        self._ask(db, panes)
        db.execute(
            f"UPDATE {self.name} SET {_WAITING} = 1 WHERE rowid IN "
            f"(SELECT o.rowid FROM {self._asked} n JOIN {self.name} o ON {self._match})"
        )

    def waiting(self, db: apsw.Connection, since: int, end_after: int) -> pa.Table:
        """Some waiting panes of windows that end after a moment, published at `since` or before.

        The result has their current values, and is empty only if none is left.
        """
        columns = ", ".join(f"n.{quoted(name)}" for name in self._of.schema.names)
        rows = db.execute(
            f"SELECT {columns} FROM {self.name} o JOIN {self._of.name} n ON {self._match} "
            f"WHERE o.{_WAITING} AND o.{_TOLD} <= ? AND n.{WINDOW_END} > ? LIMIT {_ROWS_AT_ONCE}",
            (since, end_after),
        )
        return table_from(list(rows), self._of.schema)

    def forget(self, db: apsw.Connection, closed: int | None) -> None:
        """Remove panes that cannot change again, but not the ranks of a live board."""
        if self._of.forgets:
            super().forget(db, closed)

    def _exists(self, db: apsw.Connection) -> bool:
        found = "SELECT count(*) FROM sqlite_schema WHERE name = ?"
        return bool(db.execute(found, (self.name.strip('"'),)).get)

    def _ask(self, db: apsw.Connection, panes: pa.Table) -> None:
        fill_temporary(db, self._asked, panes.select(list(self.key)))
