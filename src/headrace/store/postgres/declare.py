"""A view in PostgreSQL as a value: its settings, and what happens to whole versions of it.

SCHEMA.VIEW                  the table that readers see
SCHEMA._headrace_RANDOM      the version that is built beside
SCHEMA._headrace_position    the positions of all views in the schema
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from headrace.errors import InvalidPipeline, StoreError
from headrace.store.contract import Store, StoredView
from headrace.store.postgres.connection import Connection, check_url, connect, shown, translated
from headrace.store.postgres.table import BESIDE, LIVE, Place, PostgresTable, columns_of, quoted

_LONGEST = 63
"""Bytes of a name. PostgreSQL cuts off the rest, so two names could become one."""
_OURS = "_headrace_"


@dataclass(frozen=True)
class Postgres(Store):
    """A view as a table in PostgreSQL, at postgresql://USER:PASSWORD@HOST:PORT/DATABASE.

    It is a table of the view's name in a schema of the application's name, or in `schema`, with the
    view's key as a unique index. Rights, indexes and views that others add to it stay.
    """

    url: str = field(repr=False)
    schema: str | None = None

    def __post_init__(self) -> None:
        check_url(self.url)

    @classmethod
    def from_address(cls, address: str) -> Postgres:
        return cls(address)

    @property
    def address(self) -> str:
        return shown(self.url)

    @property
    def form(self) -> str:
        return self.schema or ""

    def check(self, view: StoredView) -> None:
        for name in (self.schema or view.app, view.name, *view.columns.names):
            if len(name.encode()) > _LONGEST:
                raise InvalidPipeline(
                    f"{name!r} is longer than a name in PostgreSQL may be, {_LONGEST} bytes",
                    hint="Shorten it",
                )
        if view.name.startswith(_OURS):
            raise InvalidPipeline(
                f"View {view.name!r} cannot be kept in PostgreSQL",
                hint=f"Names that start with {_OURS} are reserved there",
            )

    def live(self, view: StoredView) -> PostgresTable:
        place = self._place(view)
        with self._opened() as connection:
            self._prepare(connection, place)
        return self._table(place, None)

    def beside(self, view: StoredView) -> PostgresTable:
        place, name = self._place(view), f"{_OURS}{secrets.token_hex(6)}"
        with self._opened() as connection:
            self._prepare(connection, place)
            with connection, connection.cursor() as cursor:
                states = _lock(cursor, place)
                if LIVE not in states and _exists(cursor, place.live):
                    raise StoreError(
                        f"There is a table {place.live} at {self.address}, which headrace has not "
                        "made",
                        hint="Rename it, or choose another schema: hr.Postgres(url, schema=...)",
                    )
                if BESIDE in states:
                    cursor.execute(f"DROP TABLE IF EXISTS {place.table(states[BESIDE])}")
                _forget(cursor, place, BESIDE)
                cursor.execute(f"CREATE TABLE {place.table(name)} ({columns_of(view.columns)})")
                cursor.execute(
                    f"INSERT INTO {place.positions} (view, state, name) VALUES (%s, %s, %s)",
                    (view.name, BESIDE, name),
                )
        return self._table(place, name)

    def switch(self, view: StoredView) -> None:
        place = self._place(view)
        with self._opened() as connection, connection, connection.cursor() as cursor:
            if not _exists(cursor, place.positions):
                return
            states = _lock(cursor, place, "AND generation IS NOT NULL")
            if BESIDE not in states:
                return
            built = place.table(states[BESIDE])
            if _same_columns(cursor, built, place.live):
                # Readers are never blocked, and what others have added to the table stays.
                names = ", ".join(map(quoted, view.columns.names))
                cursor.execute(f"DELETE FROM {place.live}")
                cursor.execute(f"INSERT INTO {place.live} ({names}) SELECT {names} FROM {built}")
                cursor.execute(f"DROP TABLE {built}")
            else:
                cursor.execute(f"DROP TABLE IF EXISTS {place.live}")
                cursor.execute(f"ALTER TABLE {built} RENAME TO {quoted(view.name)}")
            _forget(cursor, place, LIVE)
            cursor.execute(
                f"UPDATE {place.positions} SET state = %s, name = %s WHERE view = %s",
                (LIVE, view.name, view.name),
            )

    def remove(self, view: StoredView) -> None:
        place = self._place(view)
        with self._opened() as connection, connection, connection.cursor() as cursor:
            if not _exists(cursor, place.positions):
                return
            for name in _lock(cursor, place).values():
                cursor.execute(f"DROP TABLE IF EXISTS {place.table(name)}")
            _forget(cursor, place, LIVE, BESIDE)

    def _place(self, view: StoredView) -> Place:
        return Place(self.schema or view.app, view)

    def _table(self, place: Place, name: str | None) -> PostgresTable:
        def opened() -> Connection:
            with translated(self.url):
                return connect(self.url)

        return PostgresTable(self.url, place, opened, name)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[Connection]:
        with translated(self.url), contextlib.closing(connect(self.url)) as connection:
            yield connection

    def _prepare(self, connection: Connection, place: Place) -> None:
        """Create the schema and the table of positions, unless they are there."""
        with connection, connection.cursor() as cursor:
            if _exists(cursor, place.positions):
                return
            # Two processes that begin at once must not both create it.
            cursor.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (place.positions,))
            cursor.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (place.schema,))
            if cursor.fetchone() is None:
                cursor.execute(f"CREATE SCHEMA {quoted(place.schema)}")
            cursor.execute(
                f"CREATE TABLE IF NOT EXISTS {place.positions} (view text, state text, "
                'name text NOT NULL, generation text, "offset" bigint, PRIMARY KEY (view, state))'
            )


def _exists(cursor: Any, table: str) -> bool:
    cursor.execute("SELECT to_regclass(%s) IS NOT NULL", (table,))
    return bool(cursor.fetchone()[0])


def _lock(cursor: Any, place: Place, where: str = "") -> dict[str, str]:
    """The versions that a view has, and the names of their tables, until the transaction ends."""
    cursor.execute(
        f"SELECT state, name FROM {place.positions} WHERE view = %s {where} "
        "ORDER BY state FOR UPDATE",
        (place.view.name,),
    )
    return dict(cursor.fetchall())


def _forget(cursor: Any, place: Place, *states: str) -> None:
    for state in states:
        cursor.execute(
            f"DELETE FROM {place.positions} WHERE view = %s AND state = %s",
            (place.view.name, state),
        )


def _same_columns(cursor: Any, one: str, other: str) -> bool:
    """True if two tables have the same columns and the same unique index."""
    described = [_described(cursor, table) for table in (one, other)]
    return described[0] == described[1]


def _described(cursor: Any, table: str) -> list[tuple[Any, ...]]:
    cursor.execute(
        "SELECT attname, atttypid, atttypmod, k.place FROM pg_attribute a "
        "LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indnullsnotdistinct "
        "LEFT JOIN LATERAL unnest(i.indkey::int[]) WITH ORDINALITY k(number, place) "
        "ON k.number = a.attnum "
        "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        (table,),
    )
    return list(cursor.fetchall())
