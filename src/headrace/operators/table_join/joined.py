"""SQL for the rows of joined tables: all of them, and those that a change touches.

SQLite joins by index, from the changed rows to those that depend on them. So the cost of a change
grows with the rows that it touches, not with the tables.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import apsw

from headrace.operators.table_join.declare import TableJoin
from headrace.operators.table_join.sides import WINS, Side, same
from headrace.plan import metadata
from headrace.store.sqlite.database import PREFIX
from headrace.store.sqlite.values import quoted

_LIVE = f"{metadata.DELETED} = 0"


class Joined(ABC):
    """The SQL of a join."""

    def __init__(self, step: str, join: TableJoin, sides: Sequence[Side]) -> None:
        self._join = join
        self._sides = sides
        self._step = step

    def create(self, db: apsw.Connection) -> None:
        """Create the indexes for the join columns."""
        for number, link in enumerate(self._join.links, 1):
            mine, theirs = zip(*link.on, strict=True)
            from_ = self._join.looked_up_from(link)
            origins = self._join.origins
            self._sides[from_].index(db, tuple(origins[name][1] for name in mine))
            if not link.by_key:
                self._sides[number].index(db, theirs)

    @abstractmethod
    def all_rows(self) -> str:
        """SQL for every row."""

    @abstractmethod
    def touch(self, db: apsw.Connection) -> None:
        """Find the keys that depend on winning versions, before these are applied."""

    @abstractmethod
    def touched_rows(self) -> str:
        """SQL for the rows of these keys, in their current state."""

    def _columns(self, *absent: int) -> str:
        """All columns of a row, without the values of absent tables."""
        found = []
        for name, (number, column) in self._join.origins.items():
            value = f"t{number}.{quoted(column)}"
            if number in absent:
                value = self._equal(name) if number == 0 else "NULL"
            found.append(f"{value} AS {quoted(name)}")
        there = [n for n in range(len(self._sides)) if n not in absent]
        commits = [f"coalesce(t{n}.{metadata.COMMIT}, 0)" for n in there]
        revision = f"max({', '.join(commits)})" if len(commits) > 1 else commits[0]
        return ", ".join([*found, f"{revision} AS {metadata.REVISION}"])

    def _equal(self, name: str) -> str:
        """The value of a column of the absent first table: that of the column it is joined to."""
        (link,) = self._join.links
        return next((f"t1.{quoted(theirs)}" for mine, theirs in link.on if mine == name), "NULL")

    def _temporary(self, db: apsw.Connection, number: int) -> str:
        """Create an empty table of touched keys; return the start of an INSERT into it."""
        key = ", ".join(map(quoted, self._sides[number].key))
        name = self._touched(number)
        db.execute(
            f"CREATE TABLE IF NOT EXISTS {name} ({key}, PRIMARY KEY ({key})) WITHOUT ROWID; "
            f"DELETE FROM {name}"
        )
        return f"INSERT OR IGNORE INTO {name} SELECT {self._keys(number)}"

    def _touched(self, number: int) -> str:
        return f"temp.{quoted(f'{PREFIX}touched{number}_{self._step}')}"

    def _keys(self, number: int) -> str:
        return ", ".join(f"t{number}.{quoted(name)}" for name in self._sides[number].key)

    def _won(self, number: int) -> str:
        """SQL for the keys of a table that get a new version."""
        return f"{self._sides[number].newest} t{number} WHERE t{number}.{WINS}"


class LookedUp(Joined):
    """Each row of the first table with the rows of the others, found by their keys."""

    def all_rows(self) -> str:
        first = f"FROM {self._sides[0].name} t0"
        return f"SELECT {self._columns()} {first} {self._others()} WHERE {self._there()}"

    def touch(self, db: apsw.Connection) -> None:
        add = self._temporary(db, 0)
        db.execute(f"{add} FROM {self._won(0)}")
        for number in range(1, len(self._sides)):
            # A row that has changed itself is found already, so the current rows suffice.
            way, here = f"{self._sides[number].newest} t{number}", number
            while here:
                before = self._join.looked_up_from(self._join.links[here - 1])
                way += f" CROSS JOIN {self._sides[before].name} t{before} ON {self._on(here)}"
                here = before
            db.execute(f"{add} FROM {way} WHERE t{number}.{WINS}")

    def touched_rows(self) -> str:
        found = same("k", "t0", self._sides[0].key)
        first = f"FROM {self._touched(0)} k CROSS JOIN {self._sides[0].name} t0 ON {found}"
        return f"SELECT {self._columns()} {first} {self._others()} WHERE {self._there()}"

    def _others(self) -> str:
        # A deleted key has no values. Only its commit counts, for the revision.
        kind = "LEFT JOIN" if self._join.keeps_first else "CROSS JOIN"
        return " ".join(
            f"{kind} {self._sides[n].name} t{n} ON {self._on(n)}"
            for n in range(1, len(self._sides))
        )

    def _on(self, number: int) -> str:
        link, origins = self._join.links[number - 1], self._join.origins
        pairs = [(origins[mine], theirs) for mine, theirs in link.on]
        return " AND ".join(
            f"t{n}.{quoted(column)} = t{number}.{quoted(theirs)}" for (n, column), theirs in pairs
        )

    def _there(self) -> str:
        needed = 1 if self._join.keeps_first else len(self._sides)
        return " AND ".join(f"t{n}.{_LIVE}" for n in range(needed))


class Paired(Joined):
    """Rows of two tables with equal columns, and unmatched rows."""

    def all_rows(self) -> str:
        first, other = (f"{side.name} t{n}" for n, side in enumerate(self._sides))
        pairs = (
            f"SELECT {self._columns()} FROM {first} JOIN {other} ON {self._match()} "
            f"WHERE t0.{_LIVE} AND t1.{_LIVE}"
        )
        return " UNION ALL ".join([pairs, *self._alone(first, other)])

    def touch(self, db: apsw.Connection) -> None:
        for number, other in ((0, 1), (1, 0)):
            add = self._temporary(db, number)
            db.execute(f"{add} FROM {self._won(number)}")
            if number == 0 and not self._join.keeps_first:
                continue
            if number == 1 and not self._join.keeps_other:
                continue
            # A row can gain or lose its match, so the old and the new versions both count.
            mine, theirs = self._sides[number], self._sides[other]
            joined = f"CROSS JOIN {mine.name} t{number} ON {self._match()}"
            was = same("n", f"t{other}", theirs.key)
            db.execute(
                f"{add} FROM {theirs.newest} n CROSS JOIN {theirs.name} t{other} ON {was} "
                f"{joined} WHERE n.{WINS}"
            )
            db.execute(f"{add} FROM {theirs.newest} t{other} {joined} WHERE t{other}.{WINS}")

    def touched_rows(self) -> str:
        first, other = (side.name for side in self._sides)
        found, known = (
            same("k", f"t{number}", side.key) for number, side in enumerate(self._sides)
        )
        won = [f"{side.newest} k" for side in self._sides]
        live = f"t0.{_LIVE} AND t1.{_LIVE}"
        pairs = [
            f"SELECT {self._columns()} FROM {won[0]} CROSS JOIN {first} t0 ON {found} "
            f"CROSS JOIN {other} t1 ON {self._match()} WHERE k.{WINS} AND {live}",
            f"SELECT {self._columns()} FROM {won[1]} CROSS JOIN {other} t1 ON {known} "
            f"CROSS JOIN {first} t0 ON {self._match()} WHERE k.{WINS} AND {live} "
            f"AND NOT EXISTS (SELECT 1 FROM {won[0]} WHERE {found} AND k.{WINS})",
        ]
        alone = self._alone(
            f"{self._touched(0)} k CROSS JOIN {first} t0 ON {found}",
            f"{self._touched(1)} k CROSS JOIN {other} t1 ON {known}",
        )
        return " UNION ALL ".join([*pairs, *alone])

    def _alone(self, first: str, other: str) -> list[str]:
        """SQL for the unmatched rows among rows of the first table, and of the other."""
        found = []
        sides = [f"{side.name} t{number}" for number, side in enumerate(self._sides)]
        if self._join.keeps_first:
            none = f"SELECT 1 FROM {sides[1]} WHERE {self._match()} AND t1.{_LIVE}"
            # If rows are found by key, the deletion of the key counts for the revision.
            (link,) = self._join.links
            ended = f" LEFT JOIN {sides[1]} ON {self._match()}" if link.by_key else ""
            columns = self._columns() if link.by_key else self._columns(1)
            where = f"t0.{_LIVE} AND NOT EXISTS ({none})"
            found.append(f"SELECT {columns} FROM {first}{ended} WHERE {where}")
        if self._join.keeps_other:
            none = f"SELECT 1 FROM {sides[0]} WHERE {self._match()} AND t0.{_LIVE}"
            where = f"t1.{_LIVE} AND NOT EXISTS ({none})"
            found.append(f"SELECT {self._columns(0)} FROM {other} WHERE {where}")
        return found

    def _match(self) -> str:
        (link,) = self._join.links
        return " AND ".join(f"t0.{quoted(mine)} = t1.{quoted(theirs)}" for mine, theirs in link.on)


def joined_of(step: str, join: TableJoin, sides: Sequence[Side]) -> Joined:
    """The SQL of a join, by its kind."""
    return (LookedUp if join.looks_up else Paired)(step, join, sides)
