"""An order is work for payment and inventory, and history for analytics: one log, one record.

    headrace queue create payment --topic placed
    headrace queue create inventory --topic placed --set ordered=true
    headrace queue work payment pipelines/checkout.py:charge --concurrency 8
    headrace queue work inventory pipelines/checkout.py:reserve
    headrace run pipelines/checkout.py:app

Both queues are over the topic `placed`, so each gets every order, and neither removes it. What a
worker did is written in the commit that accepts its message: `payments` and `reservations` have one
row for each order, whatever crashes. What it does outside of the log can be done twice: the
provider of cards knows the message's id, and the warehouse sets a reservation instead of counting.

Orders of an unknown product become dead letters. When there is the product, `headrace queue redrive
inventory` tries them again.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta as td
from pathlib import Path

import headrace as hr
from headrace.queue import Message, Send, Settlement

app = hr.App("checkout", log="file:./data")

placed = app.topic(
    "placed",
    schema="order_id string, customer string, product string, quantity int, "
    "amount decimal(10,2), at timestamp",
    key="product",
    event_time="at",
)
payments = app.topic(
    "payments",
    schema="order_id string, customer string, amount decimal(10,2), outcome string, at timestamp",
    key="customer",
    event_time="at",
)
reservations = app.topic(
    "reservations",
    schema="order_id string, product string, quantity int, outcome string, at timestamp",
    key="product",
    event_time="at",
)

_LATENESS = hr.Lateness(delay=td(minutes=1), grace=td(hours=1))

sales = hr.aggregate(
    placed,
    by="product",
    window=hr.tumbling(td(minutes=1)),
    lateness=_LATENESS,
    orders=hr.count(),
    amount=hr.sum("amount"),
)
takings = hr.aggregate(
    payments,
    by="outcome",
    window=hr.tumbling(td(minutes=1)),
    lateness=_LATENESS,
    payments=hr.count(),
    amount=hr.sum("amount"),
)

app.view("sales", sales)
app.view("takings", takings)

LIMIT = 500
"""The provider declines a card above that amount."""


def charge(message: Message) -> Send:
    """Charge the card of an order: work of the queue `payment`."""
    order = message.value
    outcome = "declined" if order["amount"] > LIMIT else "charged"
    if outcome == "charged":
        # A second call with the same key charges nothing: that is what the provider promises.
        with _database("provider.db") as db:
            db.execute(
                "INSERT OR IGNORE INTO charges VALUES (?, ?, ?)",
                (message.id, order["customer"], str(order["amount"])),
            )
    row = {name: order[name] for name in ("order_id", "customer", "amount", "at")}
    return Send("payments", {**row, "outcome": outcome})


def reserve(message: Message) -> Send | Settlement:
    """Reserve what was ordered: work of the queue `inventory`, in order for each product."""
    order = message.value
    with _database("warehouse.db") as db:
        found = db.execute("SELECT pieces FROM stock WHERE product = ?", (order["product"],))
        stock = found.fetchone()
        if stock is None:
            return message.rejected(f"there is no product {order['product']!r}")
        others = db.execute(
            "SELECT coalesce(sum(quantity), 0) FROM reserved WHERE product = ? AND id <> ?",
            (order["product"], message.id),
        ).fetchone()
        enough = others[0] + order["quantity"] <= stock[0]
        if enough:
            # Set under the message's id. A counter would be wrong after a second delivery.
            db.execute(
                "INSERT OR REPLACE INTO reserved VALUES (?, ?, ?)",
                (message.id, order["product"], order["quantity"]),
            )
    row = {name: order[name] for name in ("order_id", "product", "quantity", "at")}
    return Send("reservations", {**row, "outcome": "reserved" if enough else "sold out"})


_TABLES = """
    CREATE TABLE IF NOT EXISTS charges (id TEXT PRIMARY KEY, customer TEXT, amount TEXT);
    CREATE TABLE IF NOT EXISTS stock (product TEXT PRIMARY KEY, pieces INT);
    CREATE TABLE IF NOT EXISTS reserved (id TEXT PRIMARY KEY, product TEXT, quantity INT);
"""


@contextmanager
def _database(name: str) -> Iterator[sqlite3.Connection]:
    """A system outside of the log, here a file in the folder CHECKOUT, by default this one."""
    path = Path(os.environ.get("CHECKOUT", "."), name)
    with closing(sqlite3.connect(path, timeout=60)) as db:
        db.executescript(_TABLES)
        with db:
            db.execute("BEGIN IMMEDIATE")
            yield db
