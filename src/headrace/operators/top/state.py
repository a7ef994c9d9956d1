"""State of the top N: a table with a row for each rank, beside the table of panes."""

from __future__ import annotations

from dataclasses import dataclass

import apsw
import pyarrow as pa

from headrace.errors import InvalidPipeline
from headrace.operators.top.declare import RANK, Top
from headrace.operators.window.emission.policy import Turn
from headrace.operators.window.state import PaneKeeper
from headrace.operators.window.table import Merged, PaneTable
from headrace.pipeline.time import WINDOW_END, WINDOW_START
from headrace.plan import metadata
from headrace.plan.steps import Step
from headrace.store.keeper import Stored
from headrace.store.sqlite.database import PREFIX
from headrace.store.sqlite.values import insert, ordered, quoted, table_from

_ANY = "_any"
"""A constant column, so that a single ranking of everything has a column too."""


@dataclass(frozen=True)
class Ranked:
    """The ranks whose row has changed, their previous rows, and the ranks that are now empty.

    The previous row of a new rank is all null.
    """

    rows: pa.Table
    before: pa.Table
    gone: pa.Table


class RankTable(PaneTable):
    """The ranked rows by group and rank, which readers see instead of the panes."""

    def __init__(self, step: Step, panes: PaneTable) -> None:
        assert isinstance(step.stream, Top)
        self._top = step.stream
        # Step names have no spaces, so this cannot be a table of another step.
        super().__init__(
            step, _schema(self._top, panes.schema), name=f"slots {step.name}", key=self._top.key
        )
        self._is_view = step.view is not None
        self._panes = panes
        self._group = [quoted(name) for name in self._top.group]
        self._same_group = " AND ".join(["true", *(f"t.{g} IS o.{g}" for g in self._group)])
        self._groups = quoted(f"{PREFIX}groups {step.name}")
        self._touched = quoted(f"{PREFIX}touched {step.name}")
        self._ranked = quoted(f"{PREFIX}ranked {step.name}")

    def create(self, db: apsw.Connection) -> None:
        """Create the table, its view, and an index with the panes of each group in rank order.

        With the index, finding the first of a million panes takes as long as of a thousand.
        """
        super().create(db)
        columns = ", ".join([*self._group, *self._order("")])
        db.execute(f"CREATE INDEX {self._groups} ON {self._panes.name} ({columns})")

    @property
    def forgets(self) -> bool:
        """False for a live board, whose ranks outlive their rows."""
        return not self._top.live

    def touch(self, db: apsw.Connection, panes: pa.Table) -> None:
        """Mark the groups of changed or removed panes to be ranked again."""
        self._prepare(db)
        if panes.num_rows:
            groups = panes.select(list(self._top.group))
            groups = groups.append_column(_ANY, pa.repeat(1, groups.num_rows))
            insert(db, self._touched, groups.group_by(groups.column_names).aggregate([]))

    def rank(self, db: apsw.Connection, turn: Turn) -> Ranked:
        """Rank the groups touched since the last call."""
        self._prepare(db)
        if self._top.live:
            self._touch_closed(db, turn)
        self._select_highest(db, turn)
        gone = self._take_gone(db)
        same = " AND ".join(f"o.{c} IS n.{c}" for c in self._columns)
        match = f"{self._ranked} n JOIN {self.name} o ON {self._match}"
        db.execute(
            f"DELETE FROM {self._ranked} WHERE rowid IN (SELECT n.rowid FROM {match} WHERE {same})"
        )
        found = list(
            db.execute(
                f"SELECT n.*, o.* FROM {self._ranked} n LEFT JOIN {self.name} o ON {self._match} "
                f"ORDER BY {', '.join(f'n.{quoted(k)}' for k in self.key)}"
            )
        )
        db.execute(f"DELETE FROM {self.name} WHERE rowid IN (SELECT o.rowid FROM {match})")
        db.execute(f"INSERT INTO {self.name} SELECT * FROM {self._ranked}")
        db.execute(f"DELETE FROM {self._ranked}; DELETE FROM {self._touched}")
        width = len(self.schema)
        rows, before = (
            table_from([row[part] for row in found], self.schema)
            for part in (slice(width), slice(width, None))
        )
        return Ranked(rows, before, gone)

    def _touch_closed(self, db: apsw.Connection, turn: Turn) -> None:
        """Touch the groups of newly final panes, which leave the board."""
        before, after = turn.closed.span
        if after is not None:
            group = ", ".join([*self._group, "1"])
            db.execute(
                f"INSERT INTO {self._touched} SELECT DISTINCT {group} FROM {self._panes.name} "
                f"WHERE {WINDOW_END} > ? AND {WINDOW_END} <= ?",
                (-(1 << 62) if before is None else before, after),
            )

    def _select_highest(self, db: apsw.Connection, turn: Turn) -> None:
        """Select the first rows of each touched group into the table of candidates."""
        top, panes = self._top, self._panes.name
        order = ", ".join(self._order("o."))
        group = ", ".join(f"o.{g}" for g in self._group) or "1"
        there = self._same_group
        if top.live and turn.closed.after is not None:
            # The `+` keeps SQLite from the index on the end, which would scan all open panes.
            there += f" AND +o.{WINDOW_END} > {turn.closed.after}"
        first = f"SELECT o.rowid FROM {panes} o WHERE {there} ORDER BY {order} LIMIT {top.n}"
        db.execute(
            f"INSERT INTO {self._ranked} SELECT {', '.join(self._columns)} FROM "
            f"(SELECT o.*, row_number() OVER (PARTITION BY {group} ORDER BY {order}) AS {RANK} "
            f"FROM (SELECT DISTINCT * FROM {self._touched}) t "
            f"CROSS JOIN {panes} o ON o.rowid IN ({first}))"
        )

    def _order(self, prefix: str) -> list[str]:
        """The rank order of panes: the value and then the key, nulls last."""
        kinds = self._panes.schema
        found = [f"{ordered(prefix + quoted(self._top.by), kinds.field(self._top.by).type)} DESC"]
        for name in self._panes.key:
            column = prefix + quoted(name)
            found += [] if name == WINDOW_START else [f"{column} IS NULL"]
            found.append(ordered(column, kinds.field(name).type))
        return found

    def _take_gone(self, db: apsw.Connection) -> pa.Table:
        rows = db.execute(
            f"DELETE FROM {self.name} WHERE rowid IN (SELECT o.rowid "
            f"FROM (SELECT DISTINCT * FROM {self._touched}) t "
            f"CROSS JOIN {self.name} o ON {self._same_group} "
            f"WHERE NOT EXISTS (SELECT 1 FROM {self._ranked} n WHERE {self._match})) RETURNING *"
        )
        return table_from(list(rows), self.schema)

    def _prepare(self, db: apsw.Connection) -> None:
        group, columns = ", ".join([*self._group, _ANY]), ", ".join(self._columns)
        db.execute(f"CREATE TEMP TABLE IF NOT EXISTS {self._touched} ({group})")
        db.execute(f"CREATE TEMP TABLE IF NOT EXISTS {self._ranked} ({columns})")


def _schema(top: Top, panes: pa.Schema) -> pa.Schema:
    """The columns of a ranking of these panes."""
    if pa.types.is_nested(panes.field(top.by).type):
        raise InvalidPipeline(
            f"Rows cannot be ranked by {top.by!r}, which is {panes.field(top.by).type}",
            hint=f"Rank by a number, a timestamp or a string. See {top.where}",
        )
    fields = [
        pa.field(RANK, pa.int64()) if name == RANK else panes.field(name) for name in top.columns
    ]
    return pa.schema([*fields, panes.field(metadata.REVISION), panes.field(metadata.ROWS)])


class RankKeeper(PaneKeeper):
    """Keeps the panes in a hidden table, and their ranks in the table that readers see."""

    def _show(self, stored: Stored) -> RankTable:
        self._ranks = RankTable(stored.step, self._table)
        return self._ranks

    def create(self, db: apsw.Connection) -> None:
        super().create(db)
        self._ranks.create(db)

    @property
    def _remembers(self) -> bool:
        return False

    def _changed(self, db: apsw.Connection, rows: pa.Table, merged: Merged, turn: Turn) -> None:
        self._ranks.touch(db, rows)

    def _all_changed(self, db: apsw.Connection, turn: Turn) -> None:
        ranked = self._ranks.rank(db, turn)
        self._table.forget(db, turn.closed.after)
        if self._updates:
            self._publisher.retracted(db, ranked.gone, turn)
            self._publisher.updates(db, ranked.rows, ranked.before, turn)

    def _gone(self, db: apsw.Connection, panes: pa.Table, turn: Turn) -> None:
        self._ranks.touch(db, panes)


keeper = RankKeeper
