"""Run a pipeline with a given amount of output, and report the memory of its driver.

    python -m tests.integration.growing FOLDER KIND ROWS

prints the peak memory of this process, the driver, in bytes.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

import headrace as hr
from headrace.application.run import Run
from headrace.clock import VirtualClock, to_micros
from headrace.log import Log, open_log
from headrace.plan.source_options import BatchLimits
from headrace.runtime.session import SparkSettings

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
AT_ONCE = 20_000
"""Rows per commit and per batch, for any total."""


def rows(log: Log, topic: str, count: int, **columns: Callable[[range], list[object]]) -> None:
    """Append `count` rows, with the event time NOW and columns computed from row numbers."""
    schema = log.topic(topic).topic.schema
    assert schema is not None
    with log.producer() as producer:
        for first in range(0, count, AT_ONCE):
            numbers = range(first, min(first + AT_ONCE, count))
            made = {name: make(numbers) for name, make in columns.items()}
            made.setdefault("at", [to_micros(NOW)] * len(numbers))
            arrays = [pa.array(made[f.name]).cast(f.type) for f in schema]
            producer.append(topic, pa.table(arrays, schema=schema))


def ids(numbers: range) -> list[object]:
    return list(numbers)


def same(numbers: range) -> list[object]:
    return [1] * len(numbers)


def count_events(state: pa.Table, events: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return a row for each event, and leave the state empty."""
    return state, events.select(["n", "at"])


def pairs(app: hr.App, log: Log, size: int) -> None:
    """Rows of one key on both sides, so that every left row pairs with every right row."""
    left = app.topic("left", schema="k int, n int, at timestamp", event_time="at")
    right = app.topic("right", schema="k int, m int, at timestamp", event_time="at")
    made = hr.join(left, right, on="k", after=SECOND, delay=SECOND, prefix="right_", how="left")
    app.publish("out", made)
    create(app, log)
    rows(log, "left", 100, k=same, n=ids)
    rows(log, "right", size // 100, k=same, m=ids)


def crowd(app: hr.App, log: Log, size: int) -> None:
    """One key with many rows on one side, and one row on the other that matches them all."""
    left = app.topic("left", schema="k int, n int, at timestamp", event_time="at")
    right = app.topic("right", schema="k int, m int, at timestamp", event_time="at")
    app.publish("out", hr.join(left, right, on="k", after=SECOND, delay=SECOND, prefix="right_"))
    create(app, log)
    rows(log, "left", size, k=same, n=ids)
    rows(log, "right", 1, k=same, m=ids)


def exploded(app: hr.App, log: Log, size: int) -> None:
    events = app.topic("events", schema="n int, many int, at timestamp", event_time="at")
    made = hr.explode(events, "sequence(1, many)", into="one")
    app.publish("out", made)
    create(app, log)
    rows(log, "events", 100, n=ids, many=lambda numbers: [size // 100] * len(numbers))


def known(app: hr.App, log: Log, size: int) -> None:
    """Rows that wait for a table, and become ready all at once."""
    events = app.topic("events", schema="k int, n int, at timestamp", event_time="at")
    users = app.topic("users", schema="id int, at timestamp", event_time="at", key="id")
    table = hr.table(users, key="id")
    made = hr.enrich(events, table, on={"k": "id"}, wait=SECOND, amend=SECOND, prefix="user_")
    app.publish("out", made)
    create(app, log)
    rows(log, "events", size, k=same, n=ids)
    rows(log, "users", 1, id=same)


def distinct(app: hr.App, log: Log, size: int) -> None:
    events = app.topic("events", schema="n int, at timestamp", event_time="at")
    app.publish("out", hr.deduplicate(events, by="n", ttl=SECOND, delay=SECOND))
    create(app, log)
    rows(log, "events", size, n=ids)


def folded(app: hr.App, log: Log, size: int) -> None:
    events = app.topic("events", schema="k int, n int, at timestamp", event_time="at")
    made = hr.stateful(
        events, count_events, by="k", state="seen int", output="n int, at timestamp",
        delay=SECOND, ttl=SECOND, order="arrival",
    )  # fmt: skip
    app.publish("out", made)
    create(app, log)
    rows(log, "events", size, k=ids, n=ids)


def tables(app: hr.App, log: Log, size: int) -> None:
    """Orders of one product, whose price changes."""
    orders = app.topic("orders", schema="id int, k int, at timestamp", event_time="at", key="id")
    items = app.topic("items", schema="k int, price int, at timestamp", event_time="at", key="k")
    made = hr.join_tables(
        hr.table(hr.select(orders, "id", "k"), key="id"),
        hr.table(hr.select(items, "k", "price"), key="k"),
        on="k",
        prefix="item_",
    )
    app.view("out", made)
    create(app, log)
    rows(log, "orders", size, id=ids, k=same)
    rows(log, "items", 1, k=same, price=same)


KINDS: dict[str, Callable[[hr.App, Log, int], None]] = {
    kind.__name__: kind for kind in (pairs, crowd, exploded, known, distinct, folded, tables)
}


def create(app: hr.App, log: Log) -> None:
    for topic in app.topics.values():
        log.ensure_topic(topic)


def peak() -> int:
    """The peak memory of this process in bytes."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) << 10


def main(folder: str, kind: str, size: str) -> None:
    with open_log(f"file:{folder}", clock=VirtualClock(NOW)) as log:
        app = hr.App("growing")
        KINDS[kind](app, log, int(size))
        with Run(
            app,
            log,
            until_caught_up=True,
            settings=SparkSettings(shuffle_partitions=2, brief=True),
            batch_limits=BatchLimits(max_rows=AT_ONCE),
        ) as running:
            running.wait()
        out = "growing.out.changes" if kind == "tables" else "out"
        published = sum(state.end for state in log.topic(out).partitions)
        assert published >= int(size), published
    print(peak())
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
