"""The file of a search index: versions of a view's rows, each with its FTS5 index and position.

Columns are stored as c0, c1, ..., since names in SQLite ignore case. The index has no text of its
own: it refers to the rows, and triggers keep it up to date in the same transaction.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import apsw
import pyarrow as pa

from headrace.closing import Closing
from headrace.errors import StoreError, StoreFenced
from headrace.sqlite import Failures, Link, connect
from headrace.store.changelog import key_texts
from headrace.store.contract import Changes, StoredView, StorePosition, StoreTable
from headrace.store.sqlite.values import sql_type, tables_from, to_sqlite

APPLICATION = 0x48525346
"""'HRSF': SQLite's application_id of a search index."""
FORMAT = 1
PATIENCE = 30.0
"""Seconds to wait for another process."""

_SCHEMA = f"""
CREATE TABLE version (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    live INTEGER NOT NULL DEFAULT 0,
    generation TEXT,
    offset INTEGER,
    columns TEXT NOT NULL,
    searched TEXT NOT NULL,
    made_as TEXT NOT NULL
);
PRAGMA application_id={APPLICATION};
PRAGMA user_version={FORMAT};
"""


class Index(Closing):
    """The file of one view's index, open for writing. It is made when it is first needed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._failures = Failures(
            path,
            f"the search index {path}",
            PATIENCE,
            busy="Close the SQLite client that has a transaction open on it",
            full="Free some space. Nothing of these changes is visible",
            damaged="Remove the file: the index is built again from the view",
            corrupt=StoreError,
            other=StoreError,
        )
        self._link = Link(f"The search index {path}", self._connect, patience=PATIENCE)
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._failures.translated():
            self._link.patiently(lambda db: db.execute("PRAGMA journal_mode=WAL"))
        with self.writing() as db:
            if not db.execute("SELECT count(*) FROM sqlite_schema").get:
                db.execute(_SCHEMA)
            if db.execute("PRAGMA application_id").get != APPLICATION:
                raise StoreError(f"{path} is no search index", hint="Move it away")
            if int(db.execute("PRAGMA user_version").get) > FORMAT:
                raise StoreError(f"A newer headrace made {path}", hint="Upgrade headrace")

    def _connect(self) -> apsw.Connection:
        db = connect(str(self.path), PATIENCE)
        # After a power cut, rows and position are older together, and are followed from there.
        db.execute("PRAGMA synchronous=NORMAL")
        return db

    @contextlib.contextmanager
    def writing(self) -> Iterator[apsw.Connection]:
        """A transaction."""
        with self._failures.translated(), self._link.transaction() as db:
            yield db

    @contextlib.contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """A snapshot."""
        with self._failures.translated(), self._link.snapshot() as db:
            yield db

    def close(self) -> None:
        self._link.close()

    def begin(
        self,
        view: StoredView,
        searched: Sequence[str],
        tokenizer: str,
        prefixes: Sequence[int],
    ) -> int:
        """Begin a new version, and remove unfinished ones; return its number."""
        made_as = f"tokenize='{tokenizer}'"
        if prefixes:
            made_as += f", prefix='{' '.join(map(str, prefixes))}'"
        with self.writing() as db:
            for (number,) in list(db.execute("SELECT number FROM version WHERE NOT live")):
                _drop(db, int(str(number)))
            columns = json.dumps([[f.name, str(f.type)] for f in view.columns])
            db.execute(
                "INSERT INTO version (columns, searched, made_as) VALUES (?, ?, ?)",
                (columns, json.dumps(list(searched)), made_as),
            )
            number = db.last_insert_rowid()
            kinds = "".join(f", c{n} {sql_type(f.type)}" for n, f in enumerate(view.columns))
            db.execute(
                f"CREATE TABLE rows_{number} "
                f"(id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, version INTEGER{kinds})"
            )
        return number

    def switch(self) -> None:
        """Make the newest finished version the live one, and remove the others."""
        with self.writing() as db:
            newest = db.execute("SELECT max(number) FROM version WHERE generation IS NOT NULL").get
            if newest is None:
                return
            for (number,) in list(
                db.execute("SELECT number FROM version WHERE number < ?", (newest,))
            ):
                _drop(db, int(str(number)))
            db.execute("UPDATE version SET live = 1 WHERE number = ?", (newest,))


class SearchTable(StoreTable):
    """One version of a view in an index: the one with this number, or the live one."""

    def __init__(self, index: Index, view: StoredView, number: int | None = None) -> None:
        self._index = index
        self._view = view
        self._number = number

    def position(self) -> StorePosition | None:
        with self._index.reading() as db:
            number = self._version(db)
            return None if number is None else _position(db, number)

    def fill(self, parts: Iterable[Changes], position: StorePosition) -> None:
        for part in parts:
            with self._index.writing() as db:
                self._put(db, self._there(db), part)
        with self._index.writing() as db:
            number = self._there(db)
            self._make_index(db, number)
            _record(db, number, position)

    def apply(self, changes: Changes) -> None:
        with self._index.writing() as db:
            number = self._there(db)
            reached = _position(db, number)
            if reached is None or reached.generation != changes.position.generation:
                raise StoreFenced(
                    f"The search index of view {self._view.name!r} has results of another "
                    "generation: another process has built it again",
                    hint="Let only one process follow a store",
                )
            if changes.position.offset <= reached.offset:
                return
            self._put(db, number, changes)
            gone = changes.keys.slice(changes.rows.num_rows).to_pylist()
            db.executemany(f"DELETE FROM rows_{number} WHERE key = ?", ((key,) for key in gone))
            _record(db, number, changes.position)

    def read(self) -> Iterator[pa.RecordBatch]:
        columns = self._view.columns
        listed = ", ".join(f"c{place}" for place in range(len(columns)))
        with self._index.reading() as db:
            if (number := self._version(db)) is None:
                return
            for table in tables_from(db.execute(f"SELECT {listed} FROM rows_{number}"), columns):
                yield from table.to_batches()

    def find(self, keys: pa.Table) -> Iterator[pa.RecordBatch]:
        columns = self._view.columns
        listed = ", ".join(f"c{place}" for place in range(len(columns)))
        texts = key_texts(keys.select(list(self._view.key))).to_pylist() if keys.num_rows else []
        with self._index.reading() as db:
            if (number := self._version(db)) is None:
                return
            rows = f"SELECT {listed} FROM rows_{number} WHERE key = ?"
            found = db.executemany(rows, ((text,) for text in texts))
            for table in tables_from(found, columns):
                yield from table.to_batches()

    def close(self) -> None:
        self._index.close()

    # Inside of a transaction

    def _version(self, db: apsw.Connection) -> int | None:
        """The number of this version; None if there is no live one."""
        if self._number is not None:
            there = db.execute("SELECT 1 FROM version WHERE number = ?", (self._number,)).get
            if there is None:
                raise StoreFenced(
                    f"Another process has begun to build the search index of view "
                    f"{self._view.name!r}",
                    hint="Let only one process follow a store",
                )
            return self._number
        found = db.execute("SELECT number FROM version WHERE live").get
        return None if found is None else int(found)

    def _there(self, db: apsw.Connection) -> int:
        number = self._version(db)
        if number is None:
            raise StoreFenced(
                f"The search index of view {self._view.name!r} is gone",
                hint="It is built again",
            )
        return number

    def _put(self, db: apsw.Connection, number: int, changes: Changes) -> None:
        """Insert rows, or replace those of the same key."""
        names = [f"c{place}" for place in range(changes.rows.num_columns)]
        count = changes.rows.num_rows
        values = [to_sqlite(column) for column in changes.rows.columns]
        keys, versions = (a.slice(0, count).to_pylist() for a in (changes.keys, changes.versions))
        marks = ", ".join("?" * (len(names) + 2))
        new = ", ".join(f"{name} = excluded.{name}" for name in ("version", *names))
        db.executemany(
            f"INSERT INTO rows_{number} (key, version, {', '.join(names)}) VALUES ({marks}) "
            f"ON CONFLICT (key) DO UPDATE SET {new}",
            zip(keys, versions, *values, strict=True),
        )

    def _make_index(self, db: apsw.Connection, number: int) -> None:
        """Index the rows of a version at once, and from now on with each change."""
        sql = "SELECT searched, made_as FROM version WHERE number = ?"
        ((searched, made_as),) = db.execute(sql, (number,))
        places = [self._view.columns.names.index(name) for name in json.loads(str(searched))]
        names = [f"c{place}" for place in places]
        rows, text, listed = f"rows_{number}", f"text_{number}", ", ".join(names)
        db.execute(
            f"CREATE VIRTUAL TABLE {text} USING fts5({listed}, content='{rows}', "
            f"content_rowid='id', {made_as})"
        )
        db.execute(f"INSERT INTO {text} ({text}) VALUES ('rebuild')")
        add = f"INSERT INTO {text} (rowid, {listed}) VALUES (new.id, {_of('new', names)});"
        take = (
            f"INSERT INTO {text} ({text}, rowid, {listed}) "
            f"VALUES ('delete', old.id, {_of('old', names)});"
        )
        changed = " OR ".join(f"old.{name} IS NOT new.{name}" for name in names)
        db.execute(
            f"CREATE TRIGGER added_{number} AFTER INSERT ON {rows} BEGIN {add} END;"
            f"CREATE TRIGGER gone_{number} AFTER DELETE ON {rows} BEGIN {take} END;"
            f"CREATE TRIGGER changed_{number} AFTER UPDATE ON {rows} WHEN {changed} "
            f"BEGIN {take} {add} END;"
        )


def _of(side: str, names: Sequence[str]) -> str:
    return ", ".join(f"{side}.{name}" for name in names)


def _position(db: apsw.Connection, number: int) -> StorePosition | None:
    ((generation, offset),) = db.execute(
        "SELECT generation, offset FROM version WHERE number = ?", (number,)
    )
    return None if generation is None else StorePosition(str(generation), int(str(offset)))


def _record(db: apsw.Connection, number: int, position: StorePosition) -> None:
    db.execute(
        "UPDATE version SET generation = ?, offset = ? WHERE number = ?",
        (position.generation, position.offset, number),
    )


def _drop(db: apsw.Connection, number: int) -> None:
    """Remove a version."""
    db.execute(f"DROP TABLE IF EXISTS text_{number}")
    db.execute(f"DROP TABLE IF EXISTS rows_{number}")
    db.execute("DELETE FROM version WHERE number = ?", (number,))
