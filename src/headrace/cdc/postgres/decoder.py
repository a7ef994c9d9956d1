"""The messages of `pgoutput`, made transactions.

A frame is a message as the replication protocol carries it, after a header of 25 bytes. Values stay
bytes, as the server wrote them in text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from struct import Struct
from typing import Any, Final, Protocol

from headrace.cdc.contract import UNCHANGED, Change, Row, SourceTransaction, Table
from headrace.cdc.postgres.in_progress import InProgress
from headrace.cdc.postgres.position import Position, lsn_text
from headrace.errors import SourceError

HEADER: Final = 25
"""Bytes of a frame before its message: its kind, the server's positions and its time."""

PART_CHANGES: Final = 50_000
PART_BYTES: Final = 16 << 20
"""Changes and bytes after which a transaction is given in parts."""

_EPOCH: Final = 946_684_800_000_000
"""The server's epoch, the year 2000, in microseconds since 1970."""

_BEGIN: Final = Struct(">qqI")
_COMMIT: Final = Struct(">Bqqq")
_STREAM_START: Final = Struct(">IB")
_STREAM_COMMIT: Final = Struct(">IBqqq")
_TWO: Final = Struct(">II")
_COLUMN: Final = Struct(">Ii")
_LENGTH: Final = Struct(">I")

_TEXT, _NULL, _UNCHANGED, _NEW = b"tnuN"
_KEY_ROW, _OLD_ROW = b"KO"

_new = tuple.__new__


class Relations(Protocol):
    """The source's knowledge of tables."""

    def table(
        self,
        schema: str,
        name: str,
        columns: list[tuple[str, int, int]],
        identity: list[str] | None,
    ) -> Table | None:
        """The table of a relation with these columns; None if it is not captured.

        The identity are the columns of its key, if the relation tells them.
        """


@dataclass(frozen=True)
class _Layout:
    """A captured table as the server sends its rows."""

    table: Table
    width: int
    key_of: Callable[[Row], Row]


class Decoder:
    """Makes transactions of frames. `done` has those that are complete, and is for the taking."""

    def __init__(self, relations: Relations, start: Position) -> None:
        self._relations = relations
        self._before = str(start)
        # The part of a position that stays the same.
        self._server = self._before.partition("@")[2]
        self._layouts: dict[bytes, _Layout | None] = {}
        self._changes: list[Change] = []
        self._size = 0
        self._id = ""
        self._at = 0
        self._streaming: InProgress | None = None
        self._in_progress: dict[int, InProgress] = {}
        self.done: list[SourceTransaction] = []
        self.within = False
        """True between the beginning and the commit of a transaction."""

    def close(self) -> None:
        """Forget the transactions in progress."""
        for transaction in self._in_progress.values():
            transaction.close()
        self._in_progress.clear()

    def take(self, frame: bytes) -> Iterator[SourceTransaction] | None:
        """Read a frame. Returns the parts of a transaction that was in progress, once committed."""
        kind = frame[HEADER]
        if self._streaming is not None and kind not in b"Ec":
            self._keep(frame, kind)
        elif kind in b"IUDT":
            self._change(frame, kind)
        elif kind == 0x42:  # B
            _, at, number = _BEGIN.unpack_from(frame, HEADER + 1)
            self._begin(number, at)
        elif kind == 0x43:  # C
            _, _, end, _ = _COMMIT.unpack_from(frame, HEADER + 1)
            self._commit(end)
        elif kind == 0x52:  # R
            self._relation(frame)
        elif kind == 0x53:  # S
            (number, _) = _STREAM_START.unpack_from(frame, HEADER + 1)
            if number not in self._in_progress:
                self._in_progress[number] = InProgress()
            self._streaming = self._in_progress[number]
        elif kind == 0x45:  # E
            self._streaming = None
        elif kind == 0x63:  # c
            number, _, _, end, at = _STREAM_COMMIT.unpack_from(frame, HEADER + 1)
            return self._replay(number, end, at)
        elif kind == 0x41:  # A
            self._abort(*_TWO.unpack_from(frame, HEADER + 1))
        elif kind not in b"OYM":  # origins, types and messages
            raise SourceError(
                f"The server sent the unknown message {chr(kind)!r} of its plugin pgoutput",
                hint="Report this with the version of the server",
            )
        return None

    # Transactions

    def _begin(self, number: int, at: int) -> None:
        self._id = str(number)
        self._at = at + _EPOCH
        self._changes = []
        self._size = 0
        self.within = True

    def _commit(self, end: int) -> None:
        self._before = f"{lsn_text(end)}@{self._server}"
        self.done.append(SourceTransaction(self._id, self._before, self._at, self._changes))
        self._changes = []
        self.within = False

    def _give_part(self) -> None:
        part = SourceTransaction(self._id, self._before, self._at, self._changes, whole=False)
        self.done.append(part)
        self._changes = []
        self._size = 0

    def _keep(self, frame: bytes, kind: int) -> None:
        """Keep a message of a transaction in progress, without the number of its subtransaction."""
        streaming = self._streaming
        if streaming is not None and kind in b"IUDTR":
            number = int.from_bytes(frame[HEADER + 1 : HEADER + 5], "big")
            streaming.add(number, frame[HEADER : HEADER + 1] + frame[HEADER + 5 :])

    def _abort(self, number: int, part: int) -> None:
        if number != part:
            if (found := self._in_progress.get(number)) is not None:
                found.abort(part)
        elif (found := self._in_progress.pop(number, None)) is not None:
            found.close()

    def _replay(self, number: int, end: int, at: int) -> Iterator[SourceTransaction]:
        """The transaction that was in progress, part by part."""
        kept = self._in_progress.pop(number, None)
        self._begin(number, at)
        header = bytes(HEADER)
        with kept or InProgress() as messages:
            for message in messages:
                self.take(header + message)
                while self.done:
                    yield self.done.pop(0)
        self._commit(end)
        while self.done:
            yield self.done.pop(0)

    # Rows

    def _change(self, frame: bytes, kind: int) -> None:
        if kind == 0x54:  # T
            self._truncate(frame)
            return
        layout = self._layouts[frame[HEADER + 1 : HEADER + 5]]
        if layout is None:
            return
        if len(self._changes) >= PART_CHANGES or self._size > PART_BYTES:
            self._give_part()
        self._size += len(frame)
        table, add = layout.table, self._changes.append
        if kind == 0x49:  # I
            row, _ = _row(frame, HEADER + 8, layout.width)
            add(_new(Change, (table, "c", layout.key_of(row), None, row)))
            return
        sent = frame[HEADER + 5]
        at = HEADER + 8
        old: Row | None = None
        if sent != _NEW:
            old, at = _row(frame, at, layout.width)
            at += 3
        before = old if sent == _OLD_ROW else None
        if kind == 0x44:  # D
            key = layout.key_of(old or ())
            add(_new(Change, (table, "d", key, before, None)))
            return
        row, _ = _row(frame, at, layout.width)
        key = layout.key_of(row)
        former = key if old is None else layout.key_of(old)
        if UNCHANGED in key:
            key = tuple(o if n is UNCHANGED else n for o, n in zip(former, key, strict=True))
        if former == key:
            add(_new(Change, (table, "u", key, before, row)))
        else:
            add(_new(Change, (table, "d", former, before, None)))
            add(_new(Change, (table, "c", key, None, row)))

    def _truncate(self, frame: bytes) -> None:
        count = int.from_bytes(frame[HEADER + 1 : HEADER + 5], "big")
        at = HEADER + 6
        for start in range(at, at + 4 * count, 4):
            layout = self._layouts[frame[start : start + 4]]
            if layout is not None:
                self._changes.append(Change(layout.table, "t", (), None, None))

    def _relation(self, frame: bytes) -> None:
        number = frame[HEADER + 1 : HEADER + 5]
        schema, at = _text(frame, HEADER + 5)
        name, at = _text(frame, at)
        identity = chr(frame[at])
        width = int.from_bytes(frame[at + 1 : at + 3], "big")
        at += 3
        columns: list[tuple[str, int, int]] = []
        key: list[str] = []
        for _ in range(width):
            flags = frame[at]
            column, at = _text(frame, at + 1)
            kind, modifier = _COLUMN.unpack_from(frame, at)
            at += _COLUMN.size
            columns.append((column, kind, modifier))
            if flags & 1:
                key.append(column)
        told = key if identity == "d" else None
        table = self._relations.table(schema or "pg_catalog", name, columns, told)
        self._layouts[number] = None if table is None else _layout(table, width)


def _layout(table: Table, width: int) -> _Layout:
    places = table.key_places
    if len(places) == 1:
        (place,) = places
        return _Layout(table, width, lambda row: (row[place],))
    key_of: Any = itemgetter(*places)
    return _Layout(table, width, key_of)


def _row(frame: bytes, at: int, width: int) -> tuple[Row, int]:
    """The values of a row that begins at a place, and the place after it."""
    values: list[Any] = []
    add, length = values.append, _LENGTH.unpack_from
    for _ in range(width):
        kind = frame[at]
        if kind == _TEXT:
            start = at + 5
            at = start + length(frame, at + 1)[0]
            add(frame[start:at])
        elif kind == _NULL:
            add(None)
            at += 1
        else:
            add(UNCHANGED)
            at += 1
    return tuple(values), at


def _text(frame: bytes, at: int) -> tuple[str, int]:
    end = frame.index(0, at)
    return frame[at:end].decode(), end + 1
