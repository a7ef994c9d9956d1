"""Orders as work for payment and inventory and as history for analytics, from one log."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import headrace as hr
from headrace.cli.modules import load_module
from headrace.log import Log, open_log
from headrace.queue import (
    QueueSettings,
    Worker,
    create_queue,
    open_queue,
    redrive,
    work,
)
from headrace.store import open_views
from tests.spark import shared

PIPELINE = Path(__file__).parents[2] / "pipelines" / "checkout.py"
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
PRODUCTS = {"pen": 1_000, "ink": 25, "desk": 1_000}
ORDERS = 120
LEASE = timedelta(seconds=1)


class Shop:
    """A log with orders, the two queues over them, and the two systems outside."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.module: ModuleType = load_module(str(PIPELINE))
        self.app: hr.App = self.module.app
        self.log: Log = open_log(f"file:{folder}/log")
        for topic in self.app.topics.values():
            self.log.ensure_topic(topic)
        for name, ordered in (("payment", False), ("inventory", True)):
            settings = QueueSettings(ordered=ordered, lease=LEASE, backoff=timedelta(0))
            create_queue(self.log, name, topic="placed", settings=settings).close()
        with self.module._database("warehouse.db") as db:
            db.executemany("INSERT INTO stock VALUES (?, ?)", PRODUCTS.items())
        self.orders = [self._order(number) for number in range(ORDERS)]
        with self.log.producer() as producer:
            for order in self.orders:
                producer.send("placed", order)

    def _order(self, number: int) -> dict[str, Any]:
        product = ["pen", "ink", "desk"][number % 3]
        return {
            "order_id": f"order-{number}",
            "customer": f"customer-{number % 7}",
            "product": product,
            "quantity": 1 + number % 2,
            "amount": Decimal(700 if product == "desk" and number % 2 else 20),
            "at": NOON + timedelta(seconds=number),
        }

    def rows(self, topic: str) -> list[dict[str, Any]]:
        return [record.value for batch in self.log.read(topic) for record in batch.records()]

    def outside(self, name: str, sql: str) -> list[Any]:
        with sqlite3.connect(self.folder / name) as db:
            return db.execute(sql).fetchall()


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    monkeypatch.setenv("CHECKOUT", str(tmp_path))
    made = Shop(tmp_path)
    yield made
    made.log.close()


def crash(shop: Shop, name: str, handler: Callable[..., Any], count: int) -> None:
    """A worker that does its work outside and dies before it accepts a message."""
    queue = open_queue(shop.log, name, worker="crashed")
    for message in queue.take(count):
        handler(message)


def test_each_order_is_charged_and_reserved_once_whatever_crashes_and_counted_as_history(
    shop: Shop,
) -> None:
    charge, reserve = shop.module.charge, shop.module.reserve
    crash(shop, "payment", charge, 10)
    crash(shop, "inventory", reserve, 2)
    for name, handler in (("payment", charge), ("inventory", reserve)):
        report = work(open_queue(shop.log, name), handler, concurrency=4, until_empty=True)
        assert report.accepted == ORDERS

    payments = shop.rows("payments")
    assert sorted(row["order_id"] for row in payments) == sorted(o["order_id"] for o in shop.orders)
    charged = [row for row in payments if row["outcome"] == "charged"]
    assert {row["amount"] for row in payments if row["outcome"] == "declined"} == {Decimal(700)}
    assert len(charged) < ORDERS
    assert len(shop.outside("provider.db", "SELECT id FROM charges")) == len(charged)

    reservations = shop.rows("reservations")
    assert len({row["order_id"] for row in reservations}) == len(reservations) == ORDERS
    reserved: Counter[str] = Counter()
    for row in reservations:
        reserved[row["product"]] += row["quantity"] * (row["outcome"] == "reserved")
    kept = shop.outside("warehouse.db", "SELECT product, sum(quantity) FROM reserved GROUP BY 1")
    assert dict(kept) == reserved
    assert (
        reserved["ink"]
        == PRODUCTS["ink"]
        < sum(order["quantity"] for order in shop.orders if order["product"] == "ink")
    )

    # The work is gone from the queues, and the orders are still in the log.
    assert [open_queue(shop.log, name).state().unfinished for name in ("payment", "inventory")] == [
        0, 0,
    ]  # fmt: skip
    hr.run(shop.app, shop.log, spark=shared())
    with open_views(shop.log.url) as views:
        sales, takings = views.rows("sales"), views.rows("takings")
    assert sum(row["orders"] for row in sales) == ORDERS
    assert sum(Decimal(row["amount"]) for row in sales) == sum(
        order["amount"] for order in shop.orders
    )
    assert sum(row["payments"] for row in takings if row["outcome"] == "charged") == len(charged)


def test_orders_of_one_product_are_reserved_in_the_order_in_which_they_came(shop: Shop) -> None:
    workers = [open_queue(shop.log, "inventory", worker=str(n)) for n in range(3)]
    while len(shop.rows("reservations")) < ORDERS:
        # All hold messages at once, and the last that got one is the first that is done.
        held = [(worker, message) for worker in workers for message in worker.take()]
        for worker, message in reversed(held):
            worker.settle([message.accepted(shop.module.reserve(message))])
    for product in PRODUCTS:
        got = [row["order_id"] for row in shop.rows("reservations") if row["product"] == product]
        assert got == [o["order_id"] for o in shop.orders if o["product"] == product]


def test_an_order_of_an_unknown_product_is_tried_again_when_there_is_one(shop: Shop) -> None:
    with shop.log.producer() as producer:
        producer.send("placed", {**shop.orders[0], "order_id": "early", "product": "lamp"})
    queue = open_queue(shop.log, "inventory")
    assert Worker(queue, shop.module.reserve).run(until_empty=True).rejected == 1
    ((reason),) = [row["reason"] for row in shop.rows("inventory.dead")]
    assert reason == "there is no product 'lamp'"
    with shop.module._database("warehouse.db") as db:
        db.execute("INSERT INTO stock VALUES ('lamp', 5)")
    assert redrive(queue) == 1
    assert Worker(queue, shop.module.reserve).run(until_empty=True).accepted == 1
    assert shop.rows("reservations")[-1]["order_id"] == "early"
