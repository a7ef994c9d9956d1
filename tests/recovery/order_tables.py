"""Tables to join while processes die, and endless changes for them."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import headrace as hr
from headrace.testing import Results, ScriptedLog
from tests.property.tabling import check

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
ORDERS = "id string, product string, amount int, at timestamp"
PRODUCTS = "id string, name string, price decimal(10,2), at timestamp"

Joins = dict[str, hr.TableJoin]


def declare(name: str) -> tuple[hr.App, Joins]:
    """An application with a name and topics of its own, except those it reads."""
    app = hr.App(name)
    orders = app.topic("orders", schema=ORDERS, key="id", event_time="at", partitions=2)
    products = app.topic("products", schema=PRODUCTS, key="id", event_time="at")
    mine, theirs = hr.table(orders, key="id"), hr.table(products, key="id")
    joins: Joins = {
        "priced": hr.join_tables(mine, theirs, on={"product": "id"}, how="left", prefix="p_"),
        "both": hr.join_tables(mine, theirs, on={"product": "id"}, how="full", prefix="p_"),
    }
    for view, join in joins.items():
        app.view(view, join)
    return app, joins


class Feed:
    """Endless changes: mostly in order, some late, some deletions, some without an event time."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._moment = NOW - timedelta(hours=6)

    def commit(self, log: ScriptedLog) -> None:
        chance = self._random
        self._moment += chance.choice([1, 5, 15]) * SECOND
        topic = chance.choice(["orders", "orders", "products"])
        with log.log.producer() as producer, producer.transaction() as transaction:
            for _ in range(chance.randint(1, 6)):
                if chance.random() < 0.1:
                    transaction.send(topic, None, key=self._key(topic))
                else:
                    transaction.send(topic, self._row(topic))
        log.pass_time(4 * SECOND)

    def _key(self, topic: str) -> str:
        many = 40 if topic == "orders" else 5
        return f"{topic[0]}{self._random.randrange(many)}"

    def _row(self, topic: str) -> dict[str, Any]:
        chance = self._random
        at: datetime | None = self._moment - chance.choice([0, 0, 0, 1, 10, 300]) * SECOND
        if chance.random() < 0.05:
            at = chance.choice([None, NOW + timedelta(days=2)])
        row = {"id": self._key(topic), "at": at}
        if topic == "orders":
            product = self._key("products") if chance.random() < 0.95 else None
            return {**row, "product": product, "amount": chance.randint(1, 9)}
        price = f"{chance.randint(1, 9999) / 100:.2f}"
        return {**row, "name": chance.choice(["pen", "ink"]), "price": price}


def feed(log: ScriptedLog, source: Feed, commits: int) -> None:
    for _ in range(commits):
        source.commit(log)


def create_topics(log: ScriptedLog) -> None:
    for topic in declare("any")[0].topics.values():
        log.log.ensure_topic(topic)


def judge(name: str, results: Results) -> dict[str, Any]:
    """Check everything against the oracle; returns what must not depend on batches or crashes."""
    _, joins = declare(name)
    for view, join in joins.items():
        check(join, results, view)
    kept: dict[str, Any] = {view: results.view(view) for view in joins}
    return {**kept, "dead": sorted(map(repr, results.topic(f"{name}.dead")))}
