"""One version of a view in PostgreSQL: rows by COPY, merged with their position."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.errors import StoreFenced
from headrace.store.contract import Changes, StoredView, StorePosition, StoreTable
from headrace.store.postgres.connection import Connection, translated
from headrace.store.postgres.values import sql_type, to_batch, to_copy

LIVE, BESIDE = "live", "beside"
_STAGED, _KEYS = "_headrace_staged", "_headrace_keys"
_ROWS_AT_ONCE = 10_000


@dataclass(frozen=True)
class Place:
    """The names of a view in a database."""

    schema: str
    view: StoredView

    @property
    def positions(self) -> str:
        """The table with the positions of all views in the schema."""
        return f"{quoted(self.schema)}._headrace_position"

    @property
    def live(self) -> str:
        """The table that readers see."""
        return self.table(self.view.name)

    def table(self, name: str) -> str:
        return f"{quoted(self.schema)}.{quoted(name)}"

    @property
    def key(self) -> str:
        return ", ".join(map(quoted, self.view.key))


class PostgresTable(StoreTable):
    """A version of a view: the live one, or the one that is built beside under some name."""

    def __init__(
        self, url: str, place: Place, open_connection: Callable[[], Connection], name: str | None
    ) -> None:
        self._url = url
        self._place = place
        self._name = name
        self._table = place.live if name is None else place.table(name)
        self._staged = False
        self._connection = open_connection()

    def position(self) -> StorePosition | None:
        with translated(self._url), self._connection, self._connection.cursor() as cursor:
            return self._position(cursor)

    def fill(self, parts: Iterable[Changes], position: StorePosition) -> None:
        for part in parts:
            with translated(self._url), self._connection, self._connection.cursor() as cursor:
                self._check(self._lock(cursor), None)
                _copy(cursor, self._table, part.rows)
        with translated(self._url), self._connection, self._connection.cursor() as cursor:
            self._check(self._lock(cursor), None)
            cursor.execute(
                f"CREATE UNIQUE INDEX ON {self._table} ({self._place.key}) NULLS NOT DISTINCT"
            )
            cursor.execute(f"ANALYZE {self._table}")
            self._record(cursor, position)

    def apply(self, changes: Changes) -> None:
        with translated(self._url), self._connection, self._connection.cursor() as cursor:
            self._stage(cursor)
            # Until this transaction ends, no other process gets past this lock.
            reached = self._lock(cursor)
            self._check(reached, changes.position)
            if reached is not None and changes.position.offset <= reached.offset:
                return
            if changes.deleted.num_rows:
                _copy(cursor, _KEYS, changes.deleted)
                for same in _same_keys(changes.deleted):
                    cursor.execute(f"DELETE FROM {self._table} t USING {_KEYS} d WHERE {same}")
            if changes.rows.num_rows:
                _copy(cursor, _STAGED, changes.rows)
                self._upsert(cursor)
            self._record(cursor, changes.position)

    def read(self) -> Iterator[pa.RecordBatch]:
        with translated(self._url), self._connection:
            yield from self._select()

    def find(self, keys: pa.Table) -> Iterator[pa.RecordBatch]:
        wanted = keys.select(list(self._place.view.key))
        with translated(self._url), self._connection:
            with self._connection.cursor() as cursor:
                self._stage(cursor)
                _copy(cursor, _KEYS, wanted)
            for same in _same_keys(wanted):
                yield from self._select(f"JOIN {_KEYS} d ON {same}")

    def close(self) -> None:
        self._connection.close()

    # Inside of a transaction

    def _position(self, cursor: Any, lock: str = "") -> StorePosition | None:
        cursor.execute(
            f'SELECT generation, "offset", name FROM {self._place.positions} '
            f"WHERE view = %s AND state = %s {lock}",
            (self._place.view.name, LIVE if self._name is None else BESIDE),
        )
        found = cursor.fetchone()
        if found is None:
            if self._name is not None:
                raise self._fenced()
            return None
        generation, offset, name = found
        if self._name is not None and name != self._name:
            raise self._fenced()
        cursor.execute("SELECT to_regclass(%s) IS NOT NULL", (self._table,))
        if generation is None or not cursor.fetchone()[0]:
            return None  # it is not filled, or somebody has dropped it
        return StorePosition(generation, offset)

    def _lock(self, cursor: Any) -> StorePosition | None:
        return self._position(cursor, "FOR UPDATE")

    def _check(self, reached: StorePosition | None, new: StorePosition | None) -> None:
        """Raise if a version has another generation than what is to be written."""
        if (reached and reached.generation) != (new and new.generation):
            raise self._fenced()

    def _fenced(self) -> StoreFenced:
        return StoreFenced(
            f"View {self._place.view.name!r} in PostgreSQL has results of another generation: "
            "another process has built it again, or builds it now",
            hint="Let only one process follow a store",
        )

    def _record(self, cursor: Any, position: StorePosition) -> None:
        cursor.execute(
            f'UPDATE {self._place.positions} SET generation = %s, "offset" = %s '
            "WHERE view = %s AND state = %s",
            (
                position.generation, position.offset, self._place.view.name,
                LIVE if self._name is None else BESIDE,
            ),
        )  # fmt: skip

    def _stage(self, cursor: Any) -> None:
        """Create the temporary tables of this connection, which empty themselves."""
        if self._staged:
            return
        view = self._place.view
        key = pa.schema([view.columns.field(name) for name in view.key])
        for name, columns in ((_STAGED, view.columns), (_KEYS, key)):
            listed = columns_of(columns)
            cursor.execute(f"CREATE TEMPORARY TABLE {name} ({listed}) ON COMMIT DELETE ROWS")
        self._connection.commit()
        self._staged = True

    def _upsert(self, cursor: Any) -> None:
        names = [quoted(name) for name in self._place.view.columns.names]
        others = [name for name in names if name not in map(quoted, self._place.view.key)]
        new = ", ".join(f"{name} = excluded.{name}" for name in others)
        then = f"DO UPDATE SET {new}" if others else "DO NOTHING"
        listed = ", ".join(names)
        cursor.execute(
            f"INSERT INTO {self._table} ({listed}) SELECT {listed} FROM {_STAGED} "
            f"ON CONFLICT ({self._place.key}) {then}"
        )

    def _select(self, joined: str = "") -> Iterator[pa.RecordBatch]:
        columns = self._place.view.columns
        listed = ", ".join(f"t.{quoted(name)}" for name in columns.names)
        with self._connection.cursor() as cursor:
            cursor.execute("SELECT to_regclass(%s) IS NOT NULL", (self._table,))
            if not cursor.fetchone()[0]:
                return
        with self._connection.cursor("rows") as cursor:
            cursor.itersize = _ROWS_AT_ONCE
            cursor.execute(f"SELECT {listed} FROM {self._table} t {joined}")
            while rows := list(itertools.islice(cursor, _ROWS_AT_ONCE)):
                yield to_batch(rows, columns)


def _copy(cursor: Any, table: str, rows: pa.Table) -> None:
    listed = ", ".join(map(quoted, rows.column_names))
    cursor.copy_expert(f"COPY {table} ({listed}) FROM STDIN (FORMAT csv)", to_copy(rows))


def _same_keys(keys: pa.Table) -> Iterator[str]:
    """Conditions under which a row has a staged key: together they match each key once.

    PostgreSQL uses an index for `=` and `IS NULL`, and for nothing that does both.
    """
    nulls = zip(*(column.is_null().to_pylist() for column in keys.columns), strict=True)
    for pattern in sorted(set(nulls)):
        yield " AND ".join(
            f"(d.{quoted(n)} IS NULL AND t.{quoted(n)} IS NULL)"
            if null
            else f"t.{quoted(n)} = d.{quoted(n)}"
            for n, null in zip(keys.column_names, pattern, strict=True)
        )


def columns_of(columns: pa.Schema) -> str:
    """The columns of a table, in SQL."""
    return ", ".join(f"{quoted(field.name)} {sql_type(field.type)}" for field in columns)


def quoted(name: str) -> str:
    """Quote a name for SQL, also where psycopg2 looks for values."""
    return '"' + name.replace('"', '""') + '"'
