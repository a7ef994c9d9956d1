"""The log, the application and the rows of the soak."""

from __future__ import annotations

import json
import random
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

import headrace as hr
from headrace.clock import SystemClock, to_datetime
from headrace.log import Log

SECOND = timedelta(seconds=1)
LATENESS = hr.Lateness(2 * SECOND, 10 * SECOND)
SIZE = 10 * SECOND
APP, VIEW = "soak", "sales"
ORDERS, RELAYED, RATES, NOISE = "orders", "relayed", "rates", "noise"
SCHEMA = "id string, shop string, price decimal(10,2), at timestamp"
GROUP = "relays"
SESSION = 3 * SECOND
ROWS = 5
KEYS = 5
MODES = {"appender": "append", "sender": "send", "banker": "transaction"}
"""Producers by name. Only transactions write to all topics."""


def make_log(log: Log, folder: Path) -> None:
    """Create topics that are tiered, compacted and cut by retention while they are written."""
    tier = {"segment_bytes": "64KiB", "tier": (folder / "tier").as_uri()}
    log.create_topic(
        ORDERS, partitions=3, schema=SCHEMA, key="shop", event_time="at", settings=tier
    )
    log.create_topic(RELAYED, partitions=2, settings={"segment_bytes": "256KiB"})
    log.create_topic(RATES, partitions=2, settings={"cleanup": "compact", "segment_bytes": "4KiB"})
    log.create_topic(
        NOISE, partitions=2, settings={"retention_bytes": "32KiB", "segment_bytes": "8KiB"}
    )


def declare() -> tuple[hr.App, hr.Aggregation]:
    """A windowed count with a view, its changelog, its late rows, and a published topic."""
    app = hr.App(APP)
    orders = app.topic(ORDERS, schema=SCHEMA, key="shop", event_time="at", partitions=3)
    sales = hr.aggregate(
        orders, by="shop", window=hr.tumbling(SIZE), lateness=LATENESS,
        orders=hr.count(), revenue=hr.sum("price"),
    )  # fmt: skip
    app.view(VIEW, sales)
    app.publish(f"{APP}.{VIEW}", sales)
    app.publish(f"{APP}.{VIEW}.late", sales.late)
    return app, sales


def orders(producer: str, number: int) -> list[dict[str, Any]]:
    """A batch of orders: mostly current, some late, some without a time or ahead of the clock."""
    chance = random.Random(f"{producer}/{number}")
    now = to_datetime(SystemClock().now())
    rows = []
    for row in range(ROWS):
        at = now - chance.choice([0, 0, 0, 1, 5, 15, 60]) * SECOND
        missing = chance.random() < 0.02
        rows.append(
            {
                "id": f"{producer}/{number}/{row}",
                "shop": chance.choice("abcdef"),
                "price": Decimal(chance.randint(1, 9999)).scaleb(-2),
                "at": chance.choice([None, now + timedelta(days=2)]) if missing else at,
            }
        )
    return rows


def rate(producer: str, number: int) -> tuple[str, str | None]:
    """The key and value of a batch's record in the compacted topic; None is a tombstone."""
    return f"{producer}/{number % KEYS}", None if number % 7 == 3 else str(number)


def noise(producer: str, number: int) -> pa.Table:
    """A batch for the topic with retention."""
    values = [json.dumps([producer, number, row]) for row in range(ROWS)]
    keys = [f"{producer}/{row}" for row in range(ROWS)]
    return pa.table({"key": pa.array(keys), "value": pa.array(values)})
