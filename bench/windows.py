"""Counts by window, from the log into a view, against hand-written PySpark.

`tumbling` and `hopping`: events/s until a view has caught up with a log, with our defaults: a
changelog, checks and late rows. The baseline is `bench/baselines/hand_written.py` in the same
session. `*_without_changelog`: the same without the changelog. `*_duckdb`: against one aggregation
of the whole log in DuckDB, an upper bound for the machine. `*_few_events` and `*_many_keys` measure
growth: fewer events, and as many keys as events, each against the hand-written query and against
the cost of an event in the base case. `sliding`, `session` and `top_n` are other kinds of windows,
over fewer events, against `bench/baselines/own_windows.py`. `*_state_rows` and `*_state_bytes` are
the state of each kind over the whole log: the maximum in the second half against the first.
"""

from __future__ import annotations

import itertools
import tempfile
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

import headrace as hr
from bench.baselines import hand_written, one_shot
from bench.kinds import BY_HAND, OURS, Kind
from bench.measure import Progress, Result, best_of, rate, report, seconds
from headrace.application.run import Run
from headrace.log import open_log
from headrace.runtime.session import spark_session

SCHEMA = "url string, user string, at timestamp"
TOPIC = "pageviews"
PARTITIONS = 2
DELAY = timedelta(seconds=10)
EVENTS_PER_SECOND = 2_000
LATE = 10_000
"""One in this many rows comes an hour late."""

_numbers = itertools.count()


@dataclass(frozen=True)
class Job:
    """A log and a query on it."""

    spark: SparkSession
    folder: Path
    events: int
    size: timedelta
    every: timedelta

    @property
    def url(self) -> str:
        return f"file:{self.folder}"

    def ours(self, *, changelogs: bool = True) -> float:
        """Seconds until a new view has caught up."""
        app = _app(f"ours-{next(_numbers)}", self)

        def work() -> None:
            with Run(
                app, self.url, until_caught_up=True, spark=self.spark, changelogs=changelogs
            ) as run:
                run.wait()
                (step,) = run.progress()
            assert step.law.rows == self.events, step.law

        spent = seconds(work)
        _forget(self.url, app.name)
        return spent

    def by_hand(self) -> float:
        """Seconds until a new hand-written table has caught up."""
        folder = self.folder.parent / f"by-hand-{next(_numbers)}"

        def work() -> None:
            hand_written.start(
                self.spark,
                self.url,
                TOPIC,
                folder,
                size=self.size,
                every=self.every,
                delay=DELAY,
                until_caught_up=True,
            ).awaitTermination()

        spent = seconds(work)
        windows = self.size // self.every
        missing = self.events * windows - hand_written.counted(folder)
        assert 0 <= missing <= windows * (self.events // LATE + 1), missing
        return spent

    def duckdb(self) -> float:
        """Seconds to aggregate the whole log at once, in memory."""
        size, every = (int(span.total_seconds()) for span in (self.size, self.every))
        counted = []
        spent = seconds(
            lambda: counted.append(one_shot.count(self.url, TOPIC, size=size, every=every))
        )
        assert counted == [self.events * (size // every)], counted
        return spent


def run(*, quick: bool = False, progress: Progress = lambda _: None) -> dict[str, Any]:
    """Run the benchmark; `quick` takes few events, as a smoke test."""
    events = 40_000 if quick else 10_000_000
    settings = {
        "events": events,
        "keys": 20 if quick else 1_000,
        "few_events": events // 10,
        "many_keys": events // 10,
        "commit_rows": 5_000 if quick else 100_000,
        "partitions": PARTITIONS,
        "delay_seconds": DELAY.total_seconds(),
        "late": f"1 in {LATE:,}",
        "rounds": 1 if quick else 5,
        "growth_rounds": 1 if quick else 2,
    }
    rounds = int(str(settings["rounds"]))
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        home = Path(name)
        spark = spark_session(log_file=home / "spark.log")
        logs = {}
        for what, rows, keys in (
            ("base", events, int(str(settings["keys"]))),
            ("few_events", events // 10, int(str(settings["keys"]))),
            ("many_keys", events // 10, events // 10),
        ):
            progress(f"a log of {rows:,} events of {keys:,} keys")
            logs[what] = home / what
            _fill(logs[what], rows, keys, int(str(settings["commit_rows"])))
        minute = timedelta(minutes=1)
        results = []
        for query, size in (("tumbling", minute), ("hopping", 5 * minute)):
            results += _against_all(
                query, Job(spark, logs["base"], events, size, minute), rounds, progress
            )
        base = next(result for result in results if result.name == "tumbling")
        for what in ("few_events", "many_keys"):
            job = Job(spark, logs[what], events // 10, minute, minute)
            results += _growth(
                f"tumbling_{what}", job, int(str(settings["growth_rounds"])), base, progress
            )
        few = (spark, logs["few_events"], TOPIC, SCHEMA, events // 10)
        for kind in BY_HAND:
            results.append(
                Kind(kind, *few).against_by_hand(int(str(settings["growth_rounds"])), progress)
            )
        all_of_them = (spark, logs["base"], TOPIC, SCHEMA, events)
        for kind in OURS:
            results += Kind(kind, *all_of_them).state(progress)
    return report("windows", settings, results)


def _against_all(name: str, job: Job, rounds: int, progress: Progress) -> list[Result]:
    progress(name)
    ours, by_hand, quiet, at_best = best_of(
        rounds, job.ours, job.by_hand, lambda: job.ours(changelogs=False), job.duckdb
    )
    unit, events = "events/s", job.events
    return [
        rate(name, unit, events, ours, hand_written.NAME, by_hand),
        rate(f"{name}_without_changelog", unit, events, quiet, hand_written.NAME, by_hand),
        rate(f"{name}_changelog", unit, events, ours, "without the changelog", quiet),
        rate(f"{name}_duckdb", unit, events, ours, "DuckDB, all at once", at_best),
    ]


def _growth(name: str, job: Job, rounds: int, base: Result, progress: Progress) -> list[Result]:
    progress(name)
    ours, by_hand = best_of(rounds, job.ours, job.by_hand)
    made = rate(name, "events/s", job.events, ours, hand_written.NAME, by_hand)
    per_event = made.value / base.value
    return [
        made,
        Result(f"{name}_growth", made.value, "events/s", base.name, base.value, per_event),
    ]


def _app(name: str, job: Job) -> hr.App:
    app = hr.App(name)
    views = app.topic(TOPIC, schema=SCHEMA, key="url", event_time="at", partitions=PARTITIONS)
    window = hr.hopping(job.size, job.every) if job.size != job.every else hr.tumbling(job.size)
    lateness = hr.Lateness(delay=DELAY, grace=timedelta(0))
    hits = hr.aggregate(views, by="url", window=window, lateness=lateness, hits=hr.count())
    app.view("hits", hits, key=["url", "window_start"])
    return app


def _forget(url: str, app: str) -> None:
    """Delete an application's topics, so that the log does not grow with each round."""
    with open_log(url, create=False) as log:
        for topic in log.topics():
            if topic.name.startswith(f"{app}."):
                log.delete_topic(topic.name)


def _fill(folder: Path, events: int, keys: int, rows: int) -> None:
    random = np.random.default_rng(1)
    urls = pa.array([f"/page/{n:07d}" for n in range(keys)])
    users = pa.array([f"user-{n:06d}" for n in range(100_000)])
    with open_log(f"file:{folder}") as log, log.producer(acks="written") as producer:
        log.create_topic(TOPIC, partitions=PARTITIONS, schema=SCHEMA, key="url", event_time="at")
        for first in range(0, events, rows):
            count = min(rows, events - first)
            order = np.arange(first, first + count, dtype=np.int64)
            # A few seconds of disorder, and sometimes an hour.
            times = order * (1_000_000 // EVENTS_PER_SECOND) + random.integers(0, 5_000_000, count)
            times -= np.where(random.integers(0, LATE, count) == 0, 3_600_000_000, 0)
            at = pa.array(times + 1_767_225_600_000_000).cast(pa.timestamp("us", tz="UTC"))
            columns = [
                urls.take(pa.array(random.integers(0, keys, count))),
                users.take(pa.array(random.integers(0, len(users), count))),
                at,
            ]
            batch = pa.record_batch(columns, names=["url", "user", "at"])
            producer.append(TOPIC, batch)
