"""Chunks of a table, each with the exact set of transactions that it shows."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

import psycopg2
import pyarrow as pa

from headrace.cdc.contract import Chunk, Row, SourceTransaction, Table
from headrace.cdc.postgres.columns import Converter, csv_rows, last_of_csv
from headrace.cdc.postgres.failures import quoted
from headrace.cdc.postgres.position import Position, read_lsn
from headrace.cdc.postgres.types import TYPE
from headrace.errors import SourceUnavailable

EMIT: Final = "SELECT pg_logical_emit_message(true, 'headrace', %s)::text"
"""Write something into the log and, by the commit, out to the disk."""


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
    """Rows of one snapshot, as COPY has written them. Their texts are read when they are needed."""

    def __init__(
        self, data: bytes, table: Table, limit: int, high: str, snapshot: Snapshot, made: Converter
    ) -> None:
        self.high = high
        self.values = self._values = made.from_csv(table.columns, data)
        self._data = data
        self._width = len(table.columns)
        self._snapshot = snapshot
        self.last = None
        if len(self._values) == limit:
            self.last = self._key_of_last(table, made)

    def _key_of_last(self, table: Table, made: Converter) -> Row:
        """The key of the last row, as the server has written it."""
        columns = pa.schema([table.columns.field(name) for name in table.key])
        if not all(pa.types.is_integer(kind) or pa.types.is_string(kind) for kind in columns.types):
            return last_of_csv(self._data, self._width, table.key_places)
        values = self._values.slice(len(self._values) - 1)
        last = pa.StructArray.from_arrays([values.field(n) for n in table.key], table.key)
        (row,) = made.to_rows(columns, last)
        assert row is not None
        return row

    @cached_property
    def rows(self) -> Sequence[Row]:  # type: ignore[override]
        return csv_rows(self._data, self._width)

    def sees(self, transaction: SourceTransaction) -> bool:
        return not transaction.id or self._snapshot.sees(int(transaction.id))

    def shows(self, returned: Iterable[int]) -> bool:
        """True if its rows show all of some transactions."""
        return all(map(self._snapshot.sees, returned))


def read_chunk(
    cursor: Any,
    table: Table,
    after: Row | None,
    limit: int,
    returned: Iterable[int],
    start: Position,
    made: Converter,
) -> PostgresChunk | None:
    """The next rows of a table. None if they would not show all transactions that were returned.

    `start` is a position on the same server.
    """
    cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    try:
        cursor.execute("SELECT pg_current_snapshot()::text")
        snapshot = Snapshot(cursor.fetchone()[0])
        if not all(map(snapshot.sees, returned)):
            return None
        data = _read_rows(cursor, table, after, limit)
    except (psycopg2.errors.UndefinedTable, psycopg2.errors.UndefinedColumn) as error:
        raise SourceUnavailable(
            f"Table {table.full_name} was changed while a snapshot read it: "
            f"{str(error).splitlines()[0]}",
            hint="The snapshot of the table begins again",
            table=table.full_name,
        ) from None
    finally:
        cursor.execute("ROLLBACK")
    # A transaction of its own: its commit is written out, so the stream passes it at once.
    cursor.execute(EMIT, ("chunk",))
    high = replace(start, lsn=read_lsn(cursor.fetchone()[0]))
    return PostgresChunk(data, table, limit, str(high), snapshot, made)


def _read_rows(cursor: Any, table: Table, after: Row | None, limit: int) -> bytes:
    """The next rows of a table as CSV, in the order of its key."""
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
    cursor.copy_expert(f"COPY ({query}) TO STDOUT (FORMAT csv)", buffer)
    return buffer.getvalue()
