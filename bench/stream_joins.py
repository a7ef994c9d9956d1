"""A join of two streams, and of a stream with a table, against hand-written PySpark."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

import headrace as hr
from bench.baselines import joined
from bench.measure import Progress, Result, best_of, rate, seconds
from headrace.application.run import Run
from headrace.clock import to_datetime
from headrace.log import Log, open_log
from headrace.plan.source_options import BatchLimits

DELAY = timedelta(seconds=10)
AFTER = timedelta(minutes=10)
SHOWN = "ad long, user long, at timestamp"
CLICKS = "ad long, price double, at timestamp"
ORDERS = "order_id long, customer long, amount double, at timestamp"
CUSTOMERS = "customer long, tier string, since timestamp"
EVENTS_PER_SECOND = 200
BATCHES = 4
BEGIN = 1_767_225_600_000_000
PAIRS = "ad long, user long, at timestamp, click_at timestamp, price double, joined_at timestamp"
FOUND = "order_id long, customer long, amount double, at timestamp, tier string"

_numbers = itertools.count()


@dataclass(frozen=True)
class StreamJoins:
    """The joins over one log. `events` is the number of rows of each stream."""

    spark: SparkSession
    folder: Path
    events: int
    customers: int

    @property
    def url(self) -> str:
        return f"file:{self.folder}"

    def measure(self, rounds: int, progress: Progress) -> list[Result]:
        """Events/s until each join has caught up."""
        progress("logs for joins of streams")
        self._fill()
        results = []
        progress("stream-stream")
        ours, by_hand = best_of(rounds, self._pairs, self._pairs_by_hand)
        name = "stream-stream"
        results.append(rate(name, "events/s", 2 * self.events, ours, joined.NAME, by_hand))
        progress("stream-table")
        ours, by_hand = best_of(rounds, self._looked_up, self._looked_up_by_hand)
        results.append(rate("stream-table", "events/s", self.events, ours, joined.NAME, by_hand))
        return results

    def _pairs(self) -> float:
        app = hr.App(f"pairs-{next(_numbers)}")
        shown = app.topic("shown", schema=SHOWN, event_time="at", partitions=2)
        clicks = app.topic("clicks", schema=CLICKS, event_time="at", partitions=2)
        pairs = hr.join(
            shown, hr.select(clicks, "ad", "price", click_at="at"), on="ad", after=AFTER,
            delay=DELAY,
        )  # fmt: skip
        app.publish(f"{app.name}.out", pairs)
        return self._run(app, 2 * self.events)

    def _looked_up(self) -> float:
        app = hr.App(f"found-{next(_numbers)}")
        orders = app.topic("orders", schema=ORDERS, event_time="at", partitions=2)
        changes = app.topic("customers", schema=CUSTOMERS, event_time="since", key="customer")
        table = hr.table(hr.select(changes, "customer", "tier"), key="customer")
        found = hr.enrich(orders, table, on="customer", wait=DELAY)
        app.publish(f"{app.name}.out", found)
        return self._run(app, self.events + 2 * self.customers)

    def _run(self, app: hr.App, rows: int) -> float:
        def work() -> None:
            with Run(
                app,
                self.url,
                until_caught_up=True,
                spark=self.spark,
                batch_limits=self._batch_limits(),
            ) as run:
                run.wait()
                (step,) = run.progress()
            assert step.law.rows == rows, step.law

        spent = seconds(work)
        with open_log(self.url, create=False) as log:
            self._check(log, f"{app.name}.out")
        return spent

    def _pairs_by_hand(self) -> float:
        out = self._topic(PAIRS, "joined_at")
        folder = self.folder.parent / f"by-hand-{out}"
        rows = self._batch_limits().max_rows
        return self._by_hand(
            out,
            lambda: joined.streams(
                self.spark, self.url, "shown", "clicks", out, folder,
                after=AFTER, delay=DELAY, max_rows=rows,
            ).awaitTermination(),
        )  # fmt: skip

    def _looked_up_by_hand(self) -> float:
        out = self._topic(FOUND, "at")
        folder = self.folder.parent / f"by-hand-{out}"
        rows = self._batch_limits().max_rows
        return self._by_hand(
            out,
            lambda: joined.table(
                self.spark, self.url, "orders", "customers", out, folder, max_rows=rows
            ).awaitTermination(),
        )

    def _by_hand(self, out: str, work: Callable[[], object]) -> float:
        spent = seconds(work)
        self.spark.catalog.clearCache()
        with open_log(self.url, create=False) as log:
            self._check(log, out)
        return spent

    def _topic(self, schema: str, time: str) -> str:
        name = f"out-{next(_numbers)}"
        with open_log(self.url, create=False) as log:
            log.create_topic(name, schema=schema, event_time=time, partitions=2)
        return name

    def _check(self, log: Log, topic: str) -> None:
        """Check that the output has about one row per event, then delete it."""
        count = sum(p.end - p.first for p in log.topic(topic).partitions)
        assert 0.99 * self.events <= count <= self.events, f"{count:,} rows in {topic}"
        log.delete_topic(topic)

    def _batch_limits(self) -> BatchLimits:
        return BatchLimits(max_rows=max(1, self.events // BATCHES))

    def _fill(self) -> None:
        random = np.random.default_rng(1)
        order = np.arange(self.events, dtype=np.int64)
        at = BEGIN + order * (1_000_000 // EVENTS_PER_SECOND)
        waited = random.integers(0, 500_000_000, self.events)
        clicked = np.argsort(at + waited, kind="stable")
        customers = np.arange(self.customers, dtype=np.int64)
        both = np.concatenate([customers, customers])
        since = np.repeat([BEGIN - 1_000_000, (at[-1] + BEGIN) // 2], self.customers)
        tiers = pa.array(["basic"] * self.customers + ["gold"] * self.customers)
        with open_log(self.url) as log, log.producer(acks="written") as producer:
            log.create_topic("customers", schema=CUSTOMERS, event_time="since", key="customer")
            table = {"customer": both, "tier": tiers, "since": _times(since)}
            for first in range(0, len(both), 100_000):
                part = {name: column[first : first + 100_000] for name, column in table.items()}
                producer.append("customers", pa.record_batch(part))
            log.advance("customers", to_datetime(int(at[-1])))
            for topic, schema in (("shown", SHOWN), ("clicks", CLICKS), ("orders", ORDERS)):
                log.create_topic(topic, schema=schema, event_time="at", partitions=2)
            prices, users = random.random(self.events), random.integers(0, 100_000, self.events)
            buyers = random.integers(0, self.customers, self.events)
            for first in range(0, self.events, 50_000):
                some = slice(first, first + 50_000)
                shown = {"ad": order[some], "user": users[some], "at": _times(at[some])}
                producer.append("shown", pa.record_batch(shown))
                these = clicked[some]
                then = _times((at + waited)[these])
                clicks = {"ad": order[these], "price": prices[some], "at": then}
                producer.append("clicks", pa.record_batch(clicks))
                orders = {
                    "order_id": order[some],
                    "customer": buyers[some],
                    "amount": prices[some],
                    "at": _times(at[some]),
                }
                producer.append("orders", pa.record_batch(orders))


def _times(moments: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Array:
    return pa.array(moments).cast(pa.timestamp("us", tz="UTC"))
