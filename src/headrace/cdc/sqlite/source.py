"""The source for SQLite: it reads the table of changes, and removes what is in the log."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw
import pyarrow as pa

from headrace.cdc.choice import TableChoice
from headrace.cdc.contract import (
    Change,
    Chunk,
    Gap,
    Row,
    Source,
    SourceState,
    SourceTransaction,
    Table,
)
from headrace.cdc.sqlite import triggers
from headrace.cdc.sqlite.schema import (
    MINE,
    SCHEMA,
    check_keys,
    describe,
    quoted,
    table_names,
)
from headrace.cdc.sqlite.triggers import CANDIDATE, CAPTURE, CHANGES
from headrace.cdc.sqlite.values import to_arrow, to_rows
from headrace.clock import SECOND, Clock, SystemClock
from headrace.errors import SourceError, SourceUnavailable, UserError
from headrace.sqlite import Link, connect

_PATIENCE = 5.0
_POLL = SECOND // 200
_PAGE = 20_000
"""Changes read at once. In a database without a WAL, writers wait while it is read."""
_TRIM_ROWS = 5_000
_TRIM_EVERY = SECOND


class SqliteChunk(Chunk):
    """Rows of a table, as of the last change before them."""

    def __init__(self, rows: Sequence[Row], last: Row | None, change: int, high: str) -> None:
        self.rows = rows
        self.last = last
        self.high = high
        self._change = change

    def sees(self, transaction: SourceTransaction) -> bool:
        return _id(transaction.position) <= self._change


class SqliteSource(Source):
    """A SQLite database. `tables` are those to capture, by default all.

    Transactions that were committed between two reads count as one: a trigger cannot tell them
    from each other. Never is a transaction divided, unless what was committed between two reads is
    larger than a commit of the log may be.
    """

    kind = "sqlite"
    replaces = True

    def __init__(
        self,
        path: Path | str,
        *,
        tables: TableChoice | Sequence[str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.path = Path(path)
        self.database = self.path.stem
        named = tables if isinstance(tables, TableChoice) else TableChoice(tuple(tables or ()))
        self._choice = named
        self._clock = clock or SystemClock()
        self._link = Link(f"The database {self.path}", self._connect, patience=_PATIENCE)
        self._versions: dict[int, tuple[Table, bool]] = {}
        self._schema_version = -1
        self._epoch = ""
        self._last = 0
        self._last_at = 0
        self._upto = 0
        self._open = False
        self._first = 0
        self._total = 0
        self._told = False
        self._trimmed = 0
        self._trimmed_at = 0
        if not self.path.is_file():
            raise UserError(
                f"There is no database {self.path}", hint="Check the path; it has to exist"
            )

    def close(self) -> None:
        self._link.close()

    # Attaching

    def attach(self) -> None:
        with self._db() as db:
            wanted = self._choice.of([(SCHEMA, name) for name in table_names(db)])
            known = set()
            if triggers.is_prepared(db):
                known = {table.name for table, _ in triggers.versions(db).values()}
            for _, name in wanted:
                table = describe(db, name).table
                if name not in known:
                    check_keys(db, table)
        self._install()

    def detach(self) -> None:
        with self._writing() as db:
            triggers.remove(db)

    def tables(self) -> list[Table]:
        self._refresh()
        live = [table for table, live in self._versions.values() if live]
        return sorted(live, key=lambda table: table.name)

    def _names(self, db: apsw.Connection) -> list[str]:
        return [name for name in table_names(db) if self._choice.takes(SCHEMA, name)]

    def _is_current(self, db: apsw.Connection) -> bool:
        """True if the triggers are those of the tables as they are now."""
        versions = triggers.versions(db)
        known = {table.name: number for number, (table, live) in versions.items() if live}
        if set(known) != set(self._names(db)):
            return False
        for name, number in known.items():
            described = describe(db, name)
            if described.table != versions[number][0]:
                return False
            found: Any = db.execute(
                "SELECT sql FROM main.sqlite_schema WHERE type = 'trigger' AND name GLOB ?",
                (f"{MINE}{number}_*",),
            )
            if {sql for (sql,) in found} != set(triggers.trigger_statements(described, number)):
                return False
        return True

    def _install(self) -> None:
        """Make the triggers fit the tables."""
        with self._writing() as db:
            triggers.prepare(db, secrets.token_hex(6))
            if self._is_current(db):
                return
            for number, (_, live) in triggers.versions(db).items():
                if live:
                    triggers.uninstall(db, number)
            for name in self._names(db):
                triggers.install(db, describe(db, name))

    def _refresh(self) -> None:
        """Look at the schema again, if it has changed."""
        with self._db() as db:
            version = int(db.pragma("schema_version"))
            if version == self._schema_version:
                return
            prepared = triggers.is_prepared(db)
            current = prepared and self._is_current(db)
        if prepared and not current:
            self._install()
        with self._db() as db:
            self._schema_version = int(db.pragma("schema_version"))
            found = triggers.versions(db) if prepared else {}
        # The same object for as long as a table stays the same.
        self._versions = {
            number: (self._versions[number][0], live)
            if number in self._versions and self._versions[number][0] == table
            else (table, live)
            for number, (table, live) in found.items()
        }

    # Reading

    def begin(self, position: str | None) -> Gap | None:
        self._refresh()
        with self._link.snapshot() as db, self._translated():
            epoch, trimmed, at = self._capture(db)
            here = f"{epoch}:{trimmed}:{at}"
            if position is not None:
                reason = self._missing(db, position, epoch, trimmed, at)
                if reason is not None:
                    return Gap(position, here, reason)
        start = here if position is None else position
        self._epoch, self._trimmed = epoch, trimmed
        self._last, self._last_at = _id(start), int(start.rsplit(":", 1)[1])
        self._open, self._told = False, False
        return None

    def _missing(
        self, db: apsw.Connection, position: str, epoch: str, trimmed: int, trimmed_at: int
    ) -> str | None:
        """Why changes after a position are not all there; None if they are."""
        name, text, at = position.split(":")
        number = int(text)
        if name != epoch:
            return "The database was detached and attached again, or replaced by another"
        if number < trimmed:
            return "Another reader has removed changes"
        found: list[Any] = [(trimmed_at,)]
        if number > trimmed:
            found = list(db.execute(f"SELECT at FROM {CHANGES} WHERE id = ?", (number,)))
        if found != [(int(at),)]:
            return "The database went back, as after a backup was restored"
        return None

    def read(self, seconds: float) -> Sequence[SourceTransaction]:
        end = self._clock.monotonic() + int(seconds * SECOND)
        while True:
            found = self._read()
            if found or self._clock.monotonic() >= end:
                break
            self._clock.sleep(_POLL)
        if not found and not self._told:
            found = [SourceTransaction("", self.position)]
        self._told = True
        return found

    def _read(self) -> list[SourceTransaction]:
        self._refresh()
        with self._link.snapshot() as db, self._translated():
            if not self._open:
                self._upto = self._newest(db)
            if self._last >= self._upto:
                return []
            if self._capture(db)[1] > self._last:
                raise SourceError(
                    f"Changes after {self._last} are gone from {self.path}",
                    hint="Only one capture can read a database; stop the other one",
                )
            found: list[Any] = list(
                db.execute(
                    f"SELECT * FROM {CHANGES} WHERE id > ? AND id <= ? AND op != '{CANDIDATE}' "
                    "ORDER BY id LIMIT ?",
                    (self._last, self._upto, _PAGE + 1),
                )
            )
        page, more = found[:_PAGE], len(found) > _PAGE
        made = []
        for rows, ends in _transactions(page, self._total if self._open else None):
            if not self._open:
                self._first = rows[0][0]
            self._last, self._last_at, self._total = rows[-1][0], rows[-1][3], rows[-1][4]
            self._open = more and not ends
            changes = [change for row in rows for change in self._changes(row)]
            made.append(
                SourceTransaction(
                    str(self._first), self.position, self._last_at, changes, not self._open
                )
            )
        return made

    def _changes(self, row: tuple[Any, ...]) -> Iterator[Change]:
        _, version, op, _, _, *values = row
        table = self._versions[version][0]
        count = 2 * len(table.columns)
        before = None if op == "c" else tuple(values[0:count:2])
        after = None if op == "d" else tuple(values[1:count:2])
        if before is not None and after is not None:
            old, new = table.key_of(before), table.key_of(after)
            if old != new:
                yield Change(table, "d", old, before, None)
                yield Change(table, "c", new, None, after)
                return
        row_of: Row = after if after is not None else before or ()
        yield Change(table, op, table.key_of(row_of), before, after)

    def acknowledge(self, position: str) -> None:
        number = _id(position)
        now = self._clock.monotonic()
        pending = number - self._trimmed
        if not pending or (pending < _TRIM_ROWS and now - self._trimmed_at < _TRIM_EVERY):
            return
        self._trimmed_at = now
        with contextlib.suppress(SourceUnavailable):  # a writer is busy: the next time will do
            while self._trimmed < number:
                upto = min(number, self._trimmed + _TRIM_ROWS)
                at = int(position.rsplit(":", 1)[1])
                with self._writing() as db:
                    if upto < number:
                        ((at,),) = list(
                            db.execute(
                                f"SELECT at FROM {CHANGES} WHERE id <= ? ORDER BY id DESC LIMIT 1",
                                (upto,),
                            )
                        )
                    db.execute(f"DELETE FROM {CHANGES} WHERE id <= ?", (upto,))
                    db.execute(f"UPDATE {CAPTURE} SET trimmed = ?, at = ?", (upto, at))
                self._trimmed = upto

    def passed(self, position: str, mark: str) -> bool:
        return _id(position) >= _id(mark)

    def chunk(self, table: Table, after: Row | None, limit: int) -> Chunk:
        key = ", ".join(quoted(name) for name in table.key)
        names = ", ".join(quoted(name) for name in table.columns.names)
        where = "" if after is None else f"WHERE ({key}) > ({', '.join('?' * len(after))})"
        sql = f"SELECT {names} FROM main.{quoted(table.name)} {where} ORDER BY {key} LIMIT ?"
        with self._link.snapshot() as db, self._translated():
            rows: list[Any] = list(db.execute(sql, (*(after or ()), limit)))
            newest = self._newest(db)
        last = table.key_of(rows[-1]) if len(rows) == limit else None
        return SqliteChunk(rows, last, newest, f"{self._epoch}:{newest}:0")

    def find(self, table: Table, keys: Sequence[Row]) -> Chunk:
        key = ", ".join(quoted(name) for name in table.key)
        names = ", ".join(quoted(name) for name in table.columns.names)
        marks = ", ".join("?" * len(table.key))
        sql = f"SELECT {names} FROM main.{quoted(table.name)} WHERE ({key}) = ({marks})"
        with self._link.snapshot() as db, self._translated():
            rows: list[Any] = [row for values in keys for row in db.execute(sql, values)]
            newest = self._newest(db)
        return SqliteChunk(rows, None, newest, f"{self._epoch}:{newest}:0")

    def columns(self, columns: pa.Schema, rows: Sequence[Row | None]) -> pa.StructArray:
        return to_arrow(columns, rows)

    def rows(self, columns: pa.Schema, values: pa.StructArray) -> list[Row | None]:
        return to_rows(columns, values)

    def state(self, position: str | None) -> SourceState:
        with self._link.snapshot() as db, self._translated():
            epoch, trimmed, at = self._capture(db)
            newest = self._newest(db)
            ((held,),) = list(db.execute(f"SELECT count(*) FROM {CHANGES}"))
        start = trimmed if position is None else _id(position)
        return SourceState(
            f"{epoch}:{newest}:{at}",
            max(0, newest - start),
            "changes",
            {"changes in the database": f"{held:,}"},
        )

    # Inside

    @property
    def position(self) -> str:
        return f"{self._epoch}:{self._last}:{self._last_at}"

    def _capture(self, db: apsw.Connection) -> tuple[str, int, int]:
        ((epoch, trimmed, at),) = list(db.execute(f"SELECT epoch, trimmed, at FROM {CAPTURE}"))
        return str(epoch), int(trimmed), int(at)

    def _newest(self, db: apsw.Connection) -> int:
        """The number of the last change, even if it was removed."""
        last = f"SELECT id FROM {CHANGES} WHERE op != '{CANDIDATE}' ORDER BY id DESC LIMIT 1"
        ((found,),) = list(db.execute(f"SELECT coalesce(({last}), trimmed) FROM {CAPTURE}"))
        return int(found)

    def _connect(self) -> apsw.Connection:
        return connect(str(self.path), _PATIENCE, flags=apsw.SQLITE_OPEN_READWRITE)

    @contextlib.contextmanager
    def _db(self) -> Iterator[apsw.Connection]:
        with self._translated(), self._link as db:
            yield db

    @contextlib.contextmanager
    def _writing(self) -> Iterator[apsw.Connection]:
        with self._translated(), self._link.transaction() as db:
            yield db

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (apsw.BusyError, apsw.LockedError) as error:
            raise SourceUnavailable(
                f"Another process has held the lock on {self.path} for {_PATIENCE:g} s",
                hint="Close its transaction",
            ) from error
        except apsw.Error as error:
            raise SourceError(
                f"{self.path}: {error}", hint="Check that it is a SQLite database, and its rights"
            ) from error


def _id(position: str) -> int:
    return int(position.split(":")[1])


def _transactions(
    page: Sequence[tuple[Any, ...]], total: int | None
) -> Iterator[tuple[list[tuple[Any, ...]], bool]]:
    """The changes by transaction, as far as that is known, and whether each has ended.

    The count of all changes of a connection never goes back. Where it does, another connection
    wrote, so the transaction before it has ended.
    """
    rows: list[tuple[Any, ...]] = []
    for row in page:
        if rows and row[4] < rows[-1][4]:
            yield rows, True
            rows = []
        rows.append(row)
    if rows:
        yield rows, False
