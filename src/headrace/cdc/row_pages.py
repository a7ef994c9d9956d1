"""Pages of the copy of rows: what chunks of a snapshot have read, each a file of Arrow.

Rows of a snapshot come in the order of their key, whole columns at once. Where the key is one
integer, a page is as good a place for them as a table of SQLite, and costs a tenth: it is found by
its first and last key, and a row in it by a binary search in the file, which is mapped into memory.

A page never changes. A row of the table that has the same key hides the one in the page.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import apsw
import numpy as np
import pyarrow as pa

from headrace.cdc.contract import Table
from headrace.cdc.keys import key_column
from headrace.files import sync_path

_MAPPED = 64
"""Pages that are kept open."""

SCHEMA = """
    CREATE TABLE page (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        table_number, first, last, count, seen, layout
    );
"""


@dataclass(frozen=True)
class NewPage:
    """Rows for a page, in the order of their key."""

    table: Table
    keys: pa.Array
    values: pa.StructArray

    @property
    def first(self) -> int:
        return int(self._column[0].as_py())

    @property
    def last(self) -> int:
        return int(self._column[-1].as_py())

    @property
    def is_ordered(self) -> bool:
        """True if each key is larger than the one before it."""
        return bool(np.all(np.diff(self._column.to_numpy()) > 0))

    @property
    def _column(self) -> pa.Array:
        return self.values.field(self.table.key[0])


@dataclass(frozen=True)
class Page:
    """A page: the file `number`, with `count` rows from a first to a last key."""

    number: int
    first: int
    last: int
    count: int
    seen: int
    layout: int


def can_be_pages(table: Table) -> bool:
    """True if the rows of a table can be pages."""
    if len(table.key) > 1:
        return False
    return bool(pa.types.is_signed_integer(table.columns.field(table.key[0]).type))


class Pages:
    """The pages of one table of the copy. The caller has the transaction."""

    def __init__(self, files: Path, table: int, found: Iterable[Page]) -> None:
        self._files = files
        self._table = table
        self._pages = sorted(found, key=lambda page: page.first)
        self._firsts = np.array([page.first for page in self._pages], np.int64)
        self._mapped: OrderedDict[int, pa.RecordBatch] = OrderedDict()

    def __iter__(self) -> Iterator[Page]:
        return iter(self._pages)

    def __len__(self) -> int:
        return len(self._pages)

    def has_place(self, new: NewPage) -> bool:
        """True if rows can be a page: no other one has keys between the first and the last."""
        first, last = new.first, new.last
        apart = all(page.last < first or last < page.first for page in self._pages)
        return apart and new.is_ordered

    def add(self, db: apsw.Connection, new: NewPage, seen: int, layout: int) -> None:
        """Write a page."""
        values = self._table, new.first, new.last, len(new.values), seen, layout
        db.execute(
            "INSERT INTO page (table_number, first, last, count, seen, layout) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            values,
        )
        page = Page(db.last_insert_rowid(), *values[1:])
        path = page_path(self._files, page.number)
        schema = new.table.columns.with_metadata({"key": new.table.key[0]})
        batch = pa.RecordBatch.from_arrays(new.values.flatten(), schema=schema)
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
            writer.write_batch(batch)
        sync_path(path)
        self._pages.append(page)
        self._pages.sort(key=lambda page: page.first)
        self._firsts = np.array([page.first for page in self._pages], np.int64)

    def drop(self, db: apsw.Connection, page: Page) -> None:
        """Forget a page. Its file is removed when the transaction is stored."""
        db.execute("DELETE FROM page WHERE number = ?", (page.number,))
        self._mapped.pop(page.number, None)
        self._pages.remove(page)
        self._firsts = np.array([page.first for page in self._pages], np.int64)

    def find(self, keys: Sequence[str]) -> Iterator[tuple[Page, list[str], pa.RecordBatch]]:
        """The rows with some keys, by page: their keys, and their values."""
        if not self._pages or not keys:
            return
        wanted = np.array([_number(key) for key in keys], np.int64)
        order = np.argsort(wanted, kind="stable")
        places = np.searchsorted(self._firsts, wanted[order], side="right") - 1
        for place in np.unique(places[places >= 0]).tolist():
            page, some = self._pages[place], order[places == place]
            batch = self._open(page)
            column = _keys_of(batch).to_numpy()
            at = np.searchsorted(column, wanted[some])
            at[at == len(column)] = 0
            there = column[at] == wanted[some]
            if there.any():
                rows = batch.take(pa.array(at[there]))
                yield page, [keys[number] for number in some[there].tolist()], rows

    def rows(self, page: Page) -> tuple[list[str], pa.RecordBatch]:
        """All keys and rows of a page."""
        batch = self._open(page)
        table = Table("", "", batch.schema, (batch.schema.metadata[b"key"].decode(),))
        return key_column(table, batch.to_struct_array()).to_pylist(), batch

    def _open(self, page: Page) -> pa.RecordBatch:
        batch = self._mapped.pop(page.number, None)
        if batch is None:
            file = pa.memory_map(str(page_path(self._files, page.number)))
            batch = pa.ipc.open_file(file).get_batch(0)
            if len(self._mapped) >= _MAPPED:
                self._mapped.popitem(last=False)
        self._mapped[page.number] = batch
        return batch


def load_pages(db: apsw.Connection, files: Path, table: int) -> Pages:
    """The pages of a table."""
    sql = "SELECT number, first, last, count, seen, layout FROM page WHERE table_number = ?"
    return Pages(files, table, (Page(*map(int, row)) for row in db.execute(sql, (table,))))


def page_path(files: Path, number: int) -> Path:
    """The file of a page. `files` is that of the copy."""
    return files.with_name(f"{files.name}.{number}.page")


def page_files(files: Path) -> set[Path]:
    """The files of pages that there are."""
    found = files.parent.glob(f"{files.name}.*.page")
    return {path for path in found if path.name[len(files.name) + 1 : -len(".page")].isdigit()}


def _keys_of(batch: pa.RecordBatch) -> pa.Array:
    return batch.column(batch.schema.metadata[b"key"].decode())


def _number(key: str) -> int:
    """The number in a key of one column."""
    return int(key[key.rindex(":") + 1 : -1])
