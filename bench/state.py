"""The size of state of joins and keyed steps in a long run, with keys that come and go.

`*_state_rows` and `*_state_bytes`: the maximum of state after a batch in the second half of a run,
against the first half; a ratio of about 1 means that it levels off. `*_memory`: the same for the
memory of Java after a garbage collection and of all Python processes, in megabytes. A full run
writes the values after each batch to docs/pictures/state.json, and `scripts/pictures` draws them.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

import headrace as hr
from bench.keyed_state import totals
from bench.measure import Progress, Result, cost, report
from headrace.application.run import Run
from headrace.clock import to_datetime
from headrace.log import open_log
from headrace.plan.source_options import BatchLimits
from headrace.runtime.session import spark_session
from headrace.store import open_views
from headrace.store.location import views_folder
from headrace.store.sqlite.stored import looking

FOUND = Path(__file__).parents[1] / "docs" / "pictures" / "state.json"
SCHEMA = "k string, n bigint, at timestamp"
TABLE = "k string, word string, since timestamp"
BEGIN = 1_767_225_600_000_000
APART = 100
"""Microseconds between events."""
HOLD = timedelta(seconds=20)
DELAY = timedelta(seconds=1)
NEAR = 50_000
"""The number of events over which a key's events are spread."""
EACH = 4
"""The average number of events of a key; with two streams, one in each."""
KEYS = 10_000
"""The number of keys of the table. The keys of events cycle through them."""
COMMIT_ROWS = 50_000
MEGABYTE = 1 << 20

_HELD_IN = tuple(f"_headrace_{what}_" for what in ("groups", "versions", "told_rows"))
"""Name prefixes of the tables of a step's state, if it is not in Spark's state."""


@dataclass(frozen=True)
class Long:
    """An operator, its topics, and their total number of events."""

    name: str
    topics: tuple[str, ...]
    events: int
    declare: Callable[[hr.App, list[hr.Stream]], hr.Stream]


@dataclass
class Course:
    """The size of state after each batch of a run."""

    name: str
    events: int
    rows: list[int] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)

    def results(self) -> Iterator[Result]:
        """The maximum of the second half against that of the first."""
        for what, unit, held in (
            ("state_rows", "rows", self.rows),
            ("state_bytes", "bytes", self.bytes),
            ("memory", "MB", self.memory),
        ):
            half = len(held) // 2
            first, second = (max(some, default=0) or 1 for some in (held[:half], held[half:]))
            yield cost(f"{self.name}_{what}", unit, second, "the first half", first)


def run(*, quick: bool = False, progress: Progress = lambda _: None) -> dict[str, Any]:
    """Run the benchmark; `quick` takes few events, as a smoke test."""
    if quick:
        return measure(_operators(40_000, 40_000), 4, progress)
    return measure(_operators(10_000_000, 2_000_000), 40, progress, FOUND)


def measure(
    operators: list[Long], batches: int, progress: Progress, found: Path | None = None
) -> dict[str, Any]:
    """The results of runs of `batches` batches; the values after each batch go to a file."""
    settings = {
        "events": {one.name: one.events for one in operators},
        "batches": batches,
        "held_for_seconds": HOLD.total_seconds(),
        "events_per_second": 1_000_000 // APART,
        "events_of_a_key": EACH,
        "table_keys": KEYS,
    }
    courses = []
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        home = Path(name)
        spark = spark_session(log_file=home / "spark.log")
        for one in operators:
            progress(f"{one.name}, {one.events:,} events")
            folder = home / one.name
            _fill(folder, one, batches)
            courses.append(_course(spark, folder, one, batches))
    if found is not None:
        saved = {"settings": settings, "courses": [vars(course) for course in courses]}
        found.write_text(json.dumps(saved) + "\n")
    return report("state", settings, [one for course in courses for one in course.results()])


def _operators(many: int, some: int) -> list[Long]:
    """The joins and keyed steps whose state expires."""

    def joined(app: hr.App, streams: list[hr.Stream]) -> hr.Stream:
        left, right = streams
        return hr.join(left, right, on="k", after=HOLD, delay=DELAY, prefix="other_")

    def kept(app: hr.App, streams: list[hr.Stream]) -> hr.Stream:
        return hr.stateful(
            streams[0],
            totals,
            by="k",
            state="total bigint, rows bigint",
            output="k string, total bigint, rows bigint",
            delay=DELAY,
            ttl=HOLD,
        )

    def once(app: hr.App, streams: list[hr.Stream]) -> hr.Stream:
        return hr.deduplicate(streams[0], by="k", ttl=HOLD, delay=DELAY)

    def found(app: hr.App, streams: list[hr.Stream]) -> hr.Stream:
        changes = app.topic("words", schema=TABLE, event_time="since", key="k")
        return hr.enrich(
            streams[0], hr.table(changes, key="k"), on="k", wait=DELAY, amend=HOLD, prefix="w_"
        )

    return [
        Long("stream-stream", ("left", "right"), many, joined),
        Long("stateful", ("events",), many, kept),
        Long("deduplicate", ("events",), some, once),
        Long("enrich", ("events",), some, found),
    ]


def _course(spark: SparkSession, folder: Path, one: Long, batches: int) -> Course:
    """Run an operator until it has caught up, and measure its state after each batch."""
    app, url, course = hr.App("long"), f"file:{folder}", Course(one.name, one.events)
    streams: list[hr.Stream] = [
        app.topic(topic, schema=SCHEMA, event_time="at", partitions=2) for topic in one.topics
    ]
    app.publish("told", one.declare(app, streams))
    path = views_folder(url) / f"{app.name}.db"

    def crash_point(point: str) -> None:
        if point == "batch ended":
            course.memory.append(_memory(spark))
            _look(path, course)

    batch_limits = BatchLimits(max_rows=max(1, one.events // len(one.topics) // batches))
    with Run(
        app,
        url,
        until_caught_up=True,
        spark=spark,
        batch_limits=batch_limits,
        crash_point=crash_point,
    ) as running:
        running.wait()
        (step,) = running.progress()
    assert step.law.rows >= one.events, step.law
    if not any(course.rows):  # it is in Spark's state, which Spark reports after a batch
        query = f'SELECT timing FROM "{app.name}"._headrace_timing ORDER BY id'
        with open_views(url, app=app.name) as views:
            timings = [json.loads(row[0]) for row in views.query(query, limit=None).rows]
        course.rows = [timing["state_rows"] for timing in timings]
        course.bytes = [timing["state_bytes"] for timing in timings]
    return course


def _look(path: Path, course: Course) -> None:
    """Add the size of a step's state in the database of its application."""
    # Not with sqlite3: two SQLite libraries in one process release each other's locks.
    with looking(live=path) as db:
        names = [
            (str(name), kind == "table")
            for name, kind in db.execute("SELECT name, type FROM live.sqlite_schema")
            if str(name).startswith(_HELD_IN)
        ]
        mine = [name for name, _ in names]
        tables = [name for name, is_table in names if is_table]
        rows = [db.execute(f'SELECT count(*) FROM live."{table}"').get for table in tables]
        marks = ", ".join("?" * len(mine))
        size = db.execute(
            f"SELECT coalesce(sum(pgsize), 0) FROM dbstat('live') WHERE name IN ({marks})", mine
        ).get
    course.rows.append(sum(int(str(count)) for count in rows))
    course.bytes.append(int(str(size)))


def _memory(spark: SparkSession) -> int:
    """Megabytes used by Java after a garbage collection, by this process and by Spark's workers."""
    assert spark._jvm is not None
    java = spark._jvm.java.lang
    java.System.gc()
    machine = java.Runtime.getRuntime()
    in_java = int(machine.totalMemory()) - int(machine.freeMemory())
    return (in_java + sum(_resident(os.getpid()))) // MEGABYTE


def _resident(process: int) -> Iterator[int]:
    """The resident bytes of a process and its descendants, except Java's."""
    folder = Path("/proc", str(process))
    below: list[str] = []
    with contextlib.suppress(OSError):  # the process has ended
        if not (folder / "exe").resolve().name.startswith("java"):
            yield int((folder / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        for task in (folder / "task").iterdir():
            with contextlib.suppress(OSError):  # only this thread has ended
                below += (task / "children").read_text().split()
    for child in below:
        yield from _resident(int(child))


def _fill(folder: Path, one: Long, batches: int) -> None:
    """Fill topics in which each key has a few events and then does not return for long."""
    random = np.random.default_rng(1)
    rows = one.events // len(one.topics)
    goes_round = one.name == "enrich"
    with open_log(f"file:{folder}") as log, log.producer(acks="written") as producer:
        for topic in one.topics:
            log.create_topic(topic, partitions=2, schema=SCHEMA, event_time="at")
        if goes_round:
            log.create_topic("words", schema=TABLE, event_time="since", key="k")
            keys = pa.array([f"key-{n:08d}" for n in range(KEYS)])
            since = _times(np.full(KEYS, BEGIN - 1_000_000, np.int64))
            producer.append("words", pa.record_batch([keys, keys, since], ["k", "word", "since"]))
        apart, each = APART * len(one.topics), EACH if len(one.topics) == 1 else 1
        commit = min(COMMIT_ROWS, rows // batches)
        for first in range(0, rows, commit):
            count = min(commit, rows - first)
            order = np.arange(first, first + count, dtype=np.int64)
            for topic in one.topics:
                chosen = (order + random.integers(0, NEAR, count)) // each
                chosen = chosen % KEYS if goes_round else chosen
                columns = [
                    pa.array([f"key-{n:08d}" for n in chosen]),
                    pa.array(random.integers(0, 10, count)),
                    _times(BEGIN + order * apart),
                ]
                producer.append(topic, pa.record_batch(columns, names=["k", "n", "at"]))
            if goes_round:  # advance the table as far as the events
                log.advance("words", to_datetime(BEGIN + (first + count) * apart))


def _times(moments: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Array:
    return pa.array(moments).cast(pa.timestamp("us", tz="UTC"))
