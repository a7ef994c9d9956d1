"""User-defined state, for many keys at once, against Spark's `transformWithState` per key.

`keyed_state`: events/s until a step with totals by key has caught up with a log and published its
output. Every batch has a row for each key. The baseline, `bench/baselines/per_key.py`, gets batches
of the same size and kind, but fewer, because it is slow, and publishes nothing.
`keyed_state_in_time`: the same with rows that wait for the watermark. `pattern`: a pattern.
`*_batch`: the median batch, without the start of a query. `twice_the_keys`: the cost of a batch of
the same size when each bucket, which is rewritten as a whole, holds twice as many keys.
`ttl_state_bytes`: the maximum of Spark's state with expiring keys, in the second half of a long run
against the first half.
"""

from __future__ import annotations

import itertools
import json
import tempfile
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

import headrace as hr
from bench.baselines import per_key
from bench.measure import Progress, Result, best_of, cost, rate, report, seconds
from headrace.application.run import Run
from headrace.log import open_log
from headrace.operators.stateful.declare import Order
from headrace.plan.source_options import BatchLimits
from headrace.runtime.session import spark_session
from headrace.store import open_views

SCHEMA = "k string, n bigint, at timestamp"
TOPIC = "events"
PARTITIONS = 2
BEGIN = 1_767_225_600_000_000
APART = 50
"""Microseconds between events."""

_numbers = itertools.count()


def totals(state: pa.Table, events: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Add up the events of each key."""
    new = events.group_by("k").aggregate([("n", "sum"), ("n", "count")])
    rows = pa.table({"k": new["k"], "total": new["n_sum"], "rows": new["n_count"]})
    both = pa.concat_tables([state, rows]).group_by("k").aggregate(
        [("total", "sum"), ("rows", "sum")]
    )  # fmt: skip
    made = pa.table({"k": both["k"], "total": both["total_sum"], "rows": both["rows_sum"]})
    return made, made


@dataclass
class Job:
    """A log and a stateful query on it, in batches of `batch` rows."""

    spark: SparkSession
    folder: Path
    events: int
    batch: int
    ttl: timedelta = timedelta(days=1)
    batches: list[float] = field(default_factory=list)
    held: list[int] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"file:{self.folder}"

    def ours(self, order: Order = "arrival") -> float:
        """Seconds until a new step has caught up."""
        return self._run(self._totals(order))

    def pattern(self) -> float:
        """Seconds until a pattern has been matched against the whole log."""
        app, rows = self._app()
        steps = [("small", "n < 5", 2), ("large", "n >= 9", 1)]
        found = hr.pattern(
            rows, by="k", steps=steps, within=timedelta(minutes=10), delay=timedelta(seconds=1)
        )
        app.publish(f"{app.name}.out", found)
        return self._run(app)

    def per_key(self) -> float:
        """Seconds until the query in plain Spark has caught up."""
        folder = self.folder.parent / f"per-key-{next(_numbers)}"
        seen: list[int] = []
        spent = seconds(
            lambda: per_key.start(
                self.spark, self.url, TOPIC, folder, max_rows=self.batch, seen=seen
            ).awaitTermination()
        )
        assert sum(seen) <= self.events, seen
        return spent

    def _totals(self, order: Order) -> hr.App:
        app, rows = self._app()
        kept = hr.stateful(
            rows,
            totals,
            by="k",
            state="total bigint, rows bigint",
            output="k string, total bigint, rows bigint",
            delay=timedelta(seconds=1),
            ttl=self.ttl,
            order=order,
        )
        app.publish(f"{app.name}.out", kept)
        return app

    def _app(self) -> tuple[hr.App, hr.Stream]:
        app = hr.App(f"ours-{next(_numbers)}")
        return app, app.topic(TOPIC, schema=SCHEMA, event_time="at", partitions=PARTITIONS)

    def _run(self, app: hr.App) -> float:
        def work() -> None:
            batch_limits = BatchLimits(max_rows=self.batch)
            with Run(
                app, self.url, until_caught_up=True, spark=self.spark, batch_limits=batch_limits
            ) as run:
                run.wait()
                (step,) = run.progress()
            assert step.law.rows == self.events, step.law

        spent = seconds(work)
        query = f'SELECT timing FROM "{app.name}"._headrace_timing ORDER BY id'
        with open_views(self.url, app=app.name) as views:
            found = [json.loads(row[0]) for row in views.query(query, limit=None).rows]
        self.batches = [timing["total"] / 1_000 for timing in found]
        self.held = [timing["state_bytes"] for timing in found]
        with open_log(self.url, create=False) as log:
            log.delete_topic(f"{app.name}.out")
        return spent


def run(*, quick: bool = False, progress: Progress = lambda _: None) -> dict[str, Any]:
    """Run the benchmark; `quick` takes few events, as a smoke test."""
    keys = 2_000 if quick else 100_000
    ours, theirs = (3, 1) if quick else (40, 2)
    settings = {
        "keys": keys,
        "batch_rows": keys,
        "batches": ours,
        "batches_per_key": theirs,
        "partitions": PARTITIONS,
        "buckets": 8,
        "rounds": 1 if quick else 2,
    }
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        home = Path(name)
        spark = spark_session(log_file=home / "spark.log")
        progress(f"logs of {keys:,} keys")
        jobs = {}
        for what, all_keys, batches in (
            ("ours", keys, ours),
            ("per_key", keys, theirs),
            ("twice", 2 * keys, 6),
        ):
            _fill(home / what, keys, all_keys, batches)
            jobs[what] = Job(spark, home / what, keys * batches, keys)
        rounds = int(str(settings["rounds"]))
        results = _against_per_key(jobs["ours"], jobs["per_key"], rounds, progress)
        once = median(jobs["ours"].batches)
        progress("twice the keys")
        jobs["twice"].ours("time")
        results.append(
            cost(
                "twice_the_keys", "seconds/batch", median(jobs["twice"].batches[2:]),
                "in time", once,
            )
        )  # fmt: skip
        progress("keys that come and go")
        results.append(_come_and_go(spark, home / "ttl", keys // 10))
    return report("keyed-state", settings, results)


def _against_per_key(job: Job, other: Job, rounds: int, progress: Progress) -> list[Result]:
    """The throughput of each kind of state, over a whole log and in the median batch."""
    progress(f"{per_key.NAME}: this takes a while")
    each = other.per_key() / other.events
    found = []
    for name, work in (
        ("keyed_state", job.ours),
        ("pattern", job.pattern),
        ("keyed_state_in_time", lambda: job.ours("time")),
    ):
        progress(name)
        (ours,) = best_of(rounds, work)
        found.append(
            rate(name, "events/s", job.events, ours, per_key.NAME, each * job.events)
        )  # fmt: skip
        batch = median(job.batches)
        found.append(
            rate(f"{name}_batch", "events/s", job.batch, batch, per_key.NAME, each * job.batch)
        )
    return found


def _come_and_go(spark: SparkSession, folder: Path, keys: int) -> Result:
    """The state of a run in which every batch has new keys, with a ttl of two batches."""
    batches = 12
    _fill(folder, keys, keys * batches, batches, in_turn=True)
    ttl = timedelta(microseconds=2 * keys * APART)
    job = Job(spark, folder, keys * batches, keys, ttl)
    job.ours()
    half = len(job.held) // 2
    first, second = max(job.held[:half]), max(job.held[half:])
    return cost("ttl_state_bytes", "bytes", second, "the first half", first)


def _fill(folder: Path, rows: int, keys: int, commits: int, *, in_turn: bool = False) -> None:
    """Fill a log. Each row of a commit has another key; with `in_turn`, no key repeats at all."""
    random = np.random.default_rng(1)
    names = pa.array([f"user-{n:07d}" for n in range(keys)])
    with open_log(f"file:{folder}") as log, log.producer(acks="written") as producer:
        log.create_topic(TOPIC, partitions=PARTITIONS, schema=SCHEMA, event_time="at")
        for commit in range(commits):
            first = commit * rows
            chosen = np.arange(first, first + rows) if in_turn else random.permutation(keys)[:rows]
            at = np.arange(first, first + rows, dtype=np.int64) * APART + BEGIN
            columns = [
                names.take(pa.array(chosen)),
                pa.array(random.integers(0, 10, rows)),
                pa.array(at).cast(pa.timestamp("us", tz="UTC")),
            ]
            producer.append(TOPIC, pa.record_batch(columns, names=["k", "n", "at"]))
