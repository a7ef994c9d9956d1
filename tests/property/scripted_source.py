"""A database in memory as a source, which does what a real one may do and seldom does.

It sends neither `before` nor values that have not changed. A chunk may show a later transaction
without an earlier one that touched other rows, as a snapshot of PostgreSQL does. Most chunks have
their rows as Arrow too, so that they are kept as pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pyarrow as pa

from headrace.cdc.contract import (
    UNCHANGED,
    Change,
    Chunk,
    Gap,
    Row,
    Source,
    SourceState,
    SourceTransaction,
    Table,
)

COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("size", pa.int64())])
NAMES = ("a", "b")
TABLES = {name: Table("public", name, COLUMNS, ("id",)) for name in NAMES}

State = dict[str, dict[int, Row]]


def empty() -> State:
    return {name: {} for name in NAMES}


def applied(state: State, change: Change) -> None:
    """Do to a state what a change did."""
    rows = state[change.table.name]
    if change.op == "t":
        rows.clear()
    elif change.after is None:
        rows.pop(change.key[0], None)
    else:
        rows[change.key[0]] = change.after


class ScriptedDatabase:
    """Tables with their history. `full` has each change with its whole row."""

    def __init__(self) -> None:
        self.now = empty()
        self.full: list[list[Change]] = []
        self.sent: list[list[Change]] = []
        self.first = 0
        """The number of the first transaction that can still be read."""

    def commit(self, random: Random, count: int) -> None:
        """Commit a transaction of random changes."""
        full: list[Change] = []
        sent: list[Change] = []
        for _ in range(count):
            table = TABLES[random.choice(NAMES)]
            self._change(random, table, full, sent)
        if full:
            self.full.append(full)
            self.sent.append(sent)

    def _change(self, random: Random, table: Table, full: list[Change], sent: list[Change]) -> None:
        rows, key = self.now[table.name], random.randrange(8)
        row = (key, random.choice(["x", "y", None]), random.randrange(100))

        def add(change: Change, after: Row | None) -> None:
            full.append(change)
            sent.append(change._replace(after=after))
            applied(self.now, change)

        there = rows.get(key)
        if there is None:
            add(Change(table, "c", (key,), None, row), row)
        elif (what := random.random()) < 0.5:
            kept = (key, there[1], row[2])
            add(Change(table, "u", (key,), None, kept), (key, UNCHANGED, row[2]))
        elif what < 0.7:
            add(Change(table, "d", (key,), None, None), None)
        elif what < 0.9 and (new := random.randrange(8)) not in rows:
            add(Change(table, "d", (key,), None, None), None)
            moved = (new, there[1], row[2])
            add(Change(table, "c", (new,), None, moved), (new, UNCHANGED, row[2]))
        elif what < 0.95:
            add(Change(table, "t", (), None, None), None)

    def at(self, count: int) -> State:
        """The tables after so many transactions."""
        state = empty()
        for changes in self.full[:count]:
            for change in changes:
                applied(state, change)
        return state

    def lose(self) -> None:
        """Forget all transactions so far."""
        self.first = len(self.full)


class ScriptedChunk(Chunk):
    """Rows as some of the transactions left them."""

    def __init__(self, rows: list[Row], last: Row | None, high: str, seen: set[int]) -> None:
        self.rows = rows
        self.last = last
        self.high = high
        self._seen = seen

    def sees(self, transaction: SourceTransaction) -> bool:
        return int(transaction.id) in self._seen


class ScriptedSource(Source):
    """A reader of a database. It gives some transactions at a time, large ones in parts."""

    kind = "scripted"
    database = "memory"

    def __init__(self, database: ScriptedDatabase, random: Random) -> None:
        self._database = database
        self._random = random
        self._next = 0
        self._part = 0

    def attach(self) -> None:
        """There is nothing to set up."""

    def detach(self) -> None:
        """There is nothing to remove."""

    def close(self) -> None:
        """There is nothing to close."""

    def tables(self) -> list[Table]:
        return list(TABLES.values())

    def begin(self, position: str | None) -> Gap | None:
        start = self._database.first if position is None else int(position)
        if start < self._database.first:
            return Gap(str(position), str(self._database.first), "It was forgotten")
        self._next, self._part = start, 0
        return None

    @property
    def position(self) -> str:
        return str(self._next)

    def read(self, seconds: float) -> Sequence[SourceTransaction]:
        found: list[SourceTransaction] = []
        sent = self._database.sent
        for _ in range(self._random.randrange(1, 4)):
            if self._next >= len(sent):
                break
            changes, name = sent[self._next], str(self._next)
            size = self._random.choice([2, 100])
            part = changes[self._part : self._part + size]
            self._part += len(part)
            whole = self._part >= len(changes)
            if whole:
                self._next, self._part = self._next + 1, 0
            found.append(SourceTransaction(name, str(self._next), self._next, part, whole))
        return found or [SourceTransaction("", str(self._next))]

    def acknowledge(self, position: str) -> None:
        assert int(position) <= len(self._database.full)

    def passed(self, position: str, mark: str) -> bool:
        return int(position) >= int(mark)

    def chunk(self, table: Table, after: Row | None, limit: int) -> Chunk:
        full = self._database.full
        returned = self._next + (self._part > 0)
        seen = set(range(returned))
        blocked: set[Any] = set()
        for number in range(returned, len(full)):
            touched = {(change.table.name, *change.key) for change in full[number]}
            tables = {change.table.name for change in full[number] if change.op == "t"}
            depends = touched & blocked or any(name in tables for name, *_ in blocked)
            truncated = any((change.table.name,) in blocked for change in full[number])
            if depends or truncated or self._random.random() < 0.5:
                blocked |= touched
            else:
                seen.add(number)
        state = empty()
        for number in sorted(seen):
            for change in full[number]:
                applied(state, change)
        start = -1 if after is None else after[0]
        keys = sorted(key for key in state[table.name] if key > start)[:limit]
        rows = [state[table.name][key] for key in keys]
        last = (keys[-1],) if len(keys) == limit else None
        chunk = ScriptedChunk(rows, last, str(len(full)), seen)
        if self._random.random() < 0.7:
            chunk.values = self.columns(table.columns, rows)
        return chunk

    def columns(self, columns: pa.Schema, rows: Sequence[Row | None]) -> pa.StructArray:
        nothing = (None,) * len(columns)
        values = list(zip(*(nothing if row is None else row for row in rows), strict=True))
        values = values or [()] * len(columns)
        made = [pa.array(v, c.type) for v, c in zip(values, columns, strict=True)]
        mask = pa.array([row is None for row in rows], pa.bool_())
        return pa.StructArray.from_arrays(made, fields=list(columns), mask=mask)

    def rows(self, columns: pa.Schema, values: pa.StructArray) -> list[Row | None]:
        return [None if row is None else tuple(row.values()) for row in values.to_pylist()]

    def state(self, position: str | None) -> SourceState:
        return SourceState(str(len(self._database.full)), 0, "transactions")
