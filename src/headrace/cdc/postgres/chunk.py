"""Chunks of a table, each with the exact set of transactions that it shows."""

from __future__ import annotations

import io
from typing import Any

from headrace.cdc.contract import Chunk, Row, SourceTransaction, Table
from headrace.cdc.postgres.failures import quoted
from headrace.cdc.postgres.types import TYPE


class Snapshot:
    """The transactions that a statement sees: pg_current_snapshot()."""

    def __init__(self, text: str) -> None:
        _, last, running = text.split(":")
        self._end = int(last)
        self._running = {int(number) for number in running.split(",") if number}

    def sees(self, number: int) -> bool:
        """True if it shows a committed transaction, whose number has 32 bits.

        The numbers of a snapshot have 64. The nearest one with the same end is meant: those of
        transactions that matter are at most two billions apart.
        """
        near = self._end - (self._end - number + (1 << 31)) % (1 << 32) + (1 << 31)
        return near < self._end and near not in self._running


class PostgresChunk(Chunk):
    """Rows of one snapshot."""

    def __init__(self, rows: list[Row], high: str, last: Row | None, snapshot: Snapshot) -> None:
        self.rows = rows
        self.high = high
        self.last = last
        self._snapshot = snapshot

    def sees(self, transaction: SourceTransaction) -> bool:
        return not transaction.id or self._snapshot.sees(int(transaction.id))


def read_rows(cursor: Any, table: Table, after: Row | None, limit: int) -> list[Row]:
    """The next rows of a table, in the order of its key."""
    names = ", ".join(map(quoted, table.columns.names))
    key = ", ".join(map(quoted, table.key))
    where, values = "", None
    if after is not None:
        kinds = [table.columns.field(name).metadata[TYPE].decode() for name in table.key]
        places = ", ".join(f"%s::{kind}" for kind in kinds)
        where = f" WHERE ({key}) > ({places})"
        values = [value.decode() for value in after]
    query = f"SELECT {names} FROM {quoted(table.schema)}.{quoted(table.name)}{where} "
    query = cursor.mogrify(f"{query} ORDER BY {key} LIMIT {limit:d}", values).decode()
    buffer = io.BytesIO()
    cursor.copy_expert(f"COPY ({query}) TO STDOUT", buffer, size=1 << 16)
    return parse_copy(buffer.getvalue())


def parse_copy(data: bytes) -> list[Row]:
    """The rows of COPY's text format."""
    lines = data.split(b"\n")
    lines.pop()
    if b"\\" not in data:
        return [tuple(line.split(b"\t")) for line in lines]
    return [
        tuple(map(_value, line.split(b"\t"))) if b"\\" in line else tuple(line.split(b"\t"))
        for line in lines
    ]


_ESCAPES = {
    b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v",
}  # fmt: skip


def _value(text: bytes) -> bytes | None:
    if b"\\" not in text:
        return text
    if text == b"\\N":
        return None
    first, *parts = text.split(b"\\")
    made = [first]
    following = iter(parts)
    for part in following:
        if not part:  # a backslash, and the text up to the next one
            made.append(b"\\" + next(following, b""))
        else:
            made.append(_ESCAPES.get(part[:1], part[:1]) + part[1:])
    return b"".join(made)
