"""Latency from a transaction to its alert: real time against micro-batches.

The pipeline is `pipelines/fraud.py`, unchanged. `headrace run` runs it in its own process, in real
time and in micro-batches, each on a broker that the benchmark starts. Micro-batches first copy
records from Kafka to a log with commits. Another process sends transactions at a steady rate, some
of them fraudulent, and measures the time until it sees each alert. It also computes independently
which transactions must be flagged: `recall` is 1 if none is missing. Each run warms up first, since
Java gets faster for minutes.

`highest rate` is the highest tried rate with a p99 of at most 500 ms and a recall of 1. `busy` is
with another process busy on every core.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench.card_load import ALERTS, CARDS, HOME, TRANSACTIONS
from bench.measure import Progress, Result, cost, report
from headrace.clock import SECOND, SystemClock, to_datetime
from headrace.log import Log, open_log
from headrace.servers.kafka import Cluster
from pipelines.fraud import app

ROOT = Path(__file__).resolve().parents[1]
RATE = 1_000
HIGHER = (2_000, 4_000, 8_000)
BOUND = 500.0
PROFILES = "profiles"
PARTITIONS = 2
SHARES = (50, 95, 99)

_STARTS_WITHIN = 600 * SECOND
_ATTEMPTS = 10


@dataclass(frozen=True)
class Seen:
    """The result of one turn."""

    waits: list[float]
    recall: float

    def at(self, share: int) -> float:
        """A percentile of the latency, in milliseconds. A missing alert counts as infinite."""
        return float(np.percentile(self.waits, share)) if self.waits else float("inf")

    @property
    def holds(self) -> bool:
        return self.recall == 1 and self.at(99) <= BOUND


def run(*, quick: bool = False, progress: Progress = lambda _: None) -> dict[str, Any]:
    """Run the benchmark; `quick` takes a few seconds for each part, as a smoke test."""
    length, skip, warm = (5.0, 1.0, 5.0) if quick else (75.0, 5.0, 45.0)
    higher = HIGHER[:1] if quick else HIGHER
    settings = {
        "rate": RATE,
        "cards": CARDS,
        "partitions": PARTITIONS,
        "seconds": length,
        "skipped_seconds": skip,
        "warm_up_seconds": warm,
    }
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        home = Path(folder)
        with _broker(home / "batches") as url, _pipeline(url, "micro-batch", home):
            progress("micro-batches: warming up")
            _warm_up(url, warm)
            progress(f"micro-batches: {RATE:,} transactions/s")
            batches = _turn(url, RATE, length, skip, 2)
        with _broker(home / "live") as url, _pipeline(url, "real-time", home):
            progress("real time: warming up")
            _warm_up(url, warm)
            progress(f"real time: {RATE:,} transactions/s")
            live = _turn(url, RATE, length, skip, 4)
            progress("real time: with busy cores")
            with _busy():
                busy = _turn(url, RATE, length / 3, skip, 5)
            highest = RATE if live.holds else 0
            for number, rate in enumerate(higher):
                progress(f"real time: {rate:,} transactions/s")
                if not _turn(url, rate, length / 3, skip, 6 + number).holds:
                    break
                highest = rate
    return report("fraud", settings, _results(live, batches, busy, highest))


def _results(live: Seen, batches: Seen, busy: Seen, highest: int) -> list[Result]:
    made = [
        cost(f"real-time p{share}", "ms", live.at(share), "micro-batch", batches.at(share))
        for share in SHARES
    ]
    made += [
        cost(f"micro-batch p{share}", "ms", batches.at(share), "real-time", live.at(share))
        for share in SHARES
    ]
    made += [
        cost(f"real-time p{share} busy", "ms", busy.at(share), "quiet", live.at(share))
        for share in SHARES
    ]
    ratio = live.recall / (batches.recall or 1)
    made.append(Result("real-time recall", live.recall, "", "micro-batch", batches.recall, ratio))
    made.append(Result("highest rate", highest, "transactions/s", "asked", RATE, highest / RATE))
    return made


def _warm_up(url: str, length: float) -> None:
    """Run until alerts come, and for `length` seconds more. Spark may take a minute to start."""
    for attempt in range(_ATTEMPTS):
        if _turn(url, RATE // 10, 1, 0, 100 + attempt).waits:
            break
    _turn(url, RATE, length, 0, 1)


def _turn(url: str, rate: int, length: float, skip: float, seed: int) -> Seen:
    words = [url, str(rate), str(length), str(skip), str(seed)]
    done = subprocess.run(
        [sys.executable, "-m", "bench.card_load", *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
    )
    result = json.loads(done.stdout)
    meant, right = (sum(result[name].values()) for name in ("meant", "right"))
    return Seen(result["waits"], right / meant if meant else 0.0)


@contextlib.contextmanager
def _pipeline(url: str, latency: str, home: Path) -> Iterator[None]:
    """The running pipeline, once its topics exist."""
    words = ["run", "pipelines/fraud.py:app", "--log", url, "--latency", latency]
    output = home / f"{latency}.log"
    with output.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace.cli.main", *words],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=file,
            env={**os.environ, "HEADRACE_STATE": str(home / "state")},
        )
    clock = SystemClock()
    until = clock.monotonic() + _STARTS_WITHIN
    try:
        with open_log(url, create=False) as log:
            while ALERTS not in {topic.name for topic in log.topics()}:
                if process.poll() is not None or clock.monotonic() > until:
                    raise RuntimeError(f"The pipeline did not start: {output.read_text()}")
                clock.sleep(SECOND // 5)
        yield
        if process.poll() is not None:
            raise RuntimeError(f"The pipeline has ended: {output.read_text()}")
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


@contextlib.contextmanager
def _broker(folder: Path) -> Iterator[str]:
    cluster = Cluster(folder)
    url = cluster.up(1, 0).url
    try:
        with open_log(url) as log:
            _prepare(log)
        yield url
    finally:
        cluster.down(remove=True)


def _prepare(log: Log) -> None:
    """Create the topics, and a profile for each card."""
    transactions, profiles = app.topics[TRANSACTIONS], app.topics[PROFILES]
    for topic, partitions in ((transactions, PARTITIONS), (profiles, 1)):
        log.create_topic(
            topic.name,
            partitions=partitions,
            schema=topic.schema,
            key=topic.key,
            event_time=topic.event_time,
            settings=topic.settings,
        )
    cards = [f"card-{number}" for number in range(CARDS)]
    assert profiles.schema is not None
    rows = pa.table(
        {
            "card": cards,
            "holder": cards,
            "usual": ["40.00"] * CARDS,
            "home_lat": [HOME[0]] * CARDS,
            "home_lon": [HOME[1]] * CARDS,
            "changed": [to_datetime(SystemClock().now())] * CARDS,
        }
    )
    with log.producer() as producer:
        for batch in rows.cast(profiles.schema).to_batches(max_chunksize=10_000):
            producer.append(PROFILES, batch)


@contextlib.contextmanager
def _busy() -> Iterator[None]:
    """Keep every core busy with another process."""
    spin = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(spin) for _ in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()
