"""A lookup table in real time: the newest version of each key."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import headrace as hr
from headrace.runtime.realtime.reading import newest
from tests import spark

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
RECORDS = "key binary, value binary, partition int, offset bigint, timestamp timestamp"


def cards(**more: Any) -> hr.Table:
    schema = "card string, limit int, since timestamp"
    topic = hr.App("cards").topic("cards", schema=schema, key="card", event_time="since")
    return hr.table(topic, key="card", **more)


def change(card: str, limit: int | None, minute: int) -> tuple[bytes, bytes]:
    since = (NOON + timedelta(minutes=minute)).isoformat()
    return card.encode(), json.dumps({"card": card, "limit": limit, "since": since}).encode()


def seen(table: hr.Table, *changes: tuple[bytes, bytes | None]) -> dict[str, int]:
    now = NOON + timedelta(hours=1)
    rows = [(key, value, 0, offset, now) for offset, (key, value) in enumerate(changes)]
    found = newest(spark.shared().createDataFrame(rows, RECORDS), table).collect()
    assert len({row["card"] for row in found}) == len(found)
    return {row["card"]: row["limit"] for row in found}


def test_the_version_that_is_valid_last_counts_and_not_the_one_that_came_last() -> None:
    assert seen(cards(), change("a", 1, 1), change("a", 3, 3), change("a", 2, 2)) == {"a": 3}


def test_a_tombstone_ends_what_was_before_it_and_not_what_comes_after() -> None:
    changes = (change("a", 1, 1), change("b", 1, 1), (b"a", None), (b"b", None), change("b", 2, 2))
    assert seen(cards(), *changes) == {"b": 2}


def test_a_row_that_says_so_ends_its_key() -> None:
    changes = (change("a", 1, 1), change("a", None, 2), change("b", 1, 1))
    assert seen(cards(deleted="limit IS NULL"), *changes) == {"b": 1}


def test_what_does_not_decode_leaves_the_version_before_it_in_place() -> None:
    assert seen(cards(), change("a", 1, 1), (b"a", b"{nothing"), (b"c", b"\xff")) == {"a": 1}
