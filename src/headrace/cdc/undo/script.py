"""The script: inverse statements in reverse order, and a list of what was left alone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from headrace.cdc.undo.changes import CapturedTable, Changes, Place
from headrace.cdc.undo.dialects import DIALECTS, Dialect, described
from headrace.clock import to_text
from headrace.errors import Unsupported, UserError
from headrace.wording import many

_AT_ONCE = 1_000
"""Rows of a table that are held as text."""


@dataclass(frozen=True)
class _Side:
    """A row before or after a change: its values as SQL, None if there is no row."""

    names: list[str]
    kinds: list[pa.DataType]
    columns: list[list[str]]
    there: list[bool]

    def row(self, index: int) -> list[str]:
        return [column[index] for column in self.columns]


def dialect_of(changes: Changes) -> Dialect:
    """The dialect of the database that all changes come from."""
    databases = sorted({(table.connector, table.database) for table in changes.tables})
    if len(databases) > 1:
        raise UserError(
            "These topics are of several databases: "
            + ", ".join(f"{name or 'unnamed'} ({kind})" for kind, name in databases),
            hint="Write a script for each: name the capture's prefix, or --tables",
        )
    connector = databases[0][0]
    if connector not in DIALECTS:
        raise Unsupported(
            f"There is no SQL to write for the connector {connector!r}",
            hint=f"There is for {', '.join(DIALECTS)}",
            capability="UNDO",
        )
    return DIALECTS[connector]


def write_script(changes: Changes, what: str, *, rehearsal: bool = False) -> Iterator[str]:
    """The lines of a script that takes back `changes`, the last one first.

    It is one transaction. A row that is no longer as its change left it stays as it is, together
    with all earlier changes of it, and the script lists it at its end. A `rehearsal` rolls back.
    """
    dialect = dialect_of(changes)
    yield from _head(changes, dialect, what, rehearsal=rehearsal)
    for statement in (*dialect.begin, dialect.create_skipped):
        yield f"{statement};"
    writing = _Writing(changes, dialect)
    for transaction in reversed(changes.transactions):
        yield ""
        about = json.dumps(transaction.id)
        count = many(len(transaction.places), "change")
        yield f"-- transaction {about}, committed {to_text(transaction.at)}: {count}"
        for place in reversed(transaction.places):
            if statement := writing.statement(place):
                yield f"{statement};"
    yield ""
    yield "-- What was left as it is, since it has changed since:"
    yield f"SELECT number, {dialect.name('change')} FROM headrace_skipped ORDER BY number;"
    yield f"{dialect.drop_skipped};"
    yield "ROLLBACK;" if rehearsal else "COMMIT;"


def _head(changes: Changes, dialect: Dialect, what: str, *, rehearsal: bool) -> Iterator[str]:
    """The comment that says what the script does."""
    tables = ", ".join(sorted({table.full_name for table in changes.tables}))
    number = many(len(changes.transactions), "transaction")
    lines = [
        f"Undo {what}",
        f"{many(changes.count, 'change')} of {number}, in {tables}",
        f"For {dialect.title}. Read it, then run it: {dialect.run}",
        "It is one transaction"
        + (", rolled back at the end: a rehearsal." if rehearsal else ": all of it, or nothing."),
        "A row that has changed since stays as it is, and the last SELECT lists it.",
        "Triggers and foreign keys of the database work as they do for any statement.",
        *(f"MISSING: {text}" for text in changes.removed),
        *(
            f"NOT UNDONE: {many(number, 'change')} in {topic}, without the row from before"
            for topic, number in changes.unknown.items()
        ),
        *(
            f"NOT UNDONE: {many(number, 'difference')} in {topic}, found by a snapshot, so nobody "
            "knows when they were made"
            for topic, number in changes.found.items()
        ),
    ]
    yield from (f"-- {json.dumps(line, ensure_ascii=True)[1:-1]}" for line in lines)


class _Writing:
    """Writes the inverse of one change after the other, mostly of neighbouring rows."""

    def __init__(self, changes: Changes, dialect: Dialect) -> None:
        self._changes = changes
        self._dialect = dialect
        self._number = 0
        self._held: dict[int, tuple[int, _Side, _Side, list[str]]] = {}
        self._times: Counter[tuple[str, str]] = Counter()
        for table, rows in zip(changes.tables, changes.rows, strict=True):
            self._times.update((table.topic, key) for key in rows["key"].to_pylist())

    def statement(self, place: Place) -> str:
        """The statement that takes back a change, and a note if it has found no row to change.

        Nothing for an update that has changed no column.
        """
        table = self._changes.tables[place.table]
        before, after, keys = self._sides(place)
        index = place.row % _AT_ONCE
        self._number += 1
        name = described(table.full_name, keys[index])
        guards = self._unless_skipped(table, keys[index], name)
        quoted = self._dialect.table(*self._qualified(table))
        text = self._inverse(quoted, before, after, index, json.loads(keys[index]), guards)
        if not text:
            return ""
        literal = "'" + name.replace("'", "''") + "'"
        report = f"INSERT INTO headrace_skipped SELECT {self._number}, {literal}"
        return self._dialect.reporting(text, report)

    def _inverse(
        self,
        table: str,
        before: _Side,
        after: _Side,
        index: int,
        key: dict[str, object],
        guards: list[str],
    ) -> str:
        dialect = self._dialect
        new = after.row(index) if after.there[index] else None
        old = before.row(index) if before.there[index] else None
        if new is None:
            assert old is not None  # read_changes leaves out what has neither
            where = " AND ".join(self._key(before, old, key))
            absent = f"NOT EXISTS (SELECT 1 FROM {table} WHERE {where})"
            return dialect.insert(table, before.names, old, "\n  AND ".join([absent, *guards]))
        found = self._key(after, new, key)
        if old is None:
            same = self._same(after, new, range(len(new)))
            return f"DELETE FROM {table}\n  WHERE " + " AND ".join([*found, *same, *guards])
        changed = [at for at, (was, now) in enumerate(zip(old, new, strict=True)) if was != now]
        if not changed:
            return ""
        sets = ", ".join(f"{dialect.name(after.names[at])} = {old[at]}" for at in changed)
        same = self._same(after, new, changed)
        return f"UPDATE {table} SET {sets}\n  WHERE " + " AND ".join([*found, *same, *guards])

    def _same(self, side: _Side, row: list[str], places: range | list[int]) -> list[str]:
        conditions = (self._dialect.same(side.names[at], row[at], side.kinds[at]) for at in places)
        return [condition for condition in conditions if condition]

    def _key(self, side: _Side, row: list[str], key: dict[str, object]) -> list[str]:
        places = [side.names.index(name) for name in key]
        return [f"{self._dialect.name(side.names[at])} = {row[at]}" for at in places]

    def _unless_skipped(self, table: CapturedTable, key: str, name: str) -> list[str]:
        """The condition that no later change of the same row was left alone."""
        if self._times[table.topic, key] < 2:
            return []
        quoted, literal = self._dialect.name("change"), "'" + name.replace("'", "''") + "'"
        return [f"NOT EXISTS (SELECT 1 FROM headrace_skipped WHERE {quoted} = {literal})"]

    def _qualified(self, table: CapturedTable) -> tuple[str, str]:
        return table.schema or table.database, table.name

    def _sides(self, place: Place) -> tuple[_Side, _Side, list[str]]:
        """Both sides of the rows around a place, as SQL."""
        part = place.row // _AT_ONCE
        held = self._held.get(place.table)
        if held is None or held[0] != part:
            rows = self._changes.rows[place.table].slice(part * _AT_ONCE, _AT_ONCE)
            sides = [self._side(rows[name].combine_chunks()) for name in ("before", "after")]
            held = self._held[place.table] = (part, sides[0], sides[1], rows["key"].to_pylist())
        return held[1], held[2], held[3]

    def _side(self, rows: pa.StructArray) -> _Side:
        fields = list(rows.type)
        columns = [self._dialect.literals(column) for column in rows.flatten()]
        there = rows.is_valid().to_pylist()
        return _Side([f.name for f in fields], [f.type for f in fields], columns, there)
