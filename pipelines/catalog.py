"""An online shop: its database is the truth; a search index, a cache and a warehouse follow.

    headrace cdc attach shop.db --tables products,orders
    headrace cdc run shop
    headrace run pipelines/catalog.py:app
    headrace search products "oak chair"
    headrace verify pipelines/catalog.py:app

The shop writes to its database and to nothing else. `headrace demo catalog` runs all of it, kills
the follower of the index, and recovers from a DELETE of 10,000 products.

CATALOG_CACHE is the address of a Redis, such as redis://localhost:6379/0. Without one, the cache is
a file that a web server on this machine can read: a store of our own. CATALOG_WAREHOUSE is the
folder or bucket of the Delta tables.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import headrace as hr
from headrace.errors import InvalidPipeline, StoreFenced


@dataclass(frozen=True)
class JsonFile(hr.Store):
    """Each row as a JSON text by its key, in a file of SQLite in a folder."""

    folder: str

    @property
    def address(self) -> str:
        return f"cache:{self.folder}"

    def check(self, view: hr.StoredView) -> None:
        allowed = (pa.string(), pa.int64(), pa.float64(), pa.bool_())
        for field in view.columns:
            if field.type not in allowed:
                raise InvalidPipeline(f"{field.name!r} is {field.type}, which JSON does not have")

    def live(self, view: hr.StoredView) -> JsonTable:
        return JsonTable(self._path(view), view, "live")

    def beside(self, view: hr.StoredView) -> JsonTable:
        table = JsonTable(self._path(view), view, "beside")
        table.clear()
        return table

    def switch(self, view: hr.StoredView) -> None:
        with JsonTable(self._path(view), view, "beside") as built:
            if built.position() is not None:
                built.take_over("live")

    def remove(self, view: hr.StoredView) -> None:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self._path(view)}{suffix}").unlink(missing_ok=True)

    def _path(self, view: hr.StoredView) -> Path:
        return Path(self.folder, view.app, f"{view.name}.db")


class JsonTable(hr.StoreTable):
    """One version of a view in a file. Rows and position are one transaction."""

    def __init__(self, path: Path, view: hr.StoredView, version: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._view = view
        self._version = version
        self._db = sqlite3.connect(path, timeout=60, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS rows (version, key, row, PRIMARY KEY (version, key))"
        )
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS positions (version PRIMARY KEY, generation, place)"
        )

    def close(self) -> None:
        self._db.close()

    def position(self) -> hr.StorePosition | None:
        query = "SELECT generation, place FROM positions WHERE version = ?"
        found = self._db.execute(query, (self._version,)).fetchone()
        return None if found is None else hr.StorePosition(*found)

    def fill(self, parts: Iterable[hr.Changes], position: hr.StorePosition) -> None:
        with self._transaction():
            for part in parts:
                self._write(part)
            self._note(position)

    def apply(self, changes: hr.Changes) -> None:
        with self._transaction():
            now = self.position()
            if now is not None and now.generation != changes.position.generation:
                raise StoreFenced("The cache has the rows of other results")
            if now is None or now.offset < changes.position.offset:
                self._write(changes)
                self._note(changes.position)

    def read(self) -> Iterator[pa.RecordBatch]:
        query = "SELECT row FROM rows WHERE version = ?"
        rows = [json.loads(text) for (text,) in self._db.execute(query, (self._version,))]
        yield from pa.Table.from_pylist(rows, schema=self._view.columns).to_batches()

    def clear(self) -> None:
        """Remove all rows, and the position."""
        with self._transaction():
            for table in ("rows", "positions"):
                self._db.execute(f"DELETE FROM {table} WHERE version = ?", (self._version,))

    def take_over(self, other: str) -> None:
        """Replace another version by this one."""
        with self._transaction():
            for table in ("rows", "positions"):
                self._db.execute(f"DELETE FROM {table} WHERE version = ?", (other,))
                self._db.execute(
                    f"UPDATE {table} SET version = ? WHERE version = ?", (other, self._version)
                )

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        with self._db:  # commits, or rolls back
            yield

    def _write(self, changes: hr.Changes) -> None:
        rows, gone = changes.rows.to_pylist(), changes.deleted.to_pylist()
        kept = [(self._version, self._key(row), json.dumps(row)) for row in rows]
        self._db.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?, ?)", kept)
        self._db.executemany(
            "DELETE FROM rows WHERE version = ? AND key = ?",
            [(self._version, self._key(row)) for row in gone],
        )

    def _note(self, position: hr.StorePosition) -> None:
        self._db.execute(
            "INSERT OR REPLACE INTO positions VALUES (?, ?, ?)",
            (self._version, position.generation, position.offset),
        )

    def _key(self, row: dict[str, Any]) -> str:
        """The value of the key, or several as a JSON array."""
        values = [row[name] for name in self._view.key]
        return str(values[0]) if len(values) == 1 else json.dumps(values)


app = hr.App("catalog", log="file:./data")

products = app.captured(
    "shop.main.products",
    schema="sku string, name string, description string, price double, stock bigint",
    key="sku",
)
orders = app.captured(
    "shop.main.orders", schema="id bigint, customer string, sku string, pieces bigint", key="id"
)

place = os.environ.get("CATALOG_CACHE", "./cache")
cache = place if place.startswith("redis") else JsonFile(place)
warehouse = hr.Delta(os.environ.get("CATALOG_WAREHOUSE", "./warehouse"))

app.view(
    "products",
    products,
    store=[hr.Search(("name", "description")), cache, warehouse],
)
# A product that gets another name or price changes all of its orders.
app.view(
    "orders",
    hr.join_tables(orders, products, on="sku", how="left", prefix="product_"),
    store=warehouse,
)
