"""An online shop on SQLite. It writes to its database, and knows of no store."""

from __future__ import annotations

import contextlib
import random
import sqlite3
import threading
from pathlib import Path
from typing import Any

from headrace.clock import SECOND, SystemClock

PREFIX = "shop"
TABLES = ("main.products", "main.orders")

_SCHEMA = """
    CREATE TABLE IF NOT EXISTS products (
        sku TEXT PRIMARY KEY, name TEXT, description TEXT, price REAL, stock INT);
    CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, customer TEXT, sku TEXT, pieces INT);
"""
_COLOURS = ("blue", "red", "green", "white", "black", "grey", "yellow")
_WOODS = ("oak", "beech", "pine", "walnut", "ash", "birch")
_THINGS = ("chair", "table", "shelf", "lamp", "desk", "bed", "stool", "cupboard", "bench")
_ROOMS = ("the kitchen", "the hall", "a small room", "the garden", "the office")
_PAUSE = SECOND // 20
_SEED = 20260131


class Shop:
    """The shop: its database, and a thread in which customers buy and prices change."""

    def __init__(self, path: Path, products: int) -> None:
        self.path = path
        self.products = products
        self.orders = products // 2
        self.writes = 0
        """Rows written by customers and clerks so far."""
        self._dice = random.Random(_SEED)
        self._buying = threading.Event()
        self._pricing = threading.Event()
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._trade, name="shop", daemon=True)

    def open(self) -> None:
        """Fill a new database."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.closing(self._connect()) as db:
            db.execute("PRAGMA journal_mode = WAL")
            db.executescript(_SCHEMA)
            if db.execute("SELECT count(*) FROM products").fetchone() == (0,):
                db.execute("BEGIN")
                db.executemany(
                    "INSERT INTO products VALUES (?, ?, ?, ?, ?)", map(_product, self._numbers())
                )
                db.executemany(
                    "INSERT INTO orders VALUES (?, ?, ?, ?)",
                    map(self._order, range(1, self.orders + 1)),
                )
                db.execute("COMMIT")
            # A database that was kept has those of the last demo.
            (self.products,) = db.execute("SELECT count(*) FROM products").fetchone()
            (self.orders,) = db.execute("SELECT coalesce(max(id), 0) FROM orders").fetchone()

    def begin(self) -> None:
        """Open the doors. `trade` lets customers in."""
        self._thread.start()

    def trade(self, *, prices: bool = True) -> None:
        """Let customers buy, and let clerks change prices."""
        self._buying.set()
        (self._pricing.set if prices else self._pricing.clear)()

    def pause(self) -> None:
        """Stop all writing. What is being written is finished."""
        self._buying.clear()
        with self._lock:
            pass

    def close(self) -> None:
        """Stop writing for good."""
        self._over.set()
        self._buying.set()
        if self._thread.ident is not None:
            self._thread.join()

    def check(self) -> None:
        """Raise what writing has failed with."""
        if self._failure is not None:
            raise self._failure

    def run(self, *statements: str) -> int:
        """Run statements in one transaction, as a person might; return the rows they changed."""
        with contextlib.closing(self._connect()) as db:
            db.execute("BEGIN IMMEDIATE")
            changed = sum(db.execute(statement).rowcount for statement in statements)
            db.execute("COMMIT")
        return changed

    def run_script(self, script: str) -> None:
        """Run a script, as a person might."""
        with contextlib.closing(self._connect()) as db:
            db.executescript(script)

    def query(self, query: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """The names of the columns of a query, and its rows."""
        with contextlib.closing(self._connect()) as db:
            found = db.execute(query)
            return [column[0] for column in found.description], found.fetchall()

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=60, isolation_level=None)

    def _trade(self) -> None:
        clock = SystemClock()
        try:
            with contextlib.closing(self._connect()) as db:
                while not self._over.is_set():
                    self._buying.wait()
                    with self._lock:
                        if self._buying.is_set() and not self._over.is_set():
                            self._write(db)
                    clock.sleep(_PAUSE)
        except BaseException as error:  # the play raises it
            self._failure = error

    def _write(self, db: sqlite3.Connection) -> None:
        """Commit an order, with the piece that leaves the stock, and perhaps a price."""
        db.execute("BEGIN IMMEDIATE")
        self.orders += 1
        db.execute("INSERT INTO orders VALUES (?, ?, ?, ?)", self._order(self.orders))
        self.writes += 1
        if self._pricing.is_set():
            number = self._dice.randrange(self.products)
            price = round(self._dice.uniform(5, 500), 2)
            changes = (price, _sku(number))
            db.execute("UPDATE products SET price = ?, stock = stock - 1 WHERE sku = ?", changes)
            self.writes += 1
        db.execute("COMMIT")

    def _numbers(self) -> range:
        return range(self.products)

    def _order(self, id: int) -> tuple[Any, ...]:
        customer = f"customer {self._dice.randrange(2_000)}"
        return id, customer, _sku(self._dice.randrange(self.products)), self._dice.randint(1, 5)


def _sku(number: int) -> str:
    return f"p{number:06}"


def _product(number: int) -> tuple[Any, ...]:
    dice = random.Random(number)
    colour, wood, thing = dice.choice(_COLOURS), dice.choice(_WOODS), dice.choice(_THINGS)
    about = f"a {colour} {thing} of {wood} for {dice.choice(_ROOMS)}"
    return _sku(number), f"{colour} {wood} {thing}", about, round(dice.uniform(5, 500), 2), 100
