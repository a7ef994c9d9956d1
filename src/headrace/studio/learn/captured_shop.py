"""A real database whose changes are captured into a real log, and stores that follow it.

Beside it, the same stores are written by the application itself, after the database: some of these
writes fail, and some overtake each other.
"""

from __future__ import annotations

import contextlib
import random
import sqlite3
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from headrace.cdc import Capture
from headrace.cdc.sqlite import SqliteSource
from headrace.clock import SECOND
from headrace.log import Consumer, Log
from headrace.studio.learn.simulation import Setup
from headrace.studio.learn.stage import stage

STEPS = 20
WRITING = 14
"""Seconds in which the application writes. Then stores may catch up."""
STORES = ("search", "cache", "warehouse")
LATE, STOPPED = "reports", "search"
TOPIC = "shop.main.products"
_PRODUCTS = 5
_UPSERT = "INSERT INTO products VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET price = excluded.price"

Rows = Mapping[int, int]
"""Prices by product."""


@dataclass(frozen=True)
class Entry:
    """A record of the topic: an operation and its product, or the tombstone after a delete."""

    offset: int
    op: str
    product: int
    price: int | None = None

    @property
    def text(self) -> str:
        return f"{self.op} {self.product}"


@dataclass(frozen=True)
class Copy:
    """A store that follows the changes: its rows, its position, and the records before it."""

    rows: Rows
    position: int
    lag: int
    running: bool


@dataclass(frozen=True)
class Moment:
    """The database, the topic and all stores after a step."""

    database: Rows
    entries: tuple[Entry, ...]
    end: int
    copies: Mapping[str, Copy]
    dual: Mapping[str, Rows]
    wrote: tuple[str, ...] = ()
    done: tuple[str, ...] = ()

    def differing(self, rows: Rows) -> int:
        """The number of products that differ from the database."""
        keys = {*rows, *self.database}
        return sum(rows.get(key) != self.database.get(key) for key in keys)


@dataclass
class _Store:
    """A store that reads the topic as a consumer group, and keeps the last row of each key."""

    consumer: Consumer | None
    rows: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    position: int = 0

    def follow(self, records: int) -> None:
        if self.consumer is None or not records:
            return
        for record in self.consumer.poll(max_records=records):
            after = None if record.value is None else record.value["after"]
            if after is None:
                self.rows.pop(record.key, None)
            else:
                self.rows[record.key] = after["id"], after["price"]
            self.position = record.offset + 1
        self.consumer.commit()


class _Shop:
    """The application: it writes to its database, and to each store as well."""

    def __init__(self, folder: Path, setup: Setup) -> None:
        self.path = folder / "shop.db"
        self._db = sqlite3.connect(self.path, isolation_level=None)
        self._db.execute("PRAGMA synchronous = OFF")  # nobody cuts its power
        self._db.execute("CREATE TABLE products (id INTEGER PRIMARY KEY, price INTEGER)")
        self._rng = random.Random(setup.seed)
        self._fate = random.Random(setup.seed + 1)
        self._fails = setup.number("fails") / 100
        self.dual: dict[str, dict[int, int]] = {name: {} for name in STORES}
        self._delayed: dict[str, tuple[int, int | None]] = {}

    def rows(self) -> dict[int, int]:
        return dict(self._db.execute("SELECT id, price FROM products ORDER BY id"))

    def write(self) -> str:
        """Insert a product, change its price, or now and then delete it."""
        product, price = self._rng.randint(1, _PRODUCTS), self._rng.randint(1, 99)
        there = product in self.rows()
        if there and self._rng.random() < 0.15:
            return self.delete(product)
        self._db.execute(_UPSERT, (product, price))
        self._write_twice(product, price)
        return f"product {product} costs {price}"

    def delete(self, product: int | None = None) -> str:
        """Delete a product, by default the first."""
        product = min(self.rows(), default=0) if product is None else product
        self._db.execute("DELETE FROM products WHERE id = ?", (product,))
        self._write_twice(product, None)
        return f"product {product} is deleted"

    def _write_twice(self, product: int, price: int | None) -> None:
        """Write to each store after the database. Half of the mishaps are lost, half delayed."""
        for name, rows in self.dual.items():
            late = self._delayed.pop(name, None)
            mishap = self._fate.random() < self._fails
            if mishap and self._fate.random() < 0.5:
                self._delayed[name] = product, price
            elif not mishap:
                _put(rows, product, price)
            if late is not None:
                # It was sent first and arrives last.
                _put(rows, *late)

    def close(self) -> None:
        self._db.close()


@lru_cache(maxsize=32)
def history(setup: Setup) -> tuple[Moment, ...]:
    """The shop and its stores after each step, from the beginning."""
    with (
        tempfile.TemporaryDirectory(prefix="headrace-") as folder,
        stage() as (log, clock),
        contextlib.closing(_Shop(Path(folder), setup)) as shop,
        SqliteSource(shop.path, clock=clock) as source,
        Capture(source, log, "shop", clock=clock) as capture,
    ):
        while capture.step(0.0):
            pass
        stores = {name: _Store(_consumer(log, name)) for name in STORES}
        moments = [_moment(log, shop, stores, (), ())]
        for step in range(1, STEPS + 1):
            clock.sleep(SECOND)
            done = tuple(act for act in setup.actions_before(step, STEPS) if _do(log, stores, act))
            wrote = [shop.delete()] if "delete" in done else []
            if step <= WRITING:
                wrote.append(shop.write())
            while capture.step(0.0):
                pass
            for name, store in stores.items():
                store.follow(_due(setup, name, step))
            moments.append(_moment(log, shop, stores, tuple(wrote), done))
        for store in stores.values():
            if store.consumer is not None:
                store.consumer.close()
    return tuple(moments)


def _do(log: Log, stores: dict[str, _Store], action: str) -> bool:
    store = stores[STOPPED]
    match action:
        case "stop" if store.consumer is not None:
            store.consumer.close()
            store.consumer = None
        case "start" if store.consumer is None:
            store.consumer = _consumer(log, STOPPED)
        case "join" if LATE not in stores:
            stores[LATE] = _Store(_consumer(log, LATE))
        case "compact":
            log.compact(TOPIC)
        case "delete":
            pass
        case _:
            return False
    return True


def _consumer(log: Log, name: str) -> Consumer:
    return log.consumer(TOPIC, group=name, commit="manual")


def _due(setup: Setup, name: str, step: int) -> int:
    """The records that a store takes in one second: half a record is one in two seconds."""
    speed = 4.0 if name == LATE else setup.number(name)
    return int(speed * step + 1e-9) - int(speed * (step - 1) + 1e-9)


def _moment(
    log: Log,
    shop: _Shop,
    stores: Mapping[str, _Store],
    wrote: tuple[str, ...],
    done: tuple[str, ...],
) -> Moment:
    entries = tuple(_entries(log))
    copies = {
        name: Copy(
            dict(sorted(store.rows.values())),
            store.position,
            sum(entry.offset >= store.position for entry in entries),
            store.consumer is not None,
        )
        for name, store in stores.items()
    }
    dual = {name: dict(sorted(rows.items())) for name, rows in shop.dual.items()}
    end = log.topic(TOPIC).partitions[0].end
    return Moment(shop.rows(), entries, end, copies, dual, wrote, done)


def _entries(log: Log) -> list[Entry]:
    """The records that the topic still has."""
    found = []
    products: dict[bytes, int] = {}
    for batch in log.read(TOPIC):
        for record in batch.records():
            value = record.value
            if value is None:
                found.append(Entry(record.offset, "tombstone", products.get(record.key, 0)))
                continue
            row = value["after"] or value["before"]
            products[record.key] = row["id"]
            price = None if value["after"] is None else row["price"]
            found.append(Entry(record.offset, _OPERATIONS[value["op"]], row["id"], price))
    return found


_OPERATIONS = {"c": "create", "u": "update", "d": "delete", "r": "read"}


def _put(rows: dict[int, int], product: int, price: int | None) -> None:
    if price is None:
        rows.pop(product, None)
    else:
        rows[product] = price
