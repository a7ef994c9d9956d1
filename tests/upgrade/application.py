"""The log and the application of the upgrade fixtures.

Archives of older formats hold the state of exactly this application. Change nothing here that they
depend on; a new operator gets a new step, which the older archives then compute from the start.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

import headrace as hr
from headrace.schema.ddl import parse_schema
from headrace.testing import Results, ScriptedLog
from tests.property import tabling, test_tables
from tests.property.distinct import check_distinct
from tests.property.flagging import JUDGES, RULES, check_alerts
from tests.property.folding import check_stateful
from tests.property.joining import check_join
from tests.property.judging import (
    check_changelog,
    check_dead,
    check_late,
    check_law,
    check_published,
    check_view,
)

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
LATENESS = hr.Lateness(10 * SECOND, 60 * SECOND)
APP = "shop"

TOTALS = "shop string, rows bigint, spent bigint, at timestamp"


def totals(state: pa.Table, events: pa.Table) -> tuple[pa.Table, pa.Table]:
    """For each order, the number of orders of its shop so far, and their sum in cents."""
    known = {row["shop"]: row for row in state.to_pylist()}
    made = []
    for event in events.to_pylist():
        shop = event["shop"]
        before = known.get(shop, {"rows": 0, "spent": 0})
        spent = before["spent"] + int(event["price"] * 100)
        known[shop] = {"shop": shop, "rows": before["rows"] + 1, "spent": spent}
        made.append({**known[shop], "at": event["at"]})
    return (
        pa.Table.from_pylist(list(known.values()), state.schema),
        pa.Table.from_pylist(made, parse_schema(TOTALS)),
    )


def declare() -> hr.App:
    """One step of every kind that keeps state between runs."""
    app = hr.App(APP)
    orders = app.topic(
        "orders",
        schema="id string, shop string, item string, price decimal(10,2), at timestamp",
        key="shop",
        event_time="at",
        partitions=2,
    )
    payments = app.topic(
        "payments", schema="id string, card string, at timestamp", key="id", event_time="at"
    )
    users = app.topic(
        "users", schema="id string, name string, gone boolean, at timestamp", key="id",
        event_time="at",
    )  # fmt: skip
    tables = hr.table(users, key="id", deleted="gone")
    sales = hr.aggregate(
        hr.filter(orders, "item != 'gift'"),
        by="shop",
        window=hr.tumbling(60 * SECOND),
        lateness=LATENESS,
        orders=hr.count(),
        revenue=hr.sum("price"),
        first=hr.first("item"),
    )
    visits = hr.aggregate(
        orders,
        by="item",
        window=hr.session(20 * SECOND),
        lateness=LATENESS,
        emit="final",
        orders=hr.count(),
        dearest=hr.max("price"),
    )
    for name, step in {"sales": sales, "visits": visits}.items():
        app.view(name, step)
        app.publish(f"{APP}.{name}", step)
        app.publish(f"{APP}.{name}.late", step.late)
    paid = hr.join(
        orders, payments, on="id", before=5 * SECOND, after=60 * SECOND, how="full",
        delay=10 * SECOND, prefix="payment_",
    )  # fmt: skip
    once = hr.deduplicate(
        orders, by=["shop", "item"], ttl=40 * SECOND, keep="last", delay=30 * SECOND
    )
    running = hr.stateful(
        orders, totals, by="shop", state="rows bigint, spent bigint", output=TOTALS,
        delay=LATENESS.delay, ttl=300 * SECOND, buckets=2, version="1",
    )  # fmt: skip
    odd = hr.alerts(
        hr.select(orders, "shop", "at", "id", n="length(item)"),
        by="shop", event="id", within=30 * SECOND, delay=60 * SECOND, limit=6, rules=RULES,
    )  # fmt: skip
    kept: dict[str, hr.Join | hr.Deduplicated | hr.Stateful | hr.Alerts] = {
        "paid": paid, "once": once, "totals": running, "odd": odd
    }  # fmt: skip
    for topic, stream in kept.items():
        app.publish(f"{APP}.{topic}", stream)
        app.publish(f"{APP}.{topic}.late", stream.late)
    known = hr.enrich(
        orders, tables, on={"item": "id"}, wait=20 * SECOND, amend=60 * SECOND, prefix="item_"
    )
    app.publish(f"{APP}.known", known)
    mine = hr.table(payments, key="id")
    app.view("cards", hr.join_tables(mine, tables, on={"card": "id"}, how="left", prefix="user_"))
    return app


class Feed:
    """Endless commits, reproducible by seed: mostly in order, some late, some dead."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._moment = NOW - timedelta(hours=6)
        self._number = 0

    def commits(self, log: ScriptedLog, number: int) -> None:
        for _ in range(number):
            self._moment += self._random.choice([1, 5, 15]) * SECOND
            topic = self._random.choice(["orders", "orders", "payments", "users"])
            rows = [self._row(topic) for _ in range(self._random.randint(1, 5))]
            log.write(topic, *rows)
            log.pass_time(4 * SECOND)

    def _row(self, topic: str) -> dict[str, Any]:
        chance = self._random
        back = chance.choice([0, 0, 0, 1, 3, 10, 30, 90, 300])
        at: datetime | None = self._moment - back * SECOND
        if chance.random() < 0.05:
            at = chance.choice([None, NOW + timedelta(days=2)])
        match topic:
            case "orders":
                self._number += 1
                price = f"{chance.randint(1, 9999) / 100:.2f}"
                shop, item = chance.choice("abc"), chance.choice(["pen", "ink", "gift"])
                return {
                    "id": f"o{self._number}", "shop": shop, "item": item, "price": price, "at": at
                }  # fmt: skip
            case "payments":
                paid = chance.randint(max(1, self._number - 9), self._number + 2)
                return {"id": f"o{paid}", "card": chance.choice(["pen", "visa"]), "at": at}
            case _:
                who = chance.choice(["pen", "ink", "visa"])
                gone = chance.random() < 0.1
                return {"id": who, "name": chance.choice("xyz"), "gone": gone, "at": at}


def judge(app: hr.App, results: Results) -> None:
    """Compare every view, topic, changelog and law with the oracle's for the whole log."""
    orders = app.topics["orders"].schema
    for topic, output in app.outputs.items():
        match output.stream:
            case hr.Join() as step:
                check_join(topic, step, results, late=f"{topic}.late")
            case hr.Deduplicated() as step:
                check_distinct(topic, step, results, late=f"{topic}.late")
            case hr.Stateful() as step:
                check_stateful(topic, step, results, orders, late=f"{topic}.late")
            case hr.Alerts() as step:
                check_alerts(topic, step, JUDGES, results, late=f"{topic}.late")
            case hr.Enriched() as step:
                test_tables.check(step, results, topic)
            case hr.Aggregation() as step:
                check_published(topic, step, results)
                check_late(f"{topic}.late", step, results)
    for name, view in app.views.items():
        match view.stream:
            case hr.TableJoin() as join:
                tabling.check(join, results, name)
            case hr.Aggregation() as counted:
                check_view(name, counted, results)
                check_law(name, counted, results)
                check_dead(app.name, name, counted, results)
                check_changelog(f"{app.name}.{name}.changes", counted, results, name)
