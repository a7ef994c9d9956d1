"""The cost of a change in joined tables, by table size and by the number of rows it touches."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

import headrace as hr
from bench.baselines import whole_join
from bench.measure import Progress, Result, cost, rate, seconds
from headrace.application.run import Run
from headrace.log import Log, open_log
from headrace.store.location import database_of

ORDERS = "id string, product string, amount int, at timestamp"
PRODUCTS = "id string, name string, price double, at timestamp"
PER_PRODUCT = 100
"""Orders per product, except the hot product."""

HOT = "hot"
PLAN = 50_000_000
_BEGIN = 1_767_225_600_000_000
_COMMIT_ROWS = 100_000


@dataclass(frozen=True)
class Sizes:
    """The sizes of the tables, and of the changes."""

    rows: tuple[int, ...]
    change: int
    touched: int
    rounds: int
    events: int
    """Rows of each stream, in the stream joins of this benchmark."""
    customers: int


FULL = Sizes((10_000, 100_000, 1_000_000), 100, 100_000, 7, 2_000_000, 100_000)
QUICK = Sizes((1_000, 2_000, 5_000), 100, 1_000, 2, 4_000, 100)


@dataclass(frozen=True)
class Measured:
    """The costs of tables of one size, in seconds and bytes."""

    rows: int
    load: float
    size: int
    orders: float
    product: float
    hot: float
    stored: float
    """The part of `orders` to join, publish and store, after Spark has read the change."""
    again: float


def table_table(
    spark: SparkSession, home: Path, sizes: Sizes, progress: Progress
) -> tuple[list[Result], dict[str, Any]]:
    """The results, and a plan for larger tables that is extrapolated from them."""
    _measure(spark, home / "warm", sizes.rows[0], sizes, lambda _: None)  # warm-up
    found = [_measure(spark, home / f"tables-{n}", n, sizes, progress) for n in sizes.rows]
    small, large = found[0], found[-1]
    results = [cost("table-table", "s", large.orders, whole_join.NAME, large.again)]
    for what, times in (
        ("orders", [m.orders for m in found]),
        ("product", [m.product for m in found]),
        ("orders_without_spark", [m.stored for m in found]),
    ):
        name = f"table-table_{sizes.change}_rows_by_{what}"
        for measured, spent in zip(found, times, strict=True):
            results.append(
                cost(f"{name}_of_{measured.rows}", "s", spent, whole_join.NAME, measured.again)
            )
        # The cost ratio of the same change over tables a hundred times as large.
        results.append(
            Result(
                f"{name}_growth",
                times[-1] / times[0],
                "times",
                "how many times the rows",
                large.rows / small.rows,
                (large.rows / small.rows) / (times[-1] / times[0]),
            )
        )
    touched = f"table-table_touching_{sizes.touched}"
    results.append(cost(touched, "s", large.hot, whole_join.NAME, large.again))
    results.append(
        rate("table-table_load", "rows/s", large.rows, large.load, whole_join.NAME, large.again)
    )
    return results, _plan(found, sizes)


def _measure(
    spark: SparkSession, folder: Path, rows: int, sizes: Sizes, progress: Progress
) -> Measured:
    progress(f"tables of {rows:,} rows")
    url, large = f"file:{folder}", rows == sizes.rows[-1]
    hot = sizes.touched if large else 0
    with open_log(url) as log:
        _fill(log, rows, hot)
        app = _app()
        load = seconds(lambda: hr.run(app, log, spark=spark))
        size = os.path.getsize(database_of(url, app.name))
        clock = _Clock(rows)
        watch = _Watch()
        with Run(app, log, spark=spark, crash_point=watch) as run:
            order = np.linspace(hot, rows - 1, sizes.change, dtype=np.int64)

            def change_orders() -> None:
                _append_orders(log, order, clock.tick(), amount=clock.ticks)

            def change_product(name: str) -> Callable[[], None]:
                return lambda: _append_products(log, [name], clock.tick(), price=clock.ticks)

            named = f"p{(rows - 1) // PER_PRODUCT:07d}"
            timed = [
                _best([_spent(run, watch, change) for _ in range(count)])
                for change, count in (
                    (change_orders, sizes.rounds),
                    (change_product(named), sizes.rounds),
                    (change_product(HOT), 3 if large else 0),
                )
                if count
            ]
        progress(f"the whole join of {rows:,} rows again")
        with hr.open_views(url) as views:
            there = views.state("priced").rows
        again = min(
            seconds(lambda: _same(whole_join.join(spark, url, folder / "joined"), there))
            for _ in range(2)
        )
    (orders, stored), (product, _), (touched, _) = (*timed, *([] if large else [(0.0, 0.0)]))
    return Measured(rows, load, size, orders, product, touched, stored, again)


def _plan(found: list[Measured], sizes: Sizes) -> dict[str, Any]:
    """The estimated cost of larger tables. The depth of a B-tree grows with the logarithm."""
    small, large = found[0], found[-1]
    depth = math.log10(PLAN / large.rows)
    # Spark reads a change in the same time whatever the tables' size, so only the rest grows.
    slope = (large.stored - small.stored) / math.log10(large.rows / small.rows)
    more = max(0.0, slope) * depth

    per_row = [m.load / m.rows for m in (found[-2], large)]
    slower = max(1.0, per_row[1] / per_row[0]) ** depth
    scale = PLAN / large.rows
    return {
        "rows": PLAN,
        "change_seconds": round(large.orders + more, 3),
        "product_change_seconds": round(large.product + more, 3),
        f"touching_{sizes.touched}_seconds": round(large.hot + more, 3),
        "database_gigabytes": round(large.size * scale / 1e9, 2),
        "first_load_hours": round(large.load * scale * slower / 3600, 2),
        "whole_join_again_seconds": round(large.again * scale, 1),
        "computed_from": f"{small.rows:,} to {large.rows:,} rows; a change grows with the "
        "logarithm of the rows, bytes and the whole join with the rows, the load with the rows "
        f"times {slower:.2f} for deeper trees",
    }


class _Clock:
    """A clock of event times after those of the initial rows."""

    def __init__(self, after: int) -> None:
        self._moment = _BEGIN + after * 1_000
        self.ticks = 0

    def tick(self) -> int:
        self.ticks += 1
        return self._moment + self.ticks * 1_000


class _Watch:
    """The times when a batch was last handed to its sink, and when it ended."""

    def __init__(self) -> None:
        self.handed = self.ended = 0.0

    def __call__(self, point: str) -> None:
        if point == "set aside":
            self.handed = time.perf_counter()
        elif point == "batch ended":
            self.ended = time.perf_counter()


def _spent(run: Run, watch: _Watch, change: Callable[[], None]) -> tuple[float, float]:
    """Seconds from a change in the log until it is stored and published, and those of the sink."""
    start = time.perf_counter()
    change()
    written = time.perf_counter()
    while watch.ended < start:
        run.wait(0.001)
    return watch.ended - written, watch.ended - watch.handed


def _best(times: list[tuple[float, float]]) -> tuple[float, float]:
    whole, stored = zip(*times, strict=True)
    return min(whole), min(stored)


def _same(found: int, there: int) -> None:
    assert found == there, (found, there)


def _app() -> hr.App:
    app = hr.App("joins")
    orders = app.topic("orders", schema=ORDERS, key="id", event_time="at", partitions=2)
    products = app.topic("products", schema=PRODUCTS, key="id", event_time="at")
    joined = hr.join_tables(
        hr.table(orders, key="id"),
        hr.table(products, key="id"),
        on={"product": "id"},
        how="left",
        prefix="product_",
    )
    app.view("priced", joined)
    return app


def _fill(log: Log, rows: int, hot: int) -> None:
    for topic in _app().topics.values():
        log.ensure_topic(topic)
    names = [HOT, *(f"p{n:07d}" for n in range(-(-rows // PER_PRODUCT)))]
    for first in range(0, len(names), _COMMIT_ROWS):
        _append_products(log, names[first : first + _COMMIT_ROWS], _BEGIN, price=1)
    for first in range(0, rows, _COMMIT_ROWS):
        numbers = np.arange(first, min(rows, first + _COMMIT_ROWS), dtype=np.int64)
        _append_orders(log, numbers, _BEGIN, amount=0, hot=hot)


def _append_orders(
    log: Log, numbers: np.ndarray[Any, Any], moment: int, *, amount: int, hot: int = 0
) -> None:
    products = [HOT if n < hot else f"p{n // PER_PRODUCT:07d}" for n in numbers.tolist()]
    columns = [
        pa.array([f"o{n:09d}" for n in numbers.tolist()]),
        pa.array(products),
        pa.array(np.full(len(numbers), amount, np.int32)),
        _moments(len(numbers), moment),
    ]
    batch = pa.record_batch(columns, names=["id", "product", "amount", "at"])
    with log.producer() as producer:
        producer.append("orders", batch)


def _append_products(log: Log, names: list[str], moment: int, *, price: int) -> None:
    columns = [
        pa.array(names),
        pa.array([f"the product {name}" for name in names]),
        pa.array(np.full(len(names), float(price))),
        _moments(len(names), moment),
    ]
    batch = pa.record_batch(columns, names=["id", "name", "price", "at"])
    with log.producer() as producer:
        producer.append("products", batch)


def _moments(count: int, moment: int) -> pa.Array:
    return pa.array(np.full(count, moment)).cast(pa.timestamp("us", tz="UTC"))
