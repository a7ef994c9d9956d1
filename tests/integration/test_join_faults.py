"""Faulty rows in joins: repeated versions, deletions, null keys and dead letters."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import headrace as hr
from headrace.testing import Results, ScriptedLog, scripted_log
from tests.spark import shared

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)

app = hr.App("shop")
orders = app.topic("orders", schema="id int, who string, at timestamp", event_time="at")
users = app.topic("users", schema="name string, tier string, at timestamp", event_time="at")
ended = app.topic(
    "ended", schema="name string, tier string, at timestamp", event_time="at", key="name"
)
for topic, table in (("placed", users), ("kept", ended)):
    app.publish(
        topic,
        hr.enrich(
            orders, hr.table(table, key="name"), on={"who": "name"}, wait=MINUTE, prefix="user_"
        ),
    )


@pytest.fixture
def log() -> Iterator[ScriptedLog]:
    with scripted_log(start=NOON + timedelta(hours=2)) as log:
        for topic in app.topics.values():
            log.log.ensure_topic(topic)
        yield log


def user(name: str | None, tier: str, minute: float) -> dict[str, Any]:
    return {"name": name, "tier": tier, "at": NOON + minute * MINUTE}


def order(number: int, who: str | None, minute: float) -> dict[str, Any]:
    return {"id": number, "who": who, "at": NOON + minute * MINUTE}


def tiers(results: Results, topic: str) -> dict[int, str | None]:
    return {row["id"]: row["user_tier"] for row in results.topic(topic)}


def test_versions_that_are_twice_that_never_were_or_have_no_key(log: ScriptedLog) -> None:
    # The same time twice, in one commit and in two: the last version in the log wins.
    log.write("users", user("ann", "basic", 0), user("ann", "gold", 0))
    log.write("users", user("ann", "black", 0), user(None, "lost", 0))
    # A deletion before any version, and a version after it.
    with log.log.producer() as producer, producer.transaction() as transaction:
        transaction.send("ended", None, key="bob")
    log.write("ended", user("bob", "basic", 3))
    # A history that was not compacted: each order has the version of its time.
    log.write("ended", *(user("cleo", f"tier {n}", n) for n in range(20)))
    log.write("orders", order(1, "ann", 1), order(2, "bob", 2), order(3, "bob", 4))
    log.write("orders", order(4, None, 5), order(5, "zoe", 5), order(6, "cleo", 7.5))
    log.write("orders", order(7, "zoe", 30))
    results = log.run(app, spark=shared())

    placed, kept = tiers(results, "placed"), tiers(results, "kept")
    assert [placed[n] for n in (1, 4, 5)] == ["black", None, None]
    assert [kept[n] for n in (2, 3, 4, 5, 6)] == [None, "basic", None, None, "tier 7"]
    (letter,) = results.topic("shop.dead")
    assert (letter["topic"], letter["reason"]) == ("users", "no key")
    assert results.law("placed").holds
    assert results.law("kept").holds
