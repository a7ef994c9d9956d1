"""Retention may delete rows of a table that were read: lookups keep their own copy."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import headrace as hr
from headrace.testing import scripted_log
from tests.spark import shared

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


@pytest.mark.parametrize("amend", [None, HOUR])
def test_rows_of_a_table_that_were_read_may_be_gone(amend: timedelta | None) -> None:
    app = hr.App("shop")
    orders = app.topic("orders", schema="id int, who string, at timestamp", event_time="at")
    changes = app.topic(
        "customers",
        schema="who string, tier string, since timestamp",
        event_time="since",
        key="who",
        settings={"segment_age": "1m", "retention": "1h"},
    )
    table = hr.table(changes, key="who")
    app.publish("out", hr.enrich(orders, table, on="who", wait=HOUR, amend=amend))

    def order(number: int, minute: int) -> dict[str, Any]:
        return {"id": number, "who": "ann", "at": NOON + minute * MINUTE}

    def customer(who: str, tier: str, minute: int) -> dict[str, Any]:
        return {"who": who, "tier": tier, "since": NOON + minute * MINUTE}

    with scripted_log(start=NOON) as log:
        log.write(changes, customer("ann", "gold", 0))
        log.write(orders, order(1, 10))  # waits for the table
        log.write(orders, order(2, 0))
        results = log.run(app, spark=shared())
        assert [row["id"] for row in results.topic("out")] == [2]
        log.pass_time(2 * HOUR)
        log.write(changes, customer("bob", "basic", 125))
        log.log.upkeep("customers")
        assert log.log.topic("customers").partitions[0].first == 1, "what is of ann is gone"
        log.write(orders, order(3, 125))
        results = log.run(app, spark=shared())
        assert [(row["id"], row["tier"]) for row in results.topic("out")] == [
            (2, "gold"),
            (1, "gold"),
            (3, "gold"),
        ]
        assert results.law("out").waiting == 0
