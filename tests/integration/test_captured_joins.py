"""Joins of captured tables have what the database has: against SQL and plain Python."""

from __future__ import annotations

import contextlib
import random
import sqlite3
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.cdc import run as capture
from headrace.cdc.sqlite import SqliteSource
from headrace.cli.demonstration.catalog.account import as_in_the_database
from headrace.cli.demonstration.catalog.shop import Shop
from headrace.clock import SystemClock, to_datetime
from headrace.log import Log
from headrace.store.contract import Store
from headrace.store.following import followed_in
from headrace.testing import Crash, crash_at, scripted_log
from pipelines import catalog, suspicions
from tests.seed import SEED
from tests.spark import shared

PRODUCTS = 30


class Clerk:
    """Somebody who changes products and orders in all the ways that SQL has."""

    def __init__(self, shop: Shop, dice: random.Random) -> None:
        self._shop = shop
        self._dice = dice

    def work(self, transactions: int) -> None:
        for _ in range(transactions):
            self._shop.run(*(self._statement() for _ in range(self._dice.randint(1, 4))))

    def _statement(self) -> str:
        dice = self._dice
        sku, other = (f"'p{dice.randrange(PRODUCTS + 10):06}'" for _ in range(2))
        order, price = dice.randrange(40), dice.randrange(1, 500)
        return dice.choice(
            (
                f"UPDATE products SET price = {price} WHERE sku = {sku}",
                f"UPDATE products SET name = NULL, price = {price}.5 WHERE sku >= {sku}",
                f"DELETE FROM products WHERE sku = {sku}",
                f"INSERT OR REPLACE INTO products VALUES ({sku}, 'new', 'a thing', {price}, 1)",
                f"UPDATE OR IGNORE products SET sku = {other} WHERE sku = {sku}",
                f"INSERT OR REPLACE INTO orders VALUES ({order}, 'ann', {sku}, 2)",
                f"INSERT OR IGNORE INTO orders VALUES ({order}, '', NULL, 1), (99, 'b', {sku}, 3)",
                f"UPDATE orders SET sku = {other} WHERE sku = {sku}",
                f"UPDATE OR IGNORE orders SET id = id + 1 WHERE id = {order}",
                f"DELETE FROM orders WHERE id % 7 = {order % 7}",
            )
        )


def test_orders_with_products_are_the_join_that_the_database_makes_in_every_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shop = Shop(tmp_path / "shop.db", PRODUCTS)
    shop.open()
    clerk = Clerk(shop, random.Random(SEED or 0))
    with hr.open_log("file:log") as log:
        for round in range(3):
            # The snapshot, changes that came while nothing ran, and a second snapshot.
            with SqliteSource(shop.path) as source:
                again = ["main.products"] if round == 2 else []
                capture(source, log, "shop", again=again, until_caught_up=True)
            hr.run(catalog.app, log, spark=shared())
            for finding in findings(log, shop):
                assert finding.holds, (round, finding)
            clerk.work(60)


def findings(log: Log, shop: Shop) -> Iterator[Any]:
    for view in catalog.app.views.values():
        for store in view.stores:
            assert isinstance(store, Store)
            followed = followed_in(log, "catalog", view.name, store.form)
            assert followed is not None
            yield as_in_the_database(followed.view, store, shop)


class Bank:
    """The bank: its database of customers, and what a rule in plain Python says."""

    def __init__(self, path: Path, dice: random.Random) -> None:
        self.path = path
        self._dice = dice
        self.suspicious: Counter[str] = Counter()
        self._number = 0
        with contextlib.closing(sqlite3.connect(path)) as db, db:
            db.execute(
                "CREATE TABLE customers (card TEXT PRIMARY KEY, usual REAL, country TEXT, "
                "blocked INT, holder TEXT)"
            )

    def change_profiles(self) -> None:
        """New, changed and deleted customers, in one transaction or in several."""
        with contextlib.closing(sqlite3.connect(self.path)) as db:
            for _ in range(12):
                card = f"card {self._dice.randrange(10)}"
                row = (card, self._dice.choice((1.0, 50.0)), self._dice.choice(("nl", "fr")))
                if self._dice.random() < 0.2:
                    db.execute("DELETE FROM customers WHERE card = ?", (card,))
                else:
                    blocked = self._dice.random() < 0.1
                    db.execute("REPLACE INTO customers VALUES (?, ?, ?, ?, 'ann')", (*row, blocked))
                if self._dice.random() < 0.5:
                    db.commit()
            db.commit()

    def transactions(self, count: int, at: datetime) -> list[dict[str, Any]]:
        """Transactions, judged by the profiles as they are in the database now."""
        with contextlib.closing(sqlite3.connect(self.path)) as db:
            query = "SELECT card, usual, country, blocked FROM customers"
            profiles = {card: profile for card, *profile in db.execute(query)}
        made = []
        for _ in range(count):
            self._number += 1
            card = f"card {self._dice.randrange(12)}"
            amount = self._dice.choice((5.0, 100.0, 1_000.0))
            country = self._dice.choice(("nl", "nl", "fr"))
            if suspected(profiles.get(card), amount, country):
                self.suspicious[card] += 1
            made.append(
                {
                    "transaction": f"t{self._number}",
                    "card": card,
                    "amount": amount,
                    "country": country,
                    "at": at + timedelta(milliseconds=self._number),
                }
            )
        return made


def suspected(profile: Any, amount: float, country: str) -> bool:
    if profile is None:
        return True
    usual, home, blocked = profile
    return bool(blocked == 1 or amount > 10 * usual or country != home)


def test_suspicions_are_counted_once_by_the_profiles_that_the_database_has(tmp_path: Path) -> None:
    bank = Bank(tmp_path / "bank.db", random.Random(SEED or 0))
    start = to_datetime(SystemClock().now()) + timedelta(hours=1)
    with scripted_log(start=start + timedelta(hours=1)) as log:
        for round, crash in enumerate(("stored outputs", "before commit", "sent")):
            bank.change_profiles()
            with SqliteSource(bank.path) as source:
                capture(source, log.log, "bank", until_caught_up=True)
            log.write(
                suspicions.transactions, *bank.transactions(40, start + timedelta(minutes=round))
            )
            # In one of the steps: the first of them to come there.
            with pytest.raises(Crash):
                log.run(suspicions.app, spark=shared(), crash_point=crash_at(crash, 1 + round % 2))
            results = log.run(suspicions.app, spark=shared())
            counts = {r["card"]: r["suspicious"] for r in results.view("suspicious_count")}
            assert counts == bank.suspicious
