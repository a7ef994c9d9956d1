"""Snapshots of tables in chunks, one table at a time, beside the stream of transactions.

A chunk is written when the stream has passed its end, without the rows that transactions it does
not see have changed since. A crash loses at most the chunk that was read and not written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.cdc.changes import Unwritten, Written, WrittenPage
from headrace.cdc.contract import Chunk, Row, Source, SourceTransaction, Table
from headrace.cdc.keys import key_column, key_texts
from headrace.cdc.row_copy import RowCopy, TableChanges
from headrace.cdc.row_pages import NewPage, can_be_pages
from headrace.cdc.state import Snapshot, key_text, read_key
from headrace.cdc.tables import Captured, CapturedTables

_FIRST_ROWS: Final = 10_000
"""Rows of the first chunk. Those after it grow as long as a commit has room for them."""


@dataclass
class _Waiting:
    """A chunk that was read, and the keys of its rows that were changed since."""

    captured: Captured
    table: Table
    generation: int
    chunk: Chunk
    keys: pa.Array
    changed: set[str] = field(default_factory=set)

    @cached_property
    def rows(self) -> dict[str, Row]:
        """The rows by key, one by one."""
        return dict(zip(self.keys.to_pylist(), self.chunk.rows, strict=True))


@dataclass(frozen=True)
class Piece:
    """A piece of a snapshot for the log, and the progress after it."""

    captured: Captured
    written: Written
    page: WrittenPage | None
    changes: TableChanges
    snapshot: Snapshot
    position: str | None

    @property
    def count(self) -> int:
        """The rows that it writes."""
        return len(self.written.keys) + (0 if self.page is None else len(self.page.keys))


class Snapshots(Unwritten):
    """The snapshots that are not complete."""

    def __init__(
        self, source: Source, copy: RowCopy, tables: CapturedTables, chunk_rows: int
    ) -> None:
        self._source = source
        self._copy = copy
        self._tables = tables
        self._most = chunk_rows
        self._rows = min(chunk_rows, _FIRST_ROWS)
        self._waiting: _Waiting | None = None

    @property
    def running(self) -> bool:
        """True if a table's snapshot is not complete."""
        return self._next() is not None

    @property
    def waits(self) -> bool:
        """True if a chunk waits for the stream to pass its end."""
        return self._waiting is not None

    def brings(self, topic: str) -> bool:
        return any(
            c.topic.name == topic and c.running is not None and not c.running.sweeping
            for c in self._tables.by_name.values()
        )

    def waiting(self, topic: str, key: str) -> Row | None:
        waiting = self._waiting
        if waiting is None or waiting.captured.topic.name != topic:
            return None
        return waiting.rows.get(key)

    def note(self, transactions: Sequence[SourceTransaction], written: Written) -> None:
        """Note the keys that transactions have changed which the waiting chunk does not see."""
        waiting = self._waiting
        if waiting is None or waiting.table is not written.table:
            return
        unseen = {n for n, done in enumerate(transactions) if not waiting.chunk.sees(done)}
        waiting.changed.update(
            key
            for key, number in zip(written.keys, written.transactions, strict=True)
            if number in unseen
        )

    def note_truncated(self, transaction: SourceTransaction, table: Table) -> None:
        """Note that a transaction has deleted all rows of a table."""
        waiting = self._waiting
        if waiting is not None and waiting.table is table and not waiting.chunk.sees(transaction):
            waiting.changed.update(waiting.keys.to_pylist())

    def read(self) -> bool:
        """Read the next chunk, if none is waiting. False if there is none to read."""
        captured = self._next()
        if self._waiting is not None or captured is None or captured.running is None:
            return False
        running, table = captured.running, captured.table
        if running.sweeping:
            return False
        chunk = self._source.chunk(table, read_key(running.after), self._rows)
        if chunk.values is None:
            texts = key_texts(self._source, table, [table.key_of(row) for row in chunk.rows])
            keys = pa.array(texts, pa.string())
        else:
            keys = key_column(table, chunk.values)
        self._waiting = _Waiting(captured, table, running.generation, chunk, keys)
        return True

    def shrink(self) -> None:
        """Read smaller chunks: the rows of the last one are too large for a commit."""
        self._most = self._rows = max(1, self._rows // 2)
        self._waiting = None

    def grow(self, room: float) -> None:
        """Read larger chunks, up to two thirds of a commit that has room for so many of these."""
        wanted = int(self._rows * min(room * 2 / 3, 2))
        self._rows = min(max(self._rows, wanted), self._most)

    def piece(self, position: str | None) -> Piece | None:
        """The next piece at a position of the stream: a chunk, or rows that were not found."""
        waiting, captured = self._waiting, self._next()
        if captured is None or captured.running is None:
            self._waiting = None
            return None
        if waiting is not None and not (
            waiting.captured is captured
            and waiting.table is captured.table
            and waiting.generation == captured.running.generation
        ):
            self._waiting = waiting = None  # the table has changed: read it again
        if captured.running.sweeping:
            return self._sweep(captured, captured.running)
        if waiting is None or position is None:
            return None
        if not self._source.passed(position, waiting.chunk.high):
            return None
        return self._place(waiting, captured.running)

    def written(self) -> None:
        """Note that a piece is in the log."""
        self._waiting = None

    def _place(self, waiting: _Waiting, running: Snapshot) -> Piece:
        """The rows of a chunk that the topic does not have as they are."""
        captured, chunk = waiting.captured, waiting.chunk
        page, rows = self._divided(waiting)
        alone = 0 if page is None else len(page.keys)
        copied = self._copy.rows(captured.topic.name, list(rows))
        changed = self._changed(waiting.table, rows, copied)
        written = Written(waiting.table)
        for order, key in enumerate(changed, 1 + alone):
            written.add(key, "r", copied.get(key), rows[key], order)
        same = [key for key in rows if key not in changed]
        put: dict[str, Row | None] = {key: rows[key] for key in changed}
        changes = TableChanges(running.generation, put, same, page)
        state = replace(
            running,
            after=key_text(chunk.last),
            read=running.read + len(waiting.keys),
            written=running.written + len(changed) + alone,
            sweeping=chunk.last is None,
        )
        whole = None if page is None else WrittenPage(page.table, page.keys, page.values)
        return Piece(captured, written, whole, changes, state, chunk.high)

    def _divided(self, waiting: _Waiting) -> tuple[NewPage | None, dict[str, Row]]:
        """The rows of a chunk that are new and can be kept as a page, and all others one by one.

        Neither has those that were changed since.
        """
        topic, chunk, keys = waiting.captured.topic.name, waiting.chunk, waiting.keys
        if chunk.values is not None and len(keys) and can_be_pages(waiting.table):
            page, others = NewPage(waiting.table, keys, chunk.values), list[str]()
            if apart := self._copy.held(topic, keys) | waiting.changed:
                there = pc.is_in(keys, value_set=pa.array(apart, pa.string()))
                new, others = pc.invert(there), keys.filter(there).to_pylist()
                page = NewPage(waiting.table, keys.filter(new), chunk.values.filter(new))
            if len(page.keys) and self._copy.has_place(topic, page):
                alone = [key for key in others if key not in waiting.changed]
                return page, {key: waiting.rows[key] for key in alone}
        return None, {key: row for key, row in waiting.rows.items() if key not in waiting.changed}

    def _sweep(self, captured: Captured, running: Snapshot) -> Piece:
        """Deletes of rows that the snapshot did not find."""
        found = self._copy.page(captured.topic.name, unseen_by=running.generation)
        written = Written(captured.table)
        for order, (key, row) in enumerate(found, 1):
            written.delete(key, row, 0, order)
        state = replace(running, deleted=running.deleted + len(found), complete=not found)
        gone: dict[str, Row | None] = dict.fromkeys(key for key, _ in found)
        return Piece(captured, written, None, TableChanges(running.generation, gone), state, None)

    def _changed(
        self, table: Table, rows: dict[str, Row], copied: dict[str, Row]
    ) -> dict[str, None]:
        """The keys of rows that differ from their copies.

        A copy that was made from a topic may write a value in another way than the source does.
        """
        found = {key: None for key, row in rows.items() if copied.get(key) != row}
        doubtful = [key for key in found if key in copied]
        if doubtful:
            new = self._source.columns(table.columns, [rows[key] for key in doubtful])
            old = self._source.columns(table.columns, [copied[key] for key in doubtful])
            for key, one, other in zip(doubtful, new.to_pylist(), old.to_pylist(), strict=True):
                if repr(one) == repr(other):  # NaN is not equal to itself
                    del found[key]
        return found

    def _next(self) -> Captured | None:
        """The table whose snapshot is next."""
        names = sorted(self._tables.by_name)
        return next(
            (c for c in map(self._tables.by_name.__getitem__, names) if c.running is not None), None
        )
