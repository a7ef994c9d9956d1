"""A process that appends to a log at a steady rate and measures when its events become visible.

    python -m bench.load LOG TOPIC EVENTS_PER_SECOND SECONDS SKIP DATABASE QUERY [times]

Every 50 ms it appends one commit that has one row of the key PROBE. QUERY counts the rows of that
key that a reader of the database sees, and so the commits that have become visible. It prints a
JSON list of the milliseconds from each commit's acknowledgement until then, without the commits of
the first SKIP seconds. With `times` as a last word, it prints both moments of every commit instead,
in seconds of `time.perf_counter`, which all processes share.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from headrace.log import open_log

PROBE = "probe"
KEYS = 1_000
PERIOD = 0.05
PATIENCE = 60.0
"""Seconds to wait for invisible commits after the last commit."""

_POLL = 0.001


def main(
    url: str,
    topic: str,
    rate: str,
    length: str,
    skip: str,
    database: str,
    query: str,
    form: str = "waits",
) -> None:
    """Append commits, watch the database, and print the latencies."""
    commits = int(float(length) / PERIOD)
    acknowledged: list[float] = []
    appending = threading.Thread(
        target=_append, args=(url, topic, int(int(rate) * PERIOD), commits, acknowledged)
    )
    appending.start()
    visible = _watch(database, query, commits)
    appending.join()
    if form == "times":
        print(json.dumps(list(zip(acknowledged, visible, strict=True))))
        return
    waits = [(seen - known) * 1e3 for known, seen in zip(acknowledged, visible, strict=True)]
    print(json.dumps(waits[int(float(skip) / PERIOD) :]))


def _append(url: str, topic: str, rows: int, commits: int, acknowledged: list[float]) -> None:
    random = np.random.default_rng(1)
    urls = pa.array([f"/page/{n:07d}" for n in range(KEYS)] + [PROBE])
    users = pa.array([f"user-{n:06d}" for n in range(100_000)])
    with open_log(url, create=False) as log, log.producer() as producer:
        start = time.perf_counter()
        for number in range(commits):
            pages = random.integers(0, KEYS, rows)
            pages[0] = KEYS
            at = np.full(rows, time.time_ns() // 1_000)
            batch = pa.record_batch(
                [
                    urls.take(pa.array(pages)),
                    users.take(pa.array(random.integers(0, len(users), rows))),
                    pa.array(at).cast(pa.timestamp("us", tz="UTC")),
                ],
                names=["url", "user", "at"],
            )
            time.sleep(max(0.0, start + number * PERIOD - time.perf_counter()))
            producer.append(topic, batch)
            acknowledged.append(time.perf_counter())


def _watch(database: str, query: str, commits: int) -> list[float]:
    """The time when each commit became visible."""
    db = sqlite3.connect(f"{Path(database).absolute().as_uri()}?mode=ro", uri=True)
    seen: list[float] = []
    until = time.perf_counter() + commits * PERIOD + PATIENCE
    while len(seen) < commits:
        (count,) = db.execute(query).fetchone()
        now = time.perf_counter()
        seen += [now] * (int(count or 0) - len(seen))
        if now > until:
            raise TimeoutError(f"only {len(seen)} of {commits} commits became visible")
        time.sleep(_POLL)
    db.close()
    return seen


if __name__ == "__main__":
    main(*sys.argv[1:])
