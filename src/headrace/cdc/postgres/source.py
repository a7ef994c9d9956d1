"""PostgreSQL as a source of changes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import psycopg2
import pyarrow as pa

from headrace.cdc.choice import TableChoice
from headrace.cdc.contract import Chunk, Gap, Row, Source, SourceState, SourceTransaction, Table
from headrace.cdc.postgres import slot as slots
from headrace.cdc.postgres.address import Address
from headrace.cdc.postgres.catalog import CatalogTable, all_tables, described
from headrace.cdc.postgres.chunk import PostgresChunk, Snapshot, read_rows
from headrace.cdc.postgres.columns import Converter
from headrace.cdc.postgres.decoder import Decoder
from headrace.cdc.postgres.failures import failed, quoted
from headrace.cdc.postgres.health import Health
from headrace.cdc.postgres.position import Position, lsn_text, read_lsn
from headrace.cdc.postgres.replication import Stream
from headrace.cdc.postgres.types import Types
from headrace.clock import MILLISECOND, SECOND, Clock, SystemClock
from headrace.errors import MisusedHandle, SourceError, SourceUnavailable

_BATCH_BYTES: Final = 4 << 20
"""The bytes of changes after which `read` returns, though there are more."""

_PATIENCE: Final = 30 * SECOND
_REMEMBERED: Final = 10_000
_WAL_PAGE: Final = 8192

_EMIT: Final = "SELECT pg_logical_emit_message(true, 'headrace', %s)::text"
"""Write something into the log and, by the commit, out to the disk."""


class PostgresSource(Source):
    """The tables of a database.

    `url` is `postgresql://USER:PASSWORD@HOST:PORT/DATABASE`, with `tables`, `slot` and
    `publication` as settings if they are not given here. Without tables it is all of them. The
    slot is `headrace_DATABASE` if it has no name, and the publication is named like the slot.
    """

    kind = "postgresql"

    def __init__(
        self,
        url: str,
        tables: TableChoice | Sequence[str] | None = None,
        *,
        slot: str | None = None,
        publication: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.address = Address.parse(url)
        self.database = self.address.database
        names = self.address.tables if tables is None else tables
        self._choice = names if isinstance(names, TableChoice) else TableChoice(tuple(names))
        self.slot = slot or self.address.slot or _default_slot(self.database)
        self.publication = publication or self.address.publication or self.slot
        self._clock = clock or SystemClock()
        self._converter = Converter()
        self._health = Health(self._clock)
        self._connection: Any = None
        self._types = Types(self._query)
        self._tables: dict[tuple[str, str], Table] = {}
        self._made_anew: str | None = None
        self._system, self._timeline = "", 0
        self._stream: Stream | None = None
        self._decoder: Decoder | None = None
        self._parts: Iterator[SourceTransaction] | None = None
        self._given = Position(0, "", 0)
        self._returned: set[int] = set()

    # Setting up

    def attach(self) -> None:
        address, user = str(self.address), self.address.user
        slots.check_server(self._query, address, user)
        chosen = self._choose()
        published = slots.ensure_publication(
            self._query, self.publication, chosen, self.database, user
        )
        made = slots.ensure_slot(self._query, self.slot, self.database, address, readable=published)
        self._made_anew = made or self._made_anew

    def detach(self) -> None:
        self._end()
        slots.drop_slot(self._query, self.slot, str(self.address))
        slots.drop_publication(self._query, self.publication)

    def tables(self) -> list[Table]:
        found = described(self._query, self._types, self._choose())
        return [self._known(table) for table in found]

    def table(
        self,
        schema: str,
        name: str,
        columns: list[tuple[str, int, int]],
        identity: list[str] | None,
    ) -> Table | None:
        """The table that the server describes before its changes."""
        full_name = f"{schema}.{name}"
        fields = self._types.fields(full_name, columns)
        key = self._primary_key(schema, name, identity)
        if not key:
            raise SourceError(
                f"Table {full_name} has no primary key any more, so its rows cannot be told apart",
                hint=f"ALTER TABLE {quoted(schema)}.{quoted(name)} ADD PRIMARY KEY (...), and run "
                "the capture with --heal",
                table=full_name,
            )
        return self._known(Table(schema, name, pa.schema(fields), key))

    # The stream of changes

    def begin(self, position: str | None) -> Gap | None:
        self._end()
        if position is None:
            slots.ensure_slot(
                self._query, self.slot, self.database, str(self.address), readable=True
            )
        found = slots.find_slot(self._query, self.slot)
        connection = self.address.connect_for_replication()
        try:
            head = self._identify(connection)
            start = None if position is None else Position.parse(position)
            gap = None if start is None else self._gap(connection, start, head, found)
            if gap is not None or found is None:
                connection.close()
                return gap
            slots.take_over(self._query, found, self.address.application)
            lsn = found.confirmed or 0 if start is None else start.lsn
            self._start(connection, lsn)
        except psycopg2.Error as error:
            connection.close()
            raise self._failed(error) from None
        except BaseException:
            connection.close()
            raise
        self._made_anew = None
        return None

    @property
    def position(self) -> str:
        return str(self._given)

    def read(self, seconds: float) -> Sequence[SourceTransaction]:
        stream, decoder = self._stream, self._decoder
        if stream is None or decoder is None:
            raise MisusedHandle("Reading has not begun", hint="Call begin() first")
        try:
            found = self._read(stream, decoder)
            if not found and seconds > 0:
                stream.wait(seconds)
                found = self._read(stream, decoder)
        except BaseException:
            self._end()
            raise
        self._returned.update(int(one.id) for one in found if one.whole and one.id)
        if len(self._returned) > _REMEMBERED:
            self._forget()
        return found

    def _read(self, stream: Stream, decoder: Decoder) -> list[SourceTransaction]:
        found: list[SourceTransaction] = []
        if self._parts is None:
            size = 0
            for frame in stream.frames():
                size += len(frame)
                self._parts = decoder.take(frame)
                if self._parts is not None or size > _BATCH_BYTES:
                    break
            found, decoder.done = decoder.done, []
        if not found and self._parts is not None:
            part = next(self._parts, None)
            if part is None:
                self._parts = None
                return self._read(stream, decoder)
            found = [part]
        if found and found[-1].whole:
            self._given = Position.parse(found[-1].position)
        if self._parts is None and not decoder.within and stream.reached > self._given.lsn:
            self._given = Position(stream.reached, self._system, self._timeline)
            found.append(SourceTransaction("", str(self._given)))
        return found

    def acknowledge(self, position: str) -> None:
        if self._stream is not None:
            self._stream.acknowledge(Position.parse(position).lsn)

    def passed(self, position: str, mark: str) -> bool:
        return Position.parse(position).lsn >= Position.parse(mark).lsn

    # Rows

    def chunk(self, table: Table, after: Row | None, limit: int) -> Chunk:
        until = self._clock.monotonic() + _PATIENCE
        while (found := self._chunk(table, after, limit)) is None:
            # The log has a transaction some microseconds before others see what it did.
            if self._clock.monotonic() > until:
                raise SourceUnavailable(
                    f"{self.address} still hides transactions that it has sent as committed",
                    hint="Look at synchronous_standby_names: a standby may not answer",
                )
            self._clock.sleep(2 * MILLISECOND)
        return found

    def _chunk(self, table: Table, after: Row | None, limit: int) -> PostgresChunk | None:
        """A chunk; None if it does not show all that `read` has returned."""
        with self._cursor() as cursor:
            cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            try:
                cursor.execute("SELECT pg_current_snapshot()::text")
                snapshot = Snapshot(cursor.fetchone()[0])
                if not all(map(snapshot.sees, self._returned)):
                    return None
                rows = read_rows(cursor, table, after, limit)
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
            cursor.execute(_EMIT, ("chunk",))
            high = Position(read_lsn(cursor.fetchone()[0]), self._system, self._timeline)
        self._returned.clear()
        last = table.key_of(rows[-1]) if len(rows) == limit else None
        return PostgresChunk(rows, str(high), last, snapshot)

    def columns(self, columns: pa.Schema, rows: Sequence[Row | None]) -> pa.StructArray:
        return self._converter.to_arrow(columns, rows)

    def rows(self, columns: pa.Schema, values: pa.StructArray) -> list[Row | None]:
        return self._converter.to_rows(columns, values)

    # State

    def state(self, position: str | None) -> SourceState:
        ((head, system, timeline, version),) = self._query(
            "SELECT pg_current_wal_flush_lsn()::text, system_identifier::text, timeline_id, "
            "current_setting('server_version') FROM pg_control_system(), pg_control_checkpoint()"
        )
        found = slots.find_slot(self._query, self.slot)
        end = read_lsn(head)
        if end % _WAL_PAGE == 0:
            # The server writes full pages before what is in them is complete.
            ((head,),) = self._query(_EMIT, "head")
            end = read_lsn(head)
        start = Position.parse(position).lsn if position is not None else None
        if start is None:
            start = end if found is None or found.confirmed is None else found.confirmed
        facts = {"server": f"PostgreSQL {version.split()[0]}", "slot": self.slot}
        facts |= self._health.facts(found, end, self._query, self.address.host)
        if replaced := self._converter.replaced:
            facts["values out of range"] = ", ".join(f"{n}: {c}" for n, c in replaced.items())
        place = Position(end, system, timeline)
        return SourceState(str(place), max(0, end - start), "bytes", facts)

    def close(self) -> None:
        self._end()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # Inside

    def _choose(self) -> list[CatalogTable]:
        """The tables to capture that there are."""
        there = {(table.schema, table.name): table for table in all_tables(self._query)}
        return [there[place] for place in self._choice.of(list(there))]

    def _known(self, table: Table) -> Table:
        """The same object as before, unless the table has changed."""
        place = (table.schema, table.name)
        known = self._tables.get(place)
        same = known is not None and known.columns.equals(table.columns, check_metadata=True)
        if known is None or not same or known.key != table.key:
            known = self._tables[place] = table
        return known

    def _primary_key(self, schema: str, name: str, told: list[str] | None) -> tuple[str, ...]:
        """The primary key, whose columns the server may have told, in the order of the table."""
        known = self._tables.get((schema, name))
        if known is not None and (told is None or set(told) == set(known.key)):
            return known.key
        there = (t for t in all_tables(self._query) if (t.schema, t.name) == (schema, name))
        key = next((tuple(table.key) for table in there), ())
        return key if told is None or set(told) == set(key) else tuple(told)

    def _identify(self, connection: Any) -> int:
        """Learn which server this is. Returns the end of its log."""
        with connection.cursor() as cursor:
            cursor.execute("IDENTIFY_SYSTEM")
            system, timeline, head, _ = cursor.fetchone()
        self._system, self._timeline = str(system), int(timeline)
        return read_lsn(head)

    def _gap(
        self, connection: Any, start: Position, head: int, found: slots.Slot | None
    ) -> Gap | None:
        """The changes after a position that the server no longer has."""
        confirmed = None if found is None else found.confirmed
        first = Position(confirmed, self._system, self._timeline) if confirmed is not None else None
        before = None if first is None else str(first)
        reason: str | None = None
        if start.system != self._system:
            reason = f"this is another server: its system is {self._system}, and was {start.system}"
        elif found is None or confirmed is None:
            reason = f"the slot {self.slot} was dropped"
        elif found.lost:
            reason = f"the server has removed WAL that the slot {self.slot} was to keep"
        elif (end := self._end_of(connection, start.timeline)) is not None and start.lsn > end:
            reason = (
                f"the server was promoted at {lsn_text(end)} (timeline {self._timeline}), "
                "before what was captured last"
            )
        elif start.lsn > head:
            reason = f"the log of the server ends at {lsn_text(head)}, as that of a backup would"
        elif confirmed > start.lsn:
            reason = self._made_anew or f"the slot {self.slot} was moved ahead or made anew"
        if reason is None:
            return None
        return Gap(str(start), before, reason)

    def _end_of(self, connection: Any, timeline: int) -> int | None:
        """The place at which a timeline ended; None if it is the server's own."""
        if timeline == self._timeline:
            return None
        with connection.cursor() as cursor:
            cursor.execute(f"TIMELINE_HISTORY {self._timeline}")
            content = cursor.fetchone()[1]
        text = content if isinstance(content, str) else bytes(content).decode()
        found = re.search(rf"^{timeline}\t([0-9A-F]+/[0-9A-F]+)", text, re.MULTILINE)
        return 0 if found is None else read_lsn(found[1])

    def _start(self, connection: Any, lsn: int) -> None:
        self._given = Position(lsn, self._system, self._timeline)
        self._stream = Stream(
            connection,
            self.slot,
            self.publication,
            lsn,
            self._clock,
            str(self.address),
            self.address.user,
        )
        self._decoder = Decoder(self, self._given)

    def _end(self) -> None:
        """Stop reading."""
        if self._stream is not None:
            self._stream.close()
        if self._decoder is not None:
            self._decoder.close()
        self._stream = self._decoder = self._parts = None

    def _forget(self) -> None:
        """Forget the transactions that everybody sees by now."""
        ((text,),) = self._query("SELECT pg_current_snapshot()::text")
        snapshot = Snapshot(text)
        self._returned = {number for number in self._returned if not snapshot.sees(number)}

    def _query(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of a statement, which is a transaction of its own."""
        with self._cursor() as cursor:
            cursor.execute(sql, values or None)
            return list(cursor.fetchall()) if cursor.description else []

    @contextmanager
    def _cursor(self) -> Iterator[Any]:
        """A cursor. A connection that was lost is made again."""
        if self._connection is None or self._connection.closed:
            self._connection = self.address.connect()
        try:
            with self._connection.cursor() as cursor:
                yield cursor
        except _TOLD_APART:
            raise
        except psycopg2.Error as error:
            if self._connection is not None and error.pgcode is None:
                self._connection.close()
            raise self._failed(error) from None

    def _failed(self, error: psycopg2.Error) -> Exception:
        return failed(error.pgcode, str(error), str(self.address), self.address.user)


_TOLD_APART: Final = (
    psycopg2.errors.InsufficientPrivilege,
    psycopg2.errors.QueryCanceled,
    psycopg2.errors.DuplicateObject,
    psycopg2.errors.ConfigurationLimitExceeded,
    psycopg2.errors.InvalidName,
    psycopg2.errors.ObjectInUse,
)
"""Errors that `slot.py` has words for."""


def _default_slot(database: str) -> str:
    return "headrace_" + re.sub(r"[^a-z0-9_]", "_", database.lower())[:50]
