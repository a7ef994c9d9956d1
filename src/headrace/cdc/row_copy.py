"""The capture's copy of each row, in SQLite, by the key that it has in its topic.

It gives `before`, values that the source did not send, the rows of a truncated table, and the rows
that a snapshot did not find. A commit of the copy follows each commit of the log. After a crash it
is behind by the last one, and reads that from the topics.

Chunks of a snapshot may be kept in pages, beside the table of rows. A row of the table hides the
one of its key in a page; without a value it says that the row was deleted.
"""

from __future__ import annotations

import contextlib
import json
import marshal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw
import pyarrow as pa

from headrace.cdc.contract import Row
from headrace.cdc.row_pages import SCHEMA as PAGES
from headrace.cdc.row_pages import NewPage, Page, Pages, load_pages, page_files, page_path
from headrace.closing import Closing
from headrace.errors import ProducerFenced, SourceError
from headrace.schema.ddl import format_type
from headrace.sqlite import Failures, Link, connect

FORMAT = 2
"""The version of this database. Another one is made again from the topics."""

_PATIENCE = 10.0
_MARSHAL = 2  # the newest without references, which cost more than they save
_PAGE = 10_000

_SCHEMA = """
    CREATE TABLE copied (
        number INTEGER PRIMARY KEY,
        topic TEXT UNIQUE NOT NULL,
        id TEXT NOT NULL,
        layout INTEGER NOT NULL DEFAULT 0
    );
    CREATE TABLE layout (table_number, layout, columns, PRIMARY KEY (table_number, layout));
    CREATE TABLE reached (topic, partition, next, PRIMARY KEY (topic, partition)) WITHOUT ROWID;
    CREATE TABLE snapshot (topic PRIMARY KEY, state) WITHOUT ROWID;
    CREATE TABLE mark (only INTEGER PRIMARY KEY CHECK (only = 1), mark TEXT NOT NULL);
"""


@dataclass
class TableChanges:
    """Changes of the copy of one table: rows by key, where None deletes.

    `same` are keys of rows that a snapshot has found unchanged. `seen` is the number of the
    snapshot that counts all of them as found.
    """

    seen: int
    rows: dict[str, Row | None] = field(default_factory=dict)
    same: list[str] = field(default_factory=list)
    page: NewPage | None = None


@dataclass
class _Table:
    """The copy of one table: its number in the database, and how its rows are laid out."""

    number: int
    topic_id: int
    layout: int
    columns: list[list[str]]
    pages: Pages

    @property
    def rows(self) -> str:
        return f"rows_{self.number}"


class RowCopy(Closing):
    """The copy of the rows of a capture. One thread uses it.

    Changes are visible here at once, and stored by `commit`. `rows` makes the source's own rows of
    Arrow, as `Source.rows` does.
    """

    def __init__(
        self, path: Path, rows: Callable[[pa.Schema, pa.StructArray], list[Row | None]]
    ) -> None:
        self.path = path
        self._rows = rows
        path.parent.mkdir(parents=True, exist_ok=True)
        self._failures = Failures(
            path,
            "the capture's copy of rows",
            _PATIENCE,
            busy="Stop the other process that uses it",
            full="Free some space, then run the capture again",
            damaged="Remove the file: it is made again from the topics",
            corrupt=SourceError,
            other=SourceError,
        )
        self._link = Link("The copy of rows", self._connect, patience=_PATIENCE)
        self._tables: dict[str, _Table] = {}
        self._layouts: dict[tuple[int, int], list[list[str]]] = {}
        with self._db() as db:
            known = db.pragma("user_version") == FORMAT
            if known:
                self._load(db)
        if not known or self._page_files() - page_files(path):
            self.clear()

    def close(self) -> None:
        self._link.close()

    def clear(self) -> None:
        """Forget everything."""
        with self._writing() as db:
            found = db.execute(
                "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
            )
            for (name,) in list(found):
                db.execute(f"DROP TABLE {name}")
            db.execute(_SCHEMA + PAGES)
            db.pragma("user_version", FORMAT)
        self.tidy()

    def tidy(self) -> None:
        """Load what is stored, and remove the files of pages that are not.

        To be called when no older capture can write any more.
        """
        with self._writing() as db:
            self._load(db)
            for file in page_files(self.path) - self._page_files():
                file.unlink()

    # Commits

    @property
    def mark(self) -> str | None:
        """The mark of the last commit of the log that is in the copy; None if it is empty."""
        with self._db() as db:
            found = db.execute("SELECT mark FROM mark").fetchall()
        return str(found[0][0]) if found else None

    def reached(self) -> dict[str, dict[int, int]]:
        """The next offset of each partition of each topic."""
        found: dict[str, dict[int, int]] = {}
        with self._db() as db:
            for topic, partition, next in db.execute("SELECT * FROM reached"):
                found.setdefault(str(topic), {})[int(partition)] = int(next)
        return found

    def commit(
        self,
        mark: str,
        reached: Iterable[tuple[str, int, int]],
        changes: Mapping[str, TableChanges],
        *,
        after: str | None,
        snapshots: Mapping[str, str] | None = None,
    ) -> None:
        """Store the changes of a commit of the log, by topic, and where its topics end.

        `after` is the mark before it: the copy must not follow two captures. `snapshots` are the
        states of snapshots that the rows it has seen are of.
        """
        with self._writing() as db:
            if self.mark != after:
                raise ProducerFenced(
                    f"Another capture has written to {self.path}",
                    hint="Only one process can capture under a prefix; stop this one",
                )
            for topic, change in changes.items():
                self._put(db, self._tables[topic], change)
            db.executemany("REPLACE INTO reached VALUES (?, ?, ?)", reached)
            db.executemany("REPLACE INTO snapshot VALUES (?, ?)", (snapshots or {}).items())
            db.execute("REPLACE INTO mark VALUES (1, ?)", (mark,))

    def snapshot(self, topic: str) -> str | None:
        """The state of a topic's snapshot as of the last commit that is in the copy."""
        with self._db() as db:
            found = db.execute("SELECT state FROM snapshot WHERE topic = ?", (topic,)).get
        return None if found is None else str(found)

    def sync(self) -> None:
        """Let what is stored survive a power cut."""
        with self._db() as db:
            db.pragma("wal_checkpoint(FULL)")

    # Tables

    def add(self, topic: str, topic_id: int, columns: pa.Schema) -> None:
        """Keep the rows of a topic from now on, in these columns.

        Rows with other columns are read as if they had these: a value is kept where its column has
        the same name and type. A topic that was made anew starts empty.
        """
        layout = [[column.name, format_type(column.type)] for column in columns]
        known = self._tables.get(topic)
        if known is not None and known.topic_id == topic_id and known.columns == layout:
            return
        with self._writing() as db:
            if known is not None and known.topic_id != topic_id:
                self._drop(db, topic, known)
                known = None
            if known is None:
                # As text: that of a topic on Kafka has 128 bits.
                insert = "INSERT INTO copied (topic, id) VALUES (?, ?)"
                db.execute(insert, (topic, str(topic_id)))
                place = db.last_insert_rowid()
                db.execute(f"CREATE TABLE rows_{place} (key TEXT PRIMARY KEY, seen, layout, row)")
            else:
                place = known.number
            number = 1 + max((n for t, n in self._layouts if t == place), default=0)
            db.execute("UPDATE copied SET layout = ? WHERE number = ?", (number, place))
            db.execute("INSERT INTO layout VALUES (?, ?, ?)", (place, number, json.dumps(layout)))
            self._load(db)

    def _drop(self, db: apsw.Connection, topic: str, table: _Table) -> None:
        for page in list(table.pages):
            table.pages.drop(db, page)
        db.execute(f"DROP TABLE {table.rows}")
        db.execute("DELETE FROM copied WHERE number = ?", (table.number,))
        db.execute("DELETE FROM layout WHERE table_number = ?", (table.number,))
        db.execute("DELETE FROM reached WHERE topic = ?", (topic,))
        db.execute("DELETE FROM snapshot WHERE topic = ?", (topic,))

    # Rows

    def rows(self, topic: str, keys: Sequence[str]) -> dict[str, Row]:
        """The rows of those keys that are there."""
        table = self._tables[topic]
        if not keys:
            return {}
        sql = (
            f"SELECT r.key, r.layout, r.row FROM json_each(?) k JOIN {table.rows} r "
            "ON r.key = k.value"
        )
        with self._db() as db:
            found: list[Any] = db.execute(sql, (json.dumps(keys),)).fetchall()
        rows = dict(self._read(table, (row for row in found if row[2] is not None)))
        if table.pages:
            hidden = {key for key, _, _ in found}
            for page, some, values in table.pages.find([key for key in keys if key not in hidden]):
                rows.update(zip(some, self._of_page(table, page, values), strict=True))
        return rows

    def held(self, topic: str, keys: pa.Array) -> set[str]:
        """The keys that the table of rows has, be it as deleted ones."""
        with self._db() as db:
            return _held(db, self._tables[topic], keys)

    def has_place(self, topic: str, new: NewPage) -> bool:
        """True if rows can be kept as a page."""
        return self._tables[topic].pages.has_place(new)

    def unseen(self, topic: str, keys: Sequence[str], number: int) -> set[str]:
        """The keys of rows that no snapshot from a number on has seen."""
        table = self._tables[topic]
        sql = (
            f"SELECT r.key, r.row IS NOT NULL AND r.seen < ? FROM json_each(?) k "
            f"JOIN {table.rows} r ON r.key = k.value"
        )
        with self._db() as db:
            found = dict(db.execute(sql, (number, json.dumps(keys))))
        unseen = {str(key) for key, is_unseen in found.items() if is_unseen}
        for page, some, _ in table.pages.find([key for key in keys if key not in found]):
            unseen.update(some if page.seen < number else ())
        return unseen

    def page(self, topic: str, *, unseen_by: int | None = None) -> list[tuple[str, Row]]:
        """Some rows, or those that a snapshot has not seen; none if there are no more."""
        table = self._tables[topic]
        wanted = "row IS NOT NULL" + ("" if unseen_by is None else f" AND seen < {unseen_by:d}")
        sql = f"SELECT key, layout, row FROM {table.rows} WHERE {wanted} LIMIT {_PAGE}"
        with self._db() as db:
            found: list[Any] = db.execute(sql).fetchall()
        if found:
            return list(self._read(table, found))
        for page in list(table.pages):
            if unseen_by is None or page.seen < unseen_by:
                if rows := self._shown(table, page, _PAGE):
                    return rows
                self._drop_page(table, page)
        return []

    def all(self, topic: str) -> list[tuple[str, Row]]:
        """Every row of a topic."""
        table = self._tables[topic]
        sql = f"SELECT key, layout, row FROM {table.rows} WHERE row IS NOT NULL"
        with self._db() as db:
            found: list[Any] = list(db.execute(sql))
        rows = list(self._read(table, found))
        for page in table.pages:
            rows += self._shown(table, page, page.count)
        return rows

    def count(self, topic: str) -> int:
        """The number of rows of a topic."""
        table = self._tables[topic]
        with self._db() as db:
            found: Any = db.execute(f"SELECT count(row) FROM {table.rows}").get
            held = db.execute(f"SELECT key FROM {table.rows}") if table.pages else ()
            hidden = sum(
                len(some) for _, some, _ in table.pages.find([str(key) for (key,) in held])
            )
        return int(found) + sum(page.count for page in table.pages) - hidden

    # Inside

    def _put(self, db: apsw.Connection, table: _Table, change: TableChanges) -> None:
        seen, layout, dumps = change.seen, table.layout, marshal.dumps
        kept = [
            (key, seen, layout, dumps(row, _MARSHAL))
            for key, row in change.rows.items()
            if row is not None
        ]
        db.executemany(f"REPLACE INTO {table.rows} VALUES (?, ?, ?, ?)", kept)
        if len(kept) < len(change.rows):
            gone = [key for key, row in change.rows.items() if row is None]
            db.executemany(f"DELETE FROM {table.rows} WHERE key = ?", [(key,) for key in gone])
            hidden = [(key, seen, layout) for _, some, _ in table.pages.find(gone) for key in some]
            db.executemany(f"REPLACE INTO {table.rows} VALUES (?, ?, ?, NULL)", hidden)
        if change.same:
            if table.pages:
                held = _held(db, table, change.same)
                for page, some, values in table.pages.find(
                    [key for key in change.same if key not in held]
                ):
                    rows = zip(some, self._of_page(table, page, values), strict=True)
                    found = [(key, seen, layout, dumps(row, _MARSHAL)) for key, row in rows]
                    db.executemany(f"INSERT INTO {table.rows} VALUES (?, ?, ?, ?)", found)
            sql = f"UPDATE {table.rows} SET seen = ? WHERE key = ?"
            db.executemany(sql, [(seen, key) for key in change.same])
        if change.page is not None:
            table.pages.add(db, change.page, seen, layout)

    def _shown(self, table: _Table, page: Page, limit: int) -> list[tuple[str, Row]]:
        """Rows of a page that the table of rows does not hide."""
        keys, values = table.pages.rows(page)
        with self._db() as db:
            held = _held(db, table, keys)
        shown = [place for place, key in enumerate(keys) if key not in held][:limit]
        rows = self._of_page(table, page, values.take(pa.array(shown, pa.int64())))
        return list(zip((keys[place] for place in shown), rows, strict=True))

    def _drop_page(self, table: _Table, page: Page) -> None:
        """Forget a page of which every row is hidden."""
        keys = json.dumps(table.pages.rows(page)[0])
        with self._writing() as db:
            table.pages.drop(db, page)
            sql = f"DELETE FROM {table.rows} WHERE row IS NULL AND key IN "
            db.execute(sql + "(SELECT value FROM json_each(?))", (keys,))
        page_path(self.path, page.number).unlink()

    def _of_page(self, table: _Table, page: Page, values: pa.RecordBatch) -> list[Row]:
        rows = self._rows(values.schema, values.to_struct_array())
        layout = page.layout
        return [
            row if layout == table.layout else self._moved(table, layout, row)
            for row in rows
            if row is not None
        ]

    def _read(
        self, table: _Table, found: Iterable[tuple[str, int, bytes]]
    ) -> Iterator[tuple[str, Row]]:
        layout, loads = table.layout, marshal.loads
        for key, laid, row in found:
            values: Row = loads(row)
            yield key, values if laid == layout else self._moved(table, laid, values)

    def _moved(self, table: _Table, layout: int, row: Row) -> Row:
        """A row of an older layout in the present one."""
        old = {(name, kind): value for (name, kind), value in
               zip(self._layouts[table.number, layout], row, strict=True)}  # fmt: skip
        return tuple(old.get((name, kind)) for name, kind in table.columns)

    @contextlib.contextmanager
    def _db(self) -> Iterator[apsw.Connection]:
        with self._failures.translated(), self._link as db:
            yield db

    @contextlib.contextmanager
    def _writing(self) -> Iterator[apsw.Connection]:
        with self._failures.translated(), self._link.transaction() as db:
            yield db

    def _connect(self) -> apsw.Connection:
        db = connect(str(self.path), _PATIENCE)
        db.pragma("journal_mode", "WAL")
        # A power cut may take back the last commits: they are read from the topics again.
        db.pragma("synchronous", "NORMAL")
        db.pragma("cache_size", -65_536)
        db.pragma("temp_store", "MEMORY")
        return db

    def _load(self, db: apsw.Connection) -> None:
        self._layouts = {
            (int(table), int(layout)): json.loads(columns)
            for table, layout, columns in db.execute("SELECT * FROM layout")
        }
        self._tables = {
            str(topic): _Table(
                number,
                int(str(id)),
                layout,
                self._layouts.get((number, layout), []),
                load_pages(db, self.path, number),
            )
            for number, topic, id, layout in list(db.execute("SELECT * FROM copied"))
        }

    def _page_files(self) -> set[Path]:
        """The files of the pages that are stored."""
        pages = (page for table in self._tables.values() for page in table.pages)
        return {page_path(self.path, page.number) for page in pages}


def _held(db: apsw.Connection, table: _Table, keys: Sequence[str] | pa.Array) -> set[str]:
    """The keys that the table of rows has, be it as deleted ones."""
    if not db.execute(f"SELECT 1 FROM {table.rows} LIMIT 1").fetchall():
        return set()
    sql = f"SELECT r.key FROM json_each(?) k JOIN {table.rows} r ON r.key = k.value"
    texts = keys.to_pylist() if isinstance(keys, pa.Array) else keys
    return {str(key) for (key,) in db.execute(sql, (json.dumps(texts),))}
