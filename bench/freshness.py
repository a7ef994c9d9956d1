"""Latency from the commit of an event until a view shows it, against hand-written PySpark.

Both count page views by minute and url into SQLite, with the same session, source and load. Another
process appends every 50 ms and watches the rows that a reader sees. For each rate the two sides
take turns, each turn on a new log, and their times are pooled: `p50` and `p99` cover all commits
except those of the first seconds of a turn. Java gets faster for minutes, so both sides first warm
up, and then each goes first equally often.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import SparkSession

import headrace as hr
from bench.baselines import hand_written
from bench.load import PROBE
from bench.measure import Progress, Result, cost, report
from headrace.log import open_log
from headrace.runtime.session import spark_session
from headrace.store.location import views_folder

SCHEMA = "url string, user string, at timestamp"
TOPIC = "pageviews"
PARTITIONS = 2
RATES = (1_000, 10_000)
DELAY = timedelta(seconds=10)
MINUTE = timedelta(minutes=1)


def run(*, quick: bool = False, progress: Progress = lambda _: None) -> dict[str, Any]:
    """Run the benchmark; `quick` takes a few seconds for each part, as a smoke test."""
    turns, length, skip = (1, 3.0, 1.0) if quick else (4, 20.0, 5.0)
    settings = {
        "rates": list(RATES),
        "partitions": PARTITIONS,
        "turns": turns,
        "seconds_per_turn": length,
        "skipped_seconds": skip,
    }
    results = []
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        home = Path(folder)
        spark = spark_session(log_file=home / "spark.log")
        progress("warming up")
        for side in (_ours, _by_hand):
            _turn(side(spark, home), RATES[0], length, skip)
        for rate in RATES:
            waits: dict[str, list[float]] = {"ours": [], "by hand": []}
            for turn in range(turns):
                progress(f"{rate:,} events/s, turn {turn + 1} of {turns}")
                sides = [("ours", _ours), ("by hand", _by_hand)]
                for name, side in sides if turn % 2 else reversed(sides):
                    waits[name] += _turn(side(spark, home), rate, length, skip)
            ours, by_hand = waits.values()
            results += [_result(rate, share, ours, by_hand) for share in (50, 99)]
    return report("freshness", settings, results)


def _result(rate: int, share: int, ours: list[float], by_hand: list[float]) -> Result:
    mine, theirs = (float(np.percentile(waits, share)) for waits in (ours, by_hand))
    return cost(f"freshness_{rate}_p{share}", "ms", mine, hand_written.NAME, theirs)


Side = contextlib.AbstractContextManager[tuple[str, Path, str]]
"""A side of the comparison: its log, its database, and how to count PROBE there."""

_numbers = itertools.count()


@contextlib.contextmanager
def _ours(spark: SparkSession, home: Path) -> Iterator[tuple[str, Path, str]]:
    url = _new_log(home)
    app = hr.App("fresh")
    views = app.topic(TOPIC, schema=SCHEMA, key="url", event_time="at", partitions=PARTITIONS)
    hits = hr.aggregate(
        views,
        by="url",
        window=hr.tumbling(MINUTE),
        lateness=hr.Lateness(delay=DELAY, grace=timedelta(0)),
        hits=hr.count(),
    )
    app.view("hits", hits, key=["url", "window_start"])
    with hr.start(app, url, spark=spark) as running:
        try:
            yield url, views_folder(url) / "fresh.db", "hits"
        finally:
            running.wait(0)  # raises its error, if it has failed


@contextlib.contextmanager
def _by_hand(spark: SparkSession, home: Path) -> Iterator[tuple[str, Path, str]]:
    url = _new_log(home)
    folder = home / f"by-hand-{next(_numbers)}"
    query = hand_written.start(
        spark, url, TOPIC, folder, size=MINUTE, every=MINUTE, delay=DELAY, until_caught_up=False
    )
    try:
        yield url, folder / "hits.db", "hits"
    finally:
        query.stop()


def _turn(side: Side, rate: int, length: float, skip: float) -> list[float]:
    """The milliseconds from each commit until it was visible."""
    with side as (url, database, table):
        query = f"SELECT sum(hits) FROM {table} WHERE url = '{PROBE}'"
        words = [url, TOPIC, str(rate), str(length), str(skip), str(database), query]
        root = Path(__file__).resolve().parents[1]
        done = subprocess.run(
            [sys.executable, "-m", "bench.load", *words],
            cwd=root,
            stdout=subprocess.PIPE,
            check=True,
        )
        waits: list[float] = json.loads(done.stdout)
        return waits


def _new_log(home: Path) -> str:
    url = f"file:{home / f'log-{next(_numbers)}'}"
    with open_log(url) as log:
        log.create_topic(TOPIC, partitions=PARTITIONS, schema=SCHEMA, key="url", event_time="at")
    return url
