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
from headrace.cdc.postgres.ahead import Ahead
from headrace.cdc.postgres.catalog import CatalogTable, all_tables, described
from headrace.cdc.postgres.chunk import EMIT, Snapshot, read_chunk
from headrace.cdc.postgres.columns import Converter
from headrace.cdc.postgres.decoder import Decoder
from headrace.cdc.postgres.failures import failed, quoted
from headrace.cdc.postgres.gaps import find_gap, identify
from headrace.cdc.postgres.health import Health
from headrace.cdc.postgres.position import Position, read_lsn
from headrace.cdc.postgres.replication import Stream
from headrace.cdc.postgres.types import Types
from headrace.clock import MILLISECOND, SECOND, Clock, SystemClock
from headrace.errors import MisusedHandle, SourceError, SourceUnavailable

_BATCH_BYTES: Final = 4 << 20
"""The bytes of changes after which `read` returns, though there are more."""

_PATIENCE: Final = 30 * SECOND
_REMEMBERED: Final = 10_000
_WAL_PAGE: Final = 8192


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
        self._ahead = Ahead(self.address)

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
            server = identify(connection)
            if (server.system, server.timeline) != (self._system, self._timeline):
                self._returned.clear()  # It may lack what the server before it had committed.
            self._system, self._timeline = server.system, server.timeline
            start = None if position is None else Position.parse(position)
            gap = (
                None
                if start is None
                else find_gap(connection, server, start, self.slot, found, self._made_anew)
            )
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

    def quiet_since(self, position: str) -> bool:
        """The slot is looked into, which it allows while nobody reads it."""
        place = Position.parse(position)
        if place.system != self._here().system:
            return False
        try:
            found = self._query(
                "SELECT lsn::text FROM pg_logical_slot_peek_binary_changes(%s, NULL, %s, "
                "'proto_version', '1', 'publication_names', %s)",
                self.slot,
                _LOOKED_INTO,
                quoted(self.publication),
            )
        except psycopg2.errors.ObjectInUse:
            return False
        # A capture may have written the last ones without having told the server.
        later = any(read_lsn(lsn) > place.lsn for (lsn,) in found)
        return not later and len(found) < _LOOKED_INTO

    # Rows

    def chunk(self, table: Table, after: Row | None, limit: int) -> Chunk:
        found = self._ahead.take(table, after, limit, self._returned, self._converter)
        until = self._clock.monotonic() + _PATIENCE
        while found is None:
            with self._cursor() as cursor:
                found = read_chunk(
                    cursor, table, after, limit, self._returned, self._here(), self._converter
                )
            # The log has a transaction some microseconds before others see what it did.
            if found is None and self._clock.monotonic() > until:
                raise SourceUnavailable(
                    f"{self.address} still hides transactions that it has sent as committed",
                    hint="Look at synchronous_standby_names: a standby may not answer",
                )
            if found is None:
                self._clock.sleep(2 * MILLISECOND)
        self._returned.clear()
        self._ahead.ask(table, found.last, limit, self._here())
        return found

    def _here(self) -> Position:
        """The position that reading has reached, or one of this server if nothing is read."""
        if not self._system:
            ((self._system, self._timeline),) = self._query(
                "SELECT system_identifier::text, timeline_id "
                "FROM pg_control_system(), pg_control_checkpoint()"
            )
            self._given = Position(0, self._system, self._timeline)
        return self._given

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
            ((head,),) = self._query(EMIT, "head")
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
        """The primary key, in the order of the table.

        The server tells its columns with the default replica identity; else the catalog has them,
        unless the table was dropped or renamed since.
        """
        known = self._tables.get((schema, name))
        if known is not None and told is not None and set(told) == set(known.key):
            return known.key
        there = (t for t in all_tables(self._query) if (t.schema, t.name) == (schema, name))
        found = next(there, None)
        if found is None and known is not None and told is None:
            return known.key
        key = () if found is None else tuple(found.key)
        return key if told is None or set(told) == set(key) else tuple(told)

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
        self._ahead.close()
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


_LOOKED_INTO: Final = 10_000
"""Changes of a slot that are looked at, to find out whether all of them were captured."""

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
