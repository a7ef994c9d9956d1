"""Reading ahead: the next chunk of a snapshot, while the last one is on its way into the log."""

from __future__ import annotations

import contextlib
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import psycopg2

from headrace.cdc.contract import Row, Table
from headrace.cdc.postgres.address import Address
from headrace.cdc.postgres.chunk import PostgresChunk, read_chunk
from headrace.cdc.postgres.columns import Converter
from headrace.cdc.postgres.position import Position
from headrace.closing import Closing
from headrace.errors import HeadraceError

_PAUSE: Final = 16
"""Chunks that are not read ahead after one that came too early."""


@dataclass(frozen=True)
class _Asked:
    table: Table
    after: Row | None
    limit: int
    found: Future[PostgresChunk | None]
    made: Converter


class Ahead(Closing):
    """A thread with a connection of its own, as long as chunks follow each other.

    A chunk that was read ahead may be too old: it has to show each transaction that the stream has
    given out by the time when it is wanted. Then it is read again, and the thread pauses, since
    the database is busy and reading everything twice would make it busier.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._connection: Any = None
        self._thread: ThreadPoolExecutor | None = None
        self._asked: _Asked | None = None
        self._pause = 0

    def close(self) -> None:
        self._asked = None
        connection = self._connection
        if connection is not None:
            with contextlib.suppress(psycopg2.Error):  # The server may be gone.
                connection.cancel()
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)
            self._thread = None
        self._hang_up()

    def ask(self, table: Table, last: Row | None, limit: int, start: Position) -> None:
        """Begin to read the chunk after a key, if it was not the last one."""
        if last is None:
            self.close()
        elif self._pause:
            self._pause -= 1
        else:
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, "chunks")
            made = Converter()
            found = self._thread.submit(self._read, table, last, limit, start, made)
            self._asked = _Asked(table, last, limit, found, made)

    def take(
        self, table: Table, after: Row | None, limit: int, returned: set[int], made: Converter
    ) -> PostgresChunk | None:
        """The chunk after a key. None if it was not read, or does not show what was returned."""
        asked, self._asked = self._asked, None
        if asked is None:
            return None
        chunk = asked.found.result()
        if chunk is None or asked.table is not table or asked.after != after or asked.limit > limit:
            return None
        if not chunk.shows(returned):
            self._pause = _PAUSE
            return None
        made.replaced += asked.made.replaced
        return chunk

    def _read(
        self, table: Table, after: Row, limit: int, start: Position, made: Converter
    ) -> PostgresChunk | None:
        try:
            if self._connection is None:
                self._connection = self._address.connect()
            with self._connection.cursor() as cursor:
                return read_chunk(cursor, table, after, limit, set(), start, made)
        except (psycopg2.Error, HeadraceError):
            self._hang_up()
            return None  # who wants the chunk reads it again, and says what is wrong

    def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg2.Error):
                connection.close()
