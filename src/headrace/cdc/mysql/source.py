"""MariaDB as a source of changes."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import pymysql

from headrace.cdc.choice import TableChoice
from headrace.cdc.contract import Chunk, Gap, Row, Source, SourceState, SourceTransaction, Table
from headrace.cdc.mysql.checks import DeclaredTable, check_settings, declared_tables
from headrace.cdc.mysql.chunk import read_chunk
from headrace.cdc.mysql.columns import arrow_to_rows, rows_to_arrow
from headrace.cdc.mysql.connection import Address, translated
from headrace.cdc.mysql.layouts import LayoutReader
from headrace.cdc.mysql.position import Position, file_number, sort_gtids
from headrace.cdc.mysql.stream import EventStream, PositionNotFound
from headrace.cdc.mysql.transactions import PART_BYTES, Assembler
from headrace.clock import MILLISECOND, SECOND, Clock, SystemClock
from headrace.errors import MisusedHandle, SourceUnavailable

_BATCH_BYTES: Final = 4 << 20
"""The bytes of events after which `read` returns, though there are more."""


class MySqlSource(Source):
    """The tables of a MariaDB server.

    `url` is `mysql://USER:PASSWORD@HOST:PORT/DATABASE`. Tables are named as `table` or
    `schema.table`; `schema.*` is each table of a schema. `server_id` is the
    number by which the server knows this reader, and no replica may have the same one.
    """

    kind = "mysql"

    def __init__(
        self,
        url: str,
        tables: TableChoice | Sequence[str] | None = None,
        *,
        server_id: int | None = None,
        clock: Clock | None = None,
        part_bytes: int = PART_BYTES,
    ) -> None:
        self.address = Address.parse(url)
        self.database = self.address.database
        choice = tables if isinstance(tables, TableChoice) else TableChoice(tuple(tables or ()))
        names = tuple(n if "." in n else f"{self.database}.{n}" for n in choice.names)
        self._choice = replace(choice, names=names)
        # The same after a restart, so that the server ends the connection of a reader that died.
        known_as = f"{self.address} {self._choice}".encode()
        self._server_id = server_id or 1 << 30 | zlib.crc32(known_as) >> 2
        self._clock = clock or SystemClock()
        self._part_bytes = part_bytes
        self._connection: Any = None
        self._number: int | None = None
        self._declared: dict[tuple[str, str], DeclaredTable] = {}
        self._stream: EventStream | None = None
        self._assembler: Assembler | None = None
        self._given = ""
        self._schemas = sorted({self.database, *(name.partition(".")[0] for name in names)})
        # The package that reads the binlog keeps this list, and we add new tables to it.
        self._names: list[str] = []

    def attach(self) -> None:
        with self._cursor() as cursor:
            check_settings(cursor)
            # Each needs a right that no table has.
            cursor.execute("SHOW BINARY LOGS")
            cursor.execute("SHOW MASTER STATUS")
        self._look()
        self._choice.of(list(self._declared))
        self._refuse_trouble()
        with self._cursor() as cursor:
            for table in self.tables():
                cursor.execute(f"SELECT 1 FROM `{table.schema}`.`{table.name}` LIMIT 0")
        self._open(self._head(), by_gtid=False).close()

    def detach(self) -> None:
        """Remove nothing: the server has nothing of ours."""

    def tables(self) -> list[Table]:
        self._look()
        return [found.table for found in self._declared.values() if found.trouble is None]

    def begin(self, position: str | None) -> Gap | None:
        self._end()
        self._look()
        start = self._head() if position is None else Position.parse(position)
        gap = None if position is None else self._gap(start)
        if gap is not None:
            return gap
        try:
            self._stream = self._open(start, by_gtid=start.server != self._server)
        except PositionNotFound as error:
            return self._gap_after(start, f"another server has not all of its binlog: {error}")
        self._assembler = Assembler(
            start,
            self._server,
            LayoutReader(self._charsets()),
            self._declared,
            self._look_again,
            self._part_bytes,
        )
        self._given = position or ""
        return None

    @property
    def position(self) -> str:
        if self._assembler is None:
            raise MisusedHandle("reading has not begun", hint="Call begin() first")
        return str(self._assembler.position)

    def read(self, seconds: float) -> Sequence[SourceTransaction]:
        stream, assembler = self._stream, self._assembler
        if stream is None or assembler is None:
            raise MisusedHandle("reading has not begun", hint="Call begin() first")
        until = self._clock.monotonic() + int(seconds * SECOND)
        found: list[SourceTransaction] = []
        size = 0
        try:
            while size < _BATCH_BYTES:
                left = max(0, until - self._clock.monotonic()) / SECOND
                if not stream.ready(0 if found else left):
                    break
                event = stream.next()
                size += event.packet.event_size
                found += assembler.take(event, stream.place)
                if not found and self._clock.monotonic() >= until:
                    break
        except PositionNotFound as error:
            self._end()
            raise SourceUnavailable(
                f"{self.address} ended the binlog: {error}", hint="The capture connects again"
            ) from None
        except BaseException:
            self._end()
            raise
        now = str(assembler.position)
        if now != (found[-1].position if found else self._given):
            found.append(SourceTransaction("", now))
        self._given = now
        return found

    def acknowledge(self, position: str) -> None:
        """Nothing: the server keeps its binlog for a time of its own."""

    def passed(self, position: str, mark: str) -> bool:
        return Position.parse(position).passed(Position.parse(mark))

    def chunk(self, table: Table, after: Row | None, limit: int) -> Chunk:
        declared = self._declared.get((table.schema, table.name))
        if declared is None or declared.table != table:
            raise SourceUnavailable(
                f"{table.full_name} was changed or dropped while a snapshot was being read",
                hint="The snapshot of the table begins again",
            )
        while True:
            with self._cursor() as cursor:
                found = read_chunk(cursor, table, declared.columns, after, limit, self._server)
            # The binlog has a transaction some microseconds before others see what it did.
            amid = self._assembler is not None and self._assembler.amid
            if not self._given or found.shows(self._given, amid=amid):
                return found
            self._clock.sleep(MILLISECOND)

    def columns(self, columns: pa.Schema, rows: Sequence[Row | None]) -> pa.StructArray:
        return rows_to_arrow(columns, rows)

    def rows(self, columns: pa.Schema, values: pa.StructArray) -> list[Row | None]:
        return arrow_to_rows(columns, values)

    def state(self, position: str | None) -> SourceState:
        head = self._head()
        with self._cursor() as cursor:
            cursor.execute("SHOW BINARY LOGS")
            files = [(str(row[0]), int(row[1])) for row in cursor.fetchall()]
        start = head if position is None else Position.parse(position)
        behind = [size for name, size in files if file_number(name) >= file_number(start.file)]
        kept = sum(size for _, size in files)
        facts = {"binlog from": files[0][0], "binlog bytes": str(kept), "server": self.version()}
        return SourceState(str(head), max(0, sum(behind) - start.offset), "bytes", facts)

    def version(self) -> str:
        """The version of the server."""
        return str(self._value("SELECT @@version"))

    def close(self) -> None:
        self._end()
        if self._connection is not None and self._connection.open:
            self._connection._force_close()
        self._connection = None

    def _look(self) -> None:
        """Read again which of the wanted tables there are, and what they are like."""
        with self._cursor() as cursor:
            found = declared_tables(cursor, self._schemas, self._choice.takes)
        for place, declared in found.items():
            known = self._declared.get(place)
            if known is not None and known.table == declared.table:
                found[place] = replace(declared, table=known.table)
        self._declared = found
        self._names += {name for _, name in found}.difference(self._names)

    def _look_again(self) -> Mapping[tuple[str, str], DeclaredTable]:
        """The tables after a statement has changed some. One may have become impossible."""
        self._look()
        self._refuse_trouble()
        return self._declared

    def _refuse_trouble(self) -> None:
        for declared in self._declared.values():
            if declared.trouble is not None:
                raise declared.trouble

    def _open(self, start: Position, *, by_gtid: bool) -> EventStream:
        return EventStream(
            self.address,
            self._server_id,
            start,
            self._clock.monotonic,
            by_gtid=by_gtid,
            schemas=self._schemas,
            tables=self._names,
        )

    def _gap(self, start: Position) -> Gap | None:
        """The changes after a position that its server no longer has."""
        if start.server != self._server:
            return self._missing(start)
        with self._cursor() as cursor:
            cursor.execute("SHOW BINARY LOGS")
            files = [str(row[0]) for row in cursor.fetchall()]
        if start.file not in files:
            if file_number(start.file) < file_number(files[0]):
                return self._gap_after(start, f"the binlog {start.file} was purged")
            return self._gap_after(start, f"the binlog has no {start.file}: it was reset")
        gtids = self._gtids(start.file, start.offset)
        if gtids != start.gtid:
            return self._gap_after(
                start, f"at {start.file}:{start.offset} the binlog has another history: {gtids}"
            )
        return None

    def _missing(self, start: Position) -> Gap | None:
        """The transactions up to a position that another server than its own lacks.

        It would refuse GTIDs that it lacks, but not those of a domain that is new to it.
        """
        state = str(self._value("SELECT @@gtid_binlog_state"))
        last = {
            one.rpartition("-")[0]: int(one.rpartition("-")[2]) for one in state.split(",") if one
        }
        for gtid in start.gtid.split(","):
            source, _, sequence = gtid.rpartition("-")
            if not gtid or last.get(source, -1) < int(sequence):
                return self._gap_after(
                    start,
                    f"server {self._server} took over from server {start.server}, and its binlog "
                    f"does not have the transaction {gtid or 'before the first'}",
                )
        return None

    def _gap_after(self, start: Position, reason: str) -> Gap:
        with self._cursor() as cursor:
            cursor.execute("SHOW BINARY LOGS")
            oldest = str(cursor.fetchone()[0])
        return Gap(str(start), str(Position(oldest, 4, self._server)), reason)

    def _head(self) -> Position:
        with self._cursor() as cursor:
            cursor.execute("SHOW MASTER STATUS")
            file, offset = cursor.fetchone()[:2]
        return Position(file, int(offset), self._server, self._gtids(file, int(offset)) or "")

    def _gtids(self, file: str, offset: int) -> str | None:
        """The GTIDs before a place; None if the binlog does not have it."""
        found = self._value("SELECT BINLOG_GTID_POS(%s, %s)", file, offset)
        return None if found is None else sort_gtids(found)

    @property
    def _server(self) -> int:
        """The number of the server, which the connection cannot change under us."""
        if self._number is None:
            self._number = int(self._value("SELECT @@server_id"))
        return self._number

    def _charsets(self) -> dict[int, str]:
        """The character set of each collation, by its number."""
        with self._cursor() as cursor:
            cursor.execute(
                "SELECT ID, CHARACTER_SET_NAME "
                "FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY"
            )
            return {int(number): str(name) for number, name in cursor.fetchall()}

    def _value(self, query: str, *parameters: Any) -> Any:
        with self._cursor() as cursor:
            cursor.execute(query, parameters or None)
            return cursor.fetchone()[0]

    @contextmanager
    def _cursor(self) -> Iterator[Any]:
        """A cursor for questions. A connection that was lost is made again for the next one."""
        if self._connection is None or not self._connection.open:
            self._number = None
            self._connection = self.address.connect()
        try:
            with self._connection.cursor() as cursor:
                yield cursor
        except (pymysql.MySQLError, OSError) as error:
            found = translated(error, self.address)
            if isinstance(found, SourceUnavailable):
                self._connection._force_close()
            raise found from None

    def _end(self) -> None:
        if self._stream is not None:
            self._stream.close()
        self._stream = self._assembler = None
