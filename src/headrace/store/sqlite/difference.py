"""The difference between two versions of a view: rows added, removed and changed.

If a view shows only final rows, the others are in neither version.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import apsw
import pyarrow as pa

from headrace.pipeline.time import WINDOW_END
from headrace.plan import metadata
from headrace.store.sqlite.database import panes_of, rows_of, slots_of
from headrace.store.sqlite.stored import stored_steps
from headrace.store.sqlite.values import quoted, shown

Kind = Literal["changed", "removed", "added"]
KINDS: tuple[Kind, ...] = ("changed", "removed", "added")


@dataclass(frozen=True)
class Change:
    """A row by its key, before and after. Only columns that differ are named."""

    kind: Kind
    key: Mapping[str, Any]
    before: Mapping[str, Any]
    after: Mapping[str, Any]


@dataclass(frozen=True)
class Diff:
    """The changes of a view, with the first rows of each kind."""

    view: str
    added: int
    removed: int
    changed: int
    same: int
    rows: tuple[Change, ...]
    new_columns: tuple[str, ...] = ()
    gone_columns: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """True if readers would see no difference."""
        counts = self.added + self.removed + self.changed
        return not (counts or self.new_columns or self.gone_columns)


@dataclass(frozen=True)
class Version:
    """A view in one of the attached databases."""

    schema: str
    table: str
    key: tuple[str, ...]
    columns: Mapping[str, str]
    """Arrow types by name, including the revision."""
    settled: int | None
    """The end of the last final window, if readers see only final rows."""

    def seen(self, name: str) -> str:
        """SQL that is true if readers see a row."""
        return "1" if self.settled is None else f"{name}.{WINDOW_END} <= {self.settled}"


def version_in(db: apsw.Connection, schema: str, view: str) -> Version | None:
    """The version of a view that an attached database has, if it has one."""
    found = list(
        db.execute(
            f"SELECT step, key, columns, emit, delay + grace FROM {quoted(schema)}._headrace_view "
            "WHERE name = ?",
            (view,),
        )
    )
    if not found:
        return None
    ((step, key, columns, emit, patience),) = found
    settled = None
    if emit == "final":
        stored = stored_steps(db, schema)[str(step)]
        window = stored.definition["window"]
        settles = window[1] if window[0] == "session" else 0
        frontier = stored.frontier
        settled = -(1 << 62) if frontier is None else frontier - int(str(patience)) - settles
    return Version(
        quoted(schema),
        f"{quoted(schema)}.{quoted(_shown_in(db, schema, str(step)))}",
        tuple(json.loads(str(key))),
        dict(json.loads(str(columns))),
        settled,
    )


def _shown_in(db: apsw.Connection, schema: str, step: str) -> str:
    """The table that readers see of a step: its panes, ranked panes or joined rows."""
    there = f"SELECT count(*) FROM {quoted(schema)}.sqlite_schema WHERE name = ?"
    others = (slots_of(step), rows_of(step))
    return next((name for name in others if db.execute(there, (name,)).get), panes_of(step))


class Comparison:
    """Compares the live version of a view, if there is one, with its replacement."""

    def __init__(self, db: apsw.Connection, live: Version | None, built: Version) -> None:
        self._db = db
        self._live = live
        self._built = built
        mine, theirs = built.columns, live.columns if live is not None else {}
        self._common = [name for name in mine if name in theirs and name not in built.key]
        # Rows can be matched if both versions have the same key.
        self._paired = live is not None and live.key == built.key
        self._match = " AND ".join(f"o.{quoted(k)} IS n.{quoted(k)}" for k in built.key)

    def diff(self, view: str, limit: int) -> Diff:
        """The changes that readers would see."""
        values = [name for name in self._common if name != metadata.REVISION]
        counts = {kind: self._count(kind, values) for kind in KINDS}
        built = self._built
        total = self._one(f"SELECT count(*) FROM {built.table} n WHERE {built.seen('n')}")
        theirs = self._live.columns if self._live is not None else built.columns
        return Diff(
            view,
            **counts,
            same=total - counts["added"] - counts["changed"],
            rows=tuple(
                change
                for kind in KINDS
                for change in itertools.islice(self._changes(kind, values), limit)
            ),
            new_columns=tuple(name for name in built.columns if name not in theirs),
            gone_columns=tuple(name for name in theirs if name not in built.columns),
        )

    def stored(self, kind: Kind, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """The stored rows of a kind: the new one, if there is one, then the old one.

        Here a row has also changed if only its revision differs.
        """
        mine = [f"n.{quoted(name)}" for name in columns] if kind != "removed" else []
        theirs = [f"o.{quoted(name)}" for name in columns] if kind != "added" else []
        for row in self._select(kind, [*mine, *theirs], self._common):
            yield tuple(row)

    def _changes(self, kind: Kind, values: Sequence[str]) -> Iterator[Change]:
        version, side = (self._live, "o") if kind == "removed" else (self._built, "n")
        if version is None:
            return
        names = values if kind == "changed" else [
            n for n in version.columns if n not in version.key and n != metadata.REVISION
        ]  # fmt: skip
        key = [_readable(side, name, version) for name in version.key]
        mine = [_readable("n", name, self._built) for name in names] if kind != "removed" else []
        theirs = []
        if kind != "added" and self._live is not None:
            theirs = [_readable("o", name, self._live) for name in names]
        for row in self._select(kind, [*key, *mine, *theirs], values):
            found = list(row)
            by = dict(zip(version.key, found, strict=False))
            after = dict(zip(names, found[len(key) :], strict=False)) if mine else {}
            before = dict(zip(names, found[len(key) + len(mine) :], strict=True)) if theirs else {}
            if kind == "changed":
                other = [name for name in names if before[name] != after[name]]
                before, after = ({n: side[n] for n in other} for side in (before, after))
            yield Change(kind, by, before, after)

    def _count(self, kind: Kind, values: Sequence[str]) -> int:
        return sum(int(row[0]) for row in self._select(kind, ["count(*)"], values, ordered=False))

    def _select(
        self, kind: Kind, chosen: Sequence[str], values: Sequence[str], *, ordered: bool = True
    ) -> Iterator[Sequence[Any]]:
        live, built = self._live, self._built
        if live is None and kind != "added":
            return
        if kind == "changed":
            assert live is not None
            another = " OR ".join(f"o.{quoted(v)} IS NOT n.{quoted(v)}" for v in values) or "0"
            pairs = f"{built.table} n JOIN {live.table} o ON {self._match}"
            source = f"{pairs} WHERE {built.seen('n')} AND {live.seen('o')} AND ({another})"
            source = source if self._paired else f"{built.table} n, {live.table} o WHERE 0"
            order = "n"
        else:
            version, other, side, beside = (
                (built, live, "n", "o") if kind == "added" else (live, built, "o", "n")
            )
            assert version is not None
            source = f"{version.table} {side} WHERE {version.seen(side)}"
            if other is not None and self._paired:
                same = f"{self._match} AND {other.seen(beside)}"
                source += f" AND NOT EXISTS (SELECT 1 FROM {other.table} {beside} WHERE {same})"
            order = side
        by = (live if kind == "removed" and live is not None else built).key
        text = f"SELECT {', '.join(chosen)} FROM {source}"
        if ordered:
            text += f" ORDER BY {', '.join(f'{order}.{quoted(name)}' for name in by)}"
        yield from self._db.execute(text)

    def _one(self, sql: str) -> int:
        return int(self._db.execute(sql).get)


def _readable(side: str, name: str, version: Version) -> str:
    """SQL for a column as a view shows it."""
    kind = version.columns.get(name, "")
    column = f"{side}.{quoted(name)}"
    if kind.startswith("timestamp"):
        return shown(column, pa.timestamp("us"))
    return shown(column, pa.date32() if kind.startswith("date") else pa.null())
