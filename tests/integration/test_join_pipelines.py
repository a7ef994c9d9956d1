"""The reference designs with joins: their results for a few rows."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

import headrace as hr
from headrace.errors import PipelineFailed
from headrace.testing import ScriptedLog, scripted_log
from pipelines import impressions, orders
from tests.spark import shared

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def log() -> Iterator[ScriptedLog]:
    with scripted_log(start=NOON + timedelta(days=1)) as log:
        yield log


def shown(ad: str, user: str, minute: float) -> dict[str, Any]:
    return {"ad": ad, "user": user, "at": NOON + minute * MINUTE}


def test_an_impression_is_told_of_with_its_click_or_without_one(log: ScriptedLog) -> None:
    log.write(impressions.shown, shown("pens", "ann", 0), shown("pens", "bob", 1))
    log.write(impressions.clicks, shown("pens", "ann", 3), shown("pens", "cleo", 4))
    results = log.run(impressions.app, spark=shared())
    (pair,) = results.topic("impressions.clicked")
    assert (pair["user"], pair["click_at"]) == ("ann", NOON + 3 * MINUTE)
    assert pair["joined_at"] == NOON + 3 * MINUTE

    log.write(impressions.clicks, shown("ink", "dan", 62))
    assert len(log.run(impressions.app, spark=shared()).topic("impressions.clicked")) == 1
    log.write(impressions.clicks, shown("ink", "eve", 64), shown("ink", "fay", 5))
    results = log.run(impressions.app, spark=shared())
    published = results.topic("impressions.clicked")
    assert [(row["user"], row["click_at"]) for row in published[1:]] == [("bob", None)]
    assert published[1]["joined_at"] == NOON + 61 * MINUTE

    log.write(impressions.clicks, shown("pens", "bob", 2))
    results = log.run(impressions.app, spark=shared())
    assert results.topic("impressions.clicked") == published
    assert [(row["side"], row["user"]) for row in results.topic("impressions.late")] == [
        ("right", "fay"),
        ("right", "bob"),
    ]


def customer(name: str, tier: str, minute: float) -> dict[str, Any]:
    since = NOON + minute * MINUTE
    return {"customer": name, "tier": tier, "country": "nl", "since": since}


def order(number: int, name: str, minute: float) -> dict[str, Any]:
    at = NOON + minute * MINUTE
    return {"order_id": number, "customer": name, "amount": Decimal("9.50"), "at": at}


def tiers(rows: list[dict[str, Any]]) -> list[tuple[int, str | None]]:
    return [(row["order_id"], row["customer_tier"]) for row in rows]


def test_an_order_has_the_customer_of_its_time(log: ScriptedLog) -> None:
    log.write(orders.changes, customer("ann", "basic", 0), customer("ann", "gold", 10))
    log.write(orders.orders, order(1, "ann", 5), order(2, "ann", 10), order(3, "bob", 6))
    results = log.run(orders.app, spark=shared())
    assert sorted(tiers(results.topic("orders.enriched"))) == [(1, "basic"), (2, "gold"), (3, None)]


def test_it_makes_no_difference_in_how_many_rounds_the_customers_came(log: ScriptedLog) -> None:
    for n, tier in enumerate(["basic", "gold", "black"]):
        log.write(orders.changes, customer("ann", tier, 10 * n))
        log.write(orders.orders, order(n, "ann", 10 * n))
    results = log.run(orders.app, spark=shared(), max_commits=1)
    assert tiers(results.topic("orders.enriched")) == [(0, "basic"), (1, "gold"), (2, "black")]


def test_an_order_waits_for_the_customers_and_not_for_ever(log: ScriptedLog) -> None:
    log.write(orders.changes, customer("ann", "basic", 0))
    log.write(orders.orders, order(1, "ann", 5))
    results = log.run(orders.app, spark=shared())
    assert results.topic("orders.enriched") == []
    assert results.law("orders.enriched").waiting == 1

    log.write(orders.changes, customer("ann", "gold", 4), customer("zoe", "basic", 5))
    log.write(orders.orders, order(2, "ann", 7))
    assert tiers(log.run(orders.app, spark=shared()).topic("orders.enriched")) == [(1, "gold")]

    log.write(orders.orders, order(3, "ann", 8))
    results = log.run(orders.app, spark=shared())
    assert tiers(results.topic("orders.enriched")) == [(1, "gold"), (2, "gold")]


def test_a_change_that_comes_late_amends_what_was_told(log: ScriptedLog) -> None:
    log.write(orders.changes, customer("ann", "basic", 0), customer("ann", "gold", 60))
    log.write(orders.orders, order(1, "ann", 5), order(2, "ann", 40))
    first = log.run(orders.app, spark=shared()).topic("orders.enriched")
    assert sorted(tiers(first)) == [(1, "basic"), (2, "basic")]
    log.write(orders.changes, customer("ann", "silver", 30))
    published = log.run(orders.app, spark=shared()).topic("orders.enriched")
    assert tiers(published[2:]) == [(2, "silver")]
    was = next(row for row in first if row["order_id"] == 2)
    assert published[2]["row"] == was["row"]
    assert published[2]["revision"] > was["revision"]
    # More than an hour behind the newest change, it is not corrected.
    log.write(orders.changes, customer("ann", "bronze", -1))
    assert len(log.run(orders.app, spark=shared()).topic("orders.enriched")) == 3


def test_a_tombstone_ends_a_customer(log: ScriptedLog) -> None:
    log.write(orders.changes, customer("ann", "basic", 0), customer("bob", "basic", 5))
    with log.log.producer() as producer:
        producer.send("customers", None, key="ann")
    log.write(orders.changes, customer("bob", "gold", 20))
    log.write(orders.orders, order(1, "ann", 4), order(2, "ann", 5), order(3, "ann", 6))
    published = log.run(orders.app, spark=shared()).topic("orders.enriched")
    assert sorted(tiers(published)) == [(1, "basic"), (2, None), (3, None)]


def test_a_table_can_be_compacted_before_it_is_read(log: ScriptedLog) -> None:
    for minute, tier in enumerate(("basic", "silver", "gold")):
        log.write(orders.changes, customer("ann", tier, minute), customer(tier, tier, minute))
    log.log.compact("customers")
    log.write(orders.changes, customer("ann", "black", 30))
    log.write(orders.orders, order(1, "ann", 1), order(2, "ann", 2), order(3, "ann", 31))
    log.write(orders.changes, customer("bob", "basic", 40))
    results = log.run(orders.app, spark=shared())
    law = results.law("orders.enriched")
    assert law.holds
    assert law.compacted == 2
    # Versions that were compacted away are unknown, and the remaining ones are used.
    published = sorted(tiers(results.topic("orders.enriched")))
    assert published == [(1, None), (2, "gold"), (3, "black")]


def tiers_of(keys: Sequence[str]) -> dict[str, dict[str, str]]:
    assert len(set(keys)) == len(keys)
    return {key: {"tier": f"{key}'s"} for key in keys if key != "nobody"}


def slowly(keys: Sequence[str]) -> dict[str, dict[str, str]]:
    threading.Event().wait(5)
    return {}


def wrongly(keys: Sequence[str]) -> dict[str, dict[str, str]]:
    raise ValueError(f"no answer for {keys[0]}")


def asking(fetch: Any, how: Any = "left") -> hr.App:
    app = hr.App("asking")
    placed = app.topic("orders", schema=ORDERS, event_time="at")
    known = hr.remote(
        fetch, schema="name string, tier string", key="name", timeout=timedelta(seconds=1)
    )
    app.publish("asked", hr.enrich(placed, known, on={"customer": "name"}, how=how))
    return app


ORDERS = "order_id long, customer string, amount decimal(10, 2), at timestamp"


def test_a_remote_table_is_asked_for_each_key_once(log: ScriptedLog) -> None:
    log.log.ensure_topic(asking(tiers_of).topics["orders"])
    log.write("orders", *(order(n, name, n) for n, name in enumerate(["ann", "bob", "ann"])))
    log.write("orders", order(3, "nobody", 4), {**order(4, "x", 5), "customer": None})
    results = log.run(asking(tiers_of), spark=shared())
    published = sorted((row["order_id"], row["tier"]) for row in results.topic("asked"))
    assert published == [(0, "ann's"), (1, "bob's"), (2, "ann's"), (3, None), (4, None)]
    assert results.law("asked").holds


def test_what_a_remote_table_does_not_know_is_left_out_and_counted(log: ScriptedLog) -> None:
    app = asking(tiers_of, how="inner")
    log.log.ensure_topic(app.topics["orders"])
    log.write("orders", order(1, "ann", 1), order(2, "nobody", 2))
    results = log.run(app, spark=shared())
    assert [row["order_id"] for row in results.topic("asked")] == [1]
    assert results.law("asked").filtered == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fetch", "message"),
    [(slowly, "slowly did not answer for 1 keys within 1 s"), (wrongly, "no answer for ann")],
)
def test_a_remote_table_that_fails_stops_the_pipeline(
    log: ScriptedLog, fetch: Any, message: str
) -> None:
    app = asking(fetch)
    log.log.ensure_topic(app.topics["orders"])
    log.write("orders", order(1, "ann", 1))
    with pytest.raises(PipelineFailed, match=message):
        log.run(app, spark=shared())


def test_the_latest_version_is_what_is_known_when_a_row_is_read(log: ScriptedLog) -> None:
    app = hr.App("latest")
    placed = app.topic("orders", schema=ORDERS, event_time="at")
    changes = app.topic("customers", schema=CUSTOMERS, event_time="since", key="customer")
    table = hr.table(changes, key="customer")
    app.publish("now", hr.enrich(placed, table, on="customer", mode="latest", prefix="customer_"))
    log.write(changes, customer("ann", "gold", 10), customer("ann", "basic", 0))
    log.write(placed, order(1, "ann", 5))
    assert tiers(log.run(app, spark=shared()).topic("now")) == [(1, "gold")]
    log.write(changes, customer("ann", "black", 60))
    log.write(placed, order(2, "ann", 5))
    results = log.run(app, spark=shared())
    assert tiers(results.topic("now")) == [(1, "gold"), (2, "black")]
    assert results.law("now").holds


CUSTOMERS = "customer string, tier string, country string, since timestamp"
