"""Changes on their way to a commit: what the source left out is filled in from the copy of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from headrace.cdc.contract import UNCHANGED, Change, Row, Source, Table
from headrace.cdc.keys import key_texts
from headrace.cdc.row_copy import RowCopy, TableChanges
from headrace.cdc.tables import Captured
from headrace.errors import SourceError


@dataclass
class Written:
    """The rows that a commit adds to the topic of a table, as columns.

    `transactions` has the place of each row's transaction in the commit, `orders` the row's own in
    its transaction. A tombstone has no row before or after, and follows its delete.
    """

    table: Table
    keys: list[str] = field(default_factory=list)
    ops: list[str] = field(default_factory=list)
    before: list[Row | None] = field(default_factory=list)
    after: list[Row | None] = field(default_factory=list)
    transactions: list[int] = field(default_factory=list)
    orders: list[int] = field(default_factory=list)
    dead: list[bool] = field(default_factory=list)
    missed: bool = False
    """True if a row under a new key was left out, which the running snapshot may have passed."""

    def add(self, key: str, op: str, before: Row | None, after: Row, order: int) -> None:
        """Add a row that is there."""
        self.keys.append(key)
        self.ops.append(op)
        self.before.append(before)
        self.after.append(after)
        self.transactions.append(0)
        self.orders.append(order)
        self.dead.append(False)

    def delete(self, key: str, before: Row, transaction: int, order: int) -> None:
        """Add a delete and its tombstone."""
        self.keys += (key, key)
        self.ops += ("d", "d")
        self.before += (before, None)
        self.after += (None, None)
        self.transactions += (transaction, transaction)
        self.orders += (order, order)
        self.dead += (False, True)


@dataclass(frozen=True)
class WrittenPage:
    """Rows that a snapshot adds to the topic of a table, as whole columns."""

    table: Table
    keys: pa.Array
    after: pa.StructArray


@dataclass
class Bucket:
    """The changes of one table in a commit, in order, with their places in it."""

    table: Table
    changes: list[Change] = field(default_factory=list)
    transactions: list[int] = field(default_factory=list)
    orders: list[int] = field(default_factory=list)


class Unwritten(Protocol):
    """The rows of a table that a running snapshot has still to write."""

    def brings(self, topic: str) -> bool:
        """True if rows that are not in the copy may be among them."""

    def waiting(self, topic: str, key: str) -> Row | None:
        """A row that was read and is not written yet."""


def by_table(transactions: Iterable[Sequence[Change]], first: int = 1) -> list[Bucket]:
    """The changes of some transactions by table. The first transaction begins with that order."""
    buckets: dict[int, Bucket] = {}
    last: Table | None = None
    bucket = Bucket.__new__(Bucket)
    for number, changes in enumerate(transactions):
        for order, change in enumerate(changes, 1 if number else first):
            table = change[0]
            if table is not last:
                last = table
                bucket = buckets.get(id(table)) or buckets.setdefault(id(table), Bucket(table))
            bucket.changes.append(change)
            bucket.transactions.append(number)
            bucket.orders.append(order)
    return list(buckets.values())


class Resolver:
    """Fills in `before`, unchanged values and the rows of truncated tables."""

    def __init__(self, source: Source, copy: RowCopy, unwritten: Unwritten) -> None:
        self._source = source
        self._copy = copy
        self._unwritten = unwritten

    def resolve(self, captured: Captured, bucket: Bucket, puts: TableChanges) -> Written:
        """The changes to write to the topic of a table. Those of the copy are added to `puts`."""
        changes, topic = bucket.changes, captured.topic.name
        texts = key_texts(self._source, bucket.table, [c[2] for c in changes if c[1] != "t"])
        to_version, to_copy = _moves(captured.table, bucket.table)
        latest = self._known(topic, changes, texts, puts.rows)
        if to_version is not None:
            latest = {key: row and to_version(row) for key, row in latest.items()}
        running = captured.running
        doubtful: set[str] = set()
        if running is not None and running.doubt:
            doubtful = self._copy.unseen(topic, list(latest), running.doubt) - puts.rows.keys()
        rows = _Rows(bucket.table, latest, doubtful, self._unwritten, topic)
        following = iter(texts)
        for change, number, order in zip(changes, bucket.transactions, bucket.orders, strict=True):
            if change[1] == "t":
                there = {**dict(self._copy.all(topic)), **puts.rows}
                if to_version is not None:
                    there = {text: row and to_version(row) for text, row in there.items()}
                rows.truncate(there, number, order)
            elif change[4] is None:
                rows.delete(next(following), change, number, order)
            else:
                rows.write(next(following), change, change[4], number, order)
        put = rows.put
        if to_copy is not None:
            put = {key: row and to_copy(row) for key, row in put.items()}
        puts.rows.update(put)
        return rows.written

    def _known(
        self,
        topic: str,
        changes: Sequence[Change],
        texts: Sequence[str],
        puts: Mapping[str, Row | None],
    ) -> dict[str, Row | None]:
        """The rows that the source did not send, as earlier changes left them."""
        following = iter(texts)
        wanted = {
            text: None
            for change in changes
            if change[1] != "t"
            for text in (next(following),)
            if change[3] is None and (change[1] != "c" or self._source.replaces)
        }
        found: dict[str, Row | None] = dict(self._copy.rows(topic, list(wanted)))
        found.update((text, puts[text]) for text in wanted.keys() & puts.keys())
        return found


class _Rows:
    """The rows of a table as the changes of a commit leave them, one after the other.

    `latest` has the copies of rows, of which the `doubtful` ones may be out of date.
    """

    def __init__(
        self,
        table: Table,
        latest: dict[str, Row | None],
        doubtful: set[str],
        unwritten: Unwritten,
        topic: str,
    ) -> None:
        self.put: dict[str, Row | None] = {}
        self.written = Written(table)
        self._table = table
        self._latest = latest
        self._doubtful = doubtful
        self._unwritten = unwritten
        self._topic = topic
        self._deleted: Row | None = None
        """The row of the last delete, if its values are known."""

    def truncate(self, there: dict[str, Row | None], number: int, order: int) -> None:
        """Delete each row that is there now."""
        for key, row in {**there, **self.put}.items():
            if row is not None:
                self.written.delete(key, row, number, order)
                self._latest[key] = self.put[key] = None

    def delete(self, key: str, change: Change, number: int, order: int) -> None:
        """Delete a row."""
        before = change[3] or self._latest.get(key)
        self._deleted = (
            change[3] or self._unwritten.waiting(self._topic, key)
            if key in self._doubtful or before is None
            else before
        )
        self.written.delete(key, before or _only_key(self._table, change[2]), number, order)
        self._latest[key] = self.put[key] = None
        self._doubtful.discard(key)

    def write(self, key: str, change: Change, after: Row, number: int, order: int) -> None:
        """Create or update a row."""
        op, before = change[1], change[3]
        if before is None and (op == "u" or key in self._latest):
            before = self._latest.get(key)
            if before is not None:
                op = "u"
        if UNCHANGED in after:
            filled = self._filled(key, change, after, before)
            if filled is None:
                return
            after = filled
        written = self.written
        written.keys.append(key)
        written.ops.append(op)
        written.before.append(before)
        written.after.append(after)
        written.transactions.append(number)
        written.orders.append(order)
        written.dead.append(False)
        self._latest[key] = self.put[key] = after
        if self._doubtful:
            self._doubtful.discard(key)

    def _filled(self, key: str, change: Change, after: Row, before: Row | None) -> Row | None:
        """A row with the values that have not changed; None if a running snapshot brings it."""
        created = change[1] == "c"
        base = self._deleted if created else change[3] if key in self._doubtful else before
        if base is None and not created:
            base = self._unwritten.waiting(self._topic, key)
        if base is not None:
            return tuple(
                old if new is UNCHANGED else new for new, old in zip(after, base, strict=True)
            )
        if self._unwritten.brings(self._topic):
            # But the snapshot may have passed the place of a new key.
            self.written.missed |= created
            return None
        names = [
            name
            for name, value in zip(self._table.columns.names, after, strict=True)
            if value is UNCHANGED
        ]
        name = self._table.full_name
        raise SourceError(
            f"The source did not send {', '.join(names)} of the row {key} of {name}, since they "
            "have not changed, and the topic does not have the row",
            hint=f"Let a snapshot write the table: headrace cdc snapshot PREFIX {name}",
            table=name,
            key=key,
        )


def _only_key(table: Table, key: Row) -> Row:
    """A row of which only the key is known."""
    values = dict(zip(table.key, key, strict=True))
    return tuple(values.get(name) for name in table.columns.names)


Move = Callable[[Row], Row]


def _moves(now: Table, then: Table) -> tuple[Move | None, Move | None]:
    """Moves of rows from a table to another version of it, and back; None if they are equal."""
    if now is then or now.columns.equals(then.columns):
        return None, None
    return _move(now.columns, then.columns), _move(then.columns, now.columns)


def _move(old: pa.Schema, new: pa.Schema) -> Move:
    """A move of values to the columns with the same name and type."""
    places = [
        place if place >= 0 and old.field(place).type.equals(column.type) else None
        for column in new
        for place in (old.get_field_index(column.name),)
    ]
    return lambda row: tuple(None if place is None else row[place] for place in places)
