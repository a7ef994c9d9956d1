"""Freshness of the studio's feeds, against that of the view itself, and pages over large topics.

A process appends every 50 ms and watches the rows that a reader of the view's database sees
(`bench.load`). In the same run, a reader of the feed over a WebSocket notes when each commit
arrived there. Then the view's own freshness is measured with 200 readers of the feed and with none,
in turns. The readers and the studio are processes of their own, as browsers are. The 200 would be
on other machines, so their process takes only what time the others leave.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from websockets.asyncio.client import connect

from bench.freshness import TOPIC, _new_log, _ours
from bench.load import PERIOD, PROBE
from bench.measure import Progress, Result, cost, report
from headrace.log import open_log
from headrace.runtime.session import spark_session
from headrace.studio.server import serve
from headrace.studio.settings import StudioSettings

ROOT = Path(__file__).resolve().parents[1]
READERS = 200
RATE = 1_000
TOKEN = "bench"
SMALL, LARGE = 10_000, 10_000_000
_QUERY = f"SELECT sum(hits) FROM hits WHERE url = '{PROBE}'"


def run(*, quick: bool = False, progress: Progress = lambda _: None) -> dict[str, Any]:
    """Run the benchmark; `quick` takes a few seconds for each part, as a smoke test."""
    turns, length, skip = (1, 3.0, 1.0) if quick else (3, 20.0, 5.0)
    readers = 20 if quick else READERS
    large = 100_000 if quick else LARGE
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        home = Path(folder)
        spark = spark_session(log_file=home / "spark.log")
        progress("warming up")
        _turn(spark, home, 0, length, skip)
        view: list[float] = []
        feed: list[float] = []
        alone: list[float] = []
        crowded: list[float] = []
        for turn in range(turns):
            progress(f"turn {turn + 1} of {turns}")
            some = [("one", 1), ("none", 0), ("many", readers)]
            for kind, count in some if turn % 2 else reversed(some):
                seen, arrived = _turn(spark, home, count, length, skip)
                if kind == "one":
                    view, feed = view + seen, feed + arrived
                elif kind == "none":
                    alone += seen
                else:
                    crowded += seen
        results += [
            cost(f"commit_to_browser_p{p}", "ms", _at(feed, p), "the view", _at(view, p))
            for p in (50, 99)
        ]
        results += [
            cost(f"view_with_{readers}_readers_p{p}", "ms", _at(crowded, p), "none", _at(alone, p))
            for p in (50, 99)
        ]
        progress("pages of topics")
        results += _pages(home, large)
    settings = {"rate": RATE, "turns": turns, "seconds_per_turn": length, "readers": readers}
    return report("studio", settings, results)


def _at(waits: list[float], share: int) -> float:
    return float(np.percentile(waits, share))


def _turn(
    spark: SparkSession, home: Path, readers: int, length: float, skip: float
) -> tuple[list[float], list[float]]:
    """Milliseconds from each commit until the view showed it, and until a reader had it."""
    with _ours(spark, home) as (url, database, _), contextlib.ExitStack() as stack:
        reading = None
        if readers:
            origin = stack.enter_context(_studio(url))
            words = [origin, str(readers), str(int(length / PERIOD))]
            reading = subprocess.Popen(
                [sys.executable, "-m", "bench.studio", "read", *words],
                cwd=ROOT,
                stdout=subprocess.PIPE,
            )
            assert reading.stdout is not None
            assert reading.stdout.readline() == b"connected\n"
        words = [url, TOPIC, str(RATE), str(length), str(skip), str(database), _QUERY, "times"]
        done = subprocess.run(
            [sys.executable, "-m", "bench.load", *words],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            check=True,
        )
        seen: list[tuple[float, float]] = json.loads(done.stdout)
        first = int(skip / PERIOD)
        arrived: list[float] = []
        if reading is not None:
            out, _ = reading.communicate(timeout=60)
            known = [acknowledged for acknowledged, _ in seen]
            pairs = zip(known, json.loads(out), strict=True)
            arrived = [(at - acknowledged) * 1e3 for acknowledged, at in pairs][first:]
        return [(at - known) * 1e3 for known, at in seen][first:], arrived


@contextlib.contextmanager
def _studio(url: str) -> Iterator[str]:
    """A studio in a process of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serving = subprocess.Popen(
        [sys.executable, "-m", "bench.studio", "serve", url, str(port)], cwd=ROOT
    )
    origin = f"http://127.0.0.1:{port}"
    try:
        until = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"{origin}/static/studio.css", timeout=5).close()
                break
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)
        yield origin
    finally:
        serving.terminate()
        serving.wait(30)


async def _read(origin: str, readers: int, commits: int) -> list[float]:
    """The time at which each commit was in a reader's hands; the others read and drop."""
    address = f"{origin.replace('http', 'ws')}/ws/views/hits"
    headers = {"authorization": f"Bearer {TOKEN}"}
    times: list[float] = []
    if readers > 1:
        os.nice(19)
    async with contextlib.AsyncExitStack() as stack:
        sockets = []
        for _ in range(readers):
            opened = connect(address, additional_headers=headers, max_size=None)
            sockets.append(await stack.enter_async_context(opened))
        print("connected", flush=True)

        async def drop(number: int) -> None:
            async for _ in sockets[number]:
                pass

        others = [asyncio.create_task(drop(number)) for number in range(1, readers)]
        counted: dict[str, int] = {}
        async for text in sockets[0]:
            for row in json.loads(text)["rows"]:
                if row["url"] == PROBE:
                    counted[row["window_start"]] = row["hits"]
            now = time.perf_counter()
            times += [now] * (sum(counted.values()) - len(times))
            if len(times) >= commits:
                break
        for other in others:
            other.cancel()
    return times


def _pages(home: Path, large: int) -> list[Result]:
    """The page of a large topic against that of a small one, if the studio has such pages."""
    url = _new_log(home)
    with open_log(url) as log, log.producer(acks="written") as producer:
        for name, rows in (("small", SMALL), ("large", large)):
            log.create_topic(name, schema="id bigint, text string")
            for start in range(0, rows, 100_000):
                ids = pa.array(range(start, min(rows, start + 100_000)), pa.int64())
                batch = pa.record_batch([ids, ids.cast(pa.string())], names=["id", "text"])
                producer.append(name, batch)
    with _studio(url) as origin:
        took: dict[str, list[float]] = {"small": [], "large": []}
        for _ in range(11):
            for name, times in took.items():
                asked = urllib.request.Request(
                    f"{origin}/topics/{name}", headers={"authorization": f"Bearer {TOKEN}"}
                )
                begun = time.perf_counter()
                try:
                    with urllib.request.urlopen(asked, timeout=60) as answer:
                        answer.read()
                except urllib.error.HTTPError as error:
                    if error.code == 404:
                        return []
                    raise
                times.append((time.perf_counter() - begun) * 1e3)
    small, big = (float(np.median(times[1:])) for times in took.values())
    return [cost(f"topic_page_{large}", "ms", big, f"{SMALL} records", small)]


def _main(what: str, *words: str) -> None:
    if what == "read":
        origin, readers, commits = words
        print(json.dumps(asyncio.run(_read(origin, int(readers), int(commits)))))
    else:
        url, port = words
        with contextlib.suppress(KeyboardInterrupt):
            serve(StudioSettings(url, port=int(port), token=TOKEN), started=lambda _: None)


if __name__ == "__main__":
    sys.path.insert(0, os.fspath(ROOT))
    _main(*sys.argv[1:])
