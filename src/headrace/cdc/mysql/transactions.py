"""Whole transactions, put together from events of the binlog."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pymysqlreplication.event import (
    BinLogEvent,
    FormatDescriptionEvent,
    HeartbeatLogEvent,
    MariadbGtidEvent,
    NotImplementedEvent,
    QueryEvent,
    RotateEvent,
    XAPrepareEvent,
    XidEvent,
)
from pymysqlreplication.row_event import (
    DeleteRowsEvent,
    RowsEvent,
    TableMapEvent,
    UpdateRowsEvent,
)

from headrace.cdc.contract import (
    UNCHANGED,
    Change,
    Row,
    SourceTransaction,
    Table,
)
from headrace.cdc.mysql.checks import DeclaredTable
from headrace.cdc.mysql.images import read_images
from headrace.cdc.mysql.layouts import Layout, LayoutReader
from headrace.cdc.mysql.position import Position
from headrace.cdc.mysql.statements import read_statement
from headrace.errors import SourceError, SourceGap

PART_BYTES: Final = 16 << 20
"""The bytes of row images after which a transaction is given in parts."""

_STANDALONE: Final = 0x01
_IGNORABLE: Final = 0x80
_ANONYMOUS: Final = 34
_SECOND: Final = 1_000_000


@dataclass
class _Group:
    """A transaction that is being read."""

    gtid: str
    standalone: bool
    changes: list[Change] = field(default_factory=list)
    savepoints: dict[str, int] = field(default_factory=dict)
    size: int = 0
    parts: int = 0


class Assembler:
    """Puts transactions together.

    `declared` has the captured tables by schema and name, and `look` gives them again after a
    statement that changes tables.
    """

    def __init__(
        self,
        start: Position,
        server: int,
        reader: LayoutReader,
        declared: Mapping[tuple[str, str], DeclaredTable],
        look: Callable[[], Mapping[tuple[str, str], DeclaredTable]],
        part_bytes: int = PART_BYTES,
    ) -> None:
        self.position = start
        self._server = server
        self._reader = reader
        self._declared = declared
        self._look = look
        self._part_bytes = part_bytes
        # As the binlog has described them last, which may be before an ALTER TABLE.
        self._tables = {name: found.table for name, found in declared.items()}
        self._layouts: dict[int, Layout] = {}
        self._group: _Group | None = None

    @property
    def amid(self) -> bool:
        """True if a part of a transaction was given, and its end was not."""
        return self._group is not None and bool(self._group.parts)

    def take(self, event: BinLogEvent, place: tuple[str, int]) -> Iterator[SourceTransaction]:
        """The transactions that an event ends, each with the position after it."""
        if isinstance(event, RowsEvent):
            yield from self._rows(event)
        elif isinstance(event, TableMapEvent):
            self._describe(event)
        elif isinstance(event, XidEvent):
            yield from self._commit(event, place)
        elif isinstance(event, MariadbGtidEvent):
            self._group = _Group(event.gtid, bool(event.flags & _STANDALONE))
        elif isinstance(event, QueryEvent):
            yield from self._statement(event, place)
        elif isinstance(event, XAPrepareEvent):
            yield from self._prepared(event, place)
        elif isinstance(event, FormatDescriptionEvent):
            self._layouts.clear()
        elif isinstance(event, HeartbeatLogEvent):
            if self._group is None:
                self._move(place)
        elif isinstance(event, RotateEvent):
            # Another server begins with a file in which it looks for our GTIDs.
            if self._group is None and self.position.server == self._server:
                self._move(place)
        elif isinstance(event, NotImplementedEvent):
            self._unknown(event)

    def _move(self, place: tuple[str, int]) -> None:
        file, offset = place
        self.position = replace(self.position, file=file, offset=offset, server=self._server)

    def _describe(self, event: Any) -> None:
        name = (event.schema, event.table)
        if name not in self._tables:
            return
        declared = self._declared.get(name)
        layout = self._reader.read(event, declared.columns if declared else {})
        if layout.table == self._tables[name]:  # The same object, so that nobody compares further.
            layout = replace(layout, table=self._tables[name])
        self._layouts[event.table_id] = layout
        self._tables[name] = layout.table

    def _rows(self, event: Any) -> Iterator[SourceTransaction]:
        layout = self._layouts.get(event.table_id)
        if layout is None:
            return
        group = self._current()
        if group.size >= self._part_bytes:  # Not sooner: the last part must have changes, too.
            group.parts += 1
            yield SourceTransaction(
                group.gtid,
                str(self.position),
                event.timestamp * _SECOND,
                group.changes,
                whole=False,
            )
            group.changes, group.size = [], 0
            # The binlog has a savepoint that is gone back to only with tables that keep changes.
            group.savepoints.clear()
        data = event.packet.read(event.event_size - event.packet.read_bytes)
        group.size += len(data)
        try:
            group.changes += _changes(event, layout, data)
        except (UnicodeDecodeError, LookupError, ValueError) as error:
            raise SourceError(
                f"a row of {layout.table.full_name} in the transaction {group.gtid} cannot be "
                f"read: {error}",
                hint="Report it with the definition of the table",
            ) from error

    def _commit(self, event: BinLogEvent, place: tuple[str, int]) -> Iterator[SourceTransaction]:
        group, self._group = self._current(), None
        self._move(place)
        self.position = self.position.after(group.gtid)
        if group.changes or group.parts:
            yield SourceTransaction(
                group.gtid, str(self.position), event.timestamp * _SECOND, group.changes
            )

    def _statement(self, event: Any, place: tuple[str, int]) -> Iterator[SourceTransaction]:
        group = self._current()
        text = event.query.strip()
        verb = text.split(None, 1)[0].upper().rstrip(";") if text else ""
        if verb == "BEGIN":
            return
        if verb == "COMMIT" and not group.standalone:
            yield from self._commit(event, place)
            return
        if verb == "SAVEPOINT":
            group.savepoints[_last_name(text)] = len(group.changes)
            return
        if verb == "ROLLBACK":
            self._roll_back(group, text)
            if not _names_savepoint(text):
                yield from self._commit(event, place)
            return
        if verb == "XA":
            if text.split()[1].upper() != "END":  # The end of one without captured changes.
                yield from self._commit(event, place)
            return
        group.changes += self._effects(text, event.schema.decode(), group.gtid)
        if group.standalone:
            yield from self._commit(event, place)

    def _roll_back(self, group: _Group, text: str) -> None:
        kept = group.savepoints.get(_last_name(text), 0) if _names_savepoint(text) else 0
        if group.parts:
            raise SourceError(
                f"the transaction {group.gtid} was rolled back after a part of it was written",
                hint="It mixes tables of storage engines with and without transactions; take a "
                "new snapshot of the tables it changes",
            )
        del group.changes[kept:]

    def _effects(self, text: str, schema: str, gtid: str) -> Iterator[Change]:
        """Changes of whole tables. Those that have no changes of rows are gaps."""
        for effect in read_statement(text, schema):
            if effect.effect == "rows" and self._may_write(text, schema):
                raise SourceGap(
                    f"the transaction {gtid} is in the binlog as a statement, without its rows",
                    hint="Set binlog_format=ROW for every session that writes, and run the capture "
                    "again with --heal",
                    position=str(self.position),
                )
            named = [name for name in effect.tables if name in self._tables]
            if effect.schema is not None:
                named = [name for name in self._tables if name[0] == effect.schema]
            if effect.effect == "replaced" and named:
                raise SourceGap(
                    f"the transaction {gtid} gave {'.'.join(named[0])} other rows as a whole, "
                    "which the binlog does not have",
                    hint="Run the capture again with --heal, which compares it with its topic",
                    position=str(self.position),
                )
            if effect.effect == "emptied":
                yield from (Change(self._tables[name], "t", (), None, None) for name in named)
            if named or effect.tables:
                self._declared = self._look()
                for name, found in self._declared.items():
                    self._tables.setdefault(name, found.table)

    def _may_write(self, text: str, schema: str) -> bool:
        """True if a statement may have changed captured tables, by itself or by a trigger."""
        return any(name == schema or name.lower() in text.lower() for name, _ in self._tables)

    def _prepared(self, event: Any, place: tuple[str, int]) -> Iterator[SourceTransaction]:
        group = self._current()
        if not event.one_phase and (group.changes or group.parts):
            raise SourceError(
                f"the transaction {group.gtid} was prepared with XA, and may be committed later",
                hint="Transactions of two phases cannot be captured: leave out the tables that "
                "they change",
            )
        yield from self._commit(event, place)

    def _current(self) -> _Group:
        if self._group is None:
            raise SourceError(
                f"the binlog after {self.position} has changes without a GTID",
                hint="Only the binlog of MariaDB can be read",
            )
        return self._group

    def _unknown(self, event: Any) -> None:
        flags = event.packet.flags
        if flags & _IGNORABLE:
            return
        raise SourceError(
            f"the binlog has an event of the unknown type {event.event_type} after {self.position}",
            hint="Set log_bin_compress=OFF on the server if it is ON",
        )


def _changes(event: Any, layout: Layout, data: bytes) -> Iterator[Change]:
    table = layout.table
    places = table.key_places
    if isinstance(event, UpdateRowsEvent):
        present = (event.columns_present_bitmap, event.columns_present_bitmap2)
        rows = read_images(data, layout.decoders, present)
        for before, after in zip(rows[::2], rows[1::2], strict=True):
            yield from _updated(table, places, before, after)
        return
    rows = read_images(data, layout.decoders, (event.columns_present_bitmap,))
    deleted = isinstance(event, DeleteRowsEvent)
    for row in rows:
        key = tuple([row[place] for place in places])
        if deleted:
            yield Change(table, "d", key, _sent(row), None)
        else:
            yield Change(table, "c", key, None, _whole(table, row))


def _updated(table: Table, places: tuple[int, ...], before: Row, after: Row) -> Iterator[Change]:
    old = tuple([before[place] for place in places])
    new = tuple(
        [old[at] if after[place] is UNCHANGED else after[place] for at, place in enumerate(places)]
    )
    if old == new:
        yield Change(table, "u", old, _sent(before), after)
        return
    yield Change(table, "d", old, _sent(before), None)
    yield Change(table, "c", new, None, after)


def _sent(row: Row) -> Row | None:
    """A row before a change, if the server sent all of it."""
    return None if UNCHANGED in row else row


def _whole(table: Table, row: Row) -> Row:
    if UNCHANGED in row:
        raise SourceError(
            f"the binlog has only some columns of a new row of {table.full_name}",
            hint="Set binlog_row_image=FULL for every session that writes, and take a new snapshot",
        )
    return row


def _names_savepoint(text: str) -> bool:
    return len(text.split()) > 1 and " TO " in text.upper()


def _last_name(text: str) -> str:
    return text.rstrip("; ").split(None)[-1].strip("`").lower()
