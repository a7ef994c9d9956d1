"""An application over files and over a log in one batch, against the stream.

`range`: events/s of `hr.run(app, over=hr.LogRange())`, which counts by key and minute over a log at
once. The baseline is `hr.run(app)`, which computes the same view in micro-batches with a checkpoint
and a changelog. `range_without_changelog`: against the stream without its changelog. `files`:
events/s of `hr.run(app, over="*.parquet")`, against `headrace produce --file` into a log and
`hr.run` on it. `load` is the first half of that, against DuckDB that loads the same files. Views,
late rows and dead letters of all are asserted to be equal.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import headrace as hr
from bench.measure import Progress, best_of, rate, report, seconds
from headrace.application.run import Run
from headrace.backfill.finding import find_files
from headrace.backfill.loading import Loaded, Loader
from headrace.log import open_log
from headrace.runtime.session import spark_session

SCHEMA = "url string, user bigint, at timestamp"
TOPIC = "pageviews"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
EVENTS_PER_SECOND = 2_000
LATE = 10_000
"""One in this many rows comes an hour late."""
DEAD = 1_000_003
"""One in this many rows has no event time."""

_numbers = itertools.count()


@dataclass(frozen=True)
class Job:
    """Files, a log that they were loaded into, and the events in each."""

    spark: SparkSession
    home: Path
    events: int
    found: dict[str, tuple[pa.Table, pa.Table, int]]

    @property
    def files(self) -> str:
        return str(self.home / "files")

    @property
    def log(self) -> Path:
        return self.home / "log"

    def stream(self, *, changelogs: bool = True) -> float:
        """Seconds until a new view has caught up with the log."""
        app = _app(f"stream-{next(_numbers)}")
        return seconds(lambda: self._streamed(app, self.log, changelogs=changelogs))

    def range(self) -> float:
        """Seconds to compute the log at once."""
        return self._batch(lambda app: hr.run(
            app, f"file:{self.log}", over=hr.LogRange(), spark=self.spark
        ))  # fmt: skip

    def over_files(self) -> float:
        """Seconds to compute the files at once."""
        return self._batch(lambda app: hr.run(app, over=self.files, spark=self.spark))

    def load(self) -> float:
        """Seconds to load the files into a new log."""
        folder = self.home / f"loaded-{next(_numbers)}"
        spent = seconds(lambda: self.load_into(folder))
        shutil.rmtree(folder)
        return spent

    def load_and_stream(self) -> float:
        """Seconds to load the files into a new log and to compute a view of it."""
        folder = self.home / f"loaded-{next(_numbers)}"
        app = _app(f"loaded-{next(_numbers)}")

        def work() -> None:
            self.load_into(folder)
            self._streamed(app, folder)

        spent = seconds(work)
        shutil.rmtree(folder)
        return spent

    def load_into(self, folder: Path) -> None:
        """Do what `headrace produce --file` does."""
        with open_log(f"file:{folder}") as log:
            log.ensure_topic(_app("any").topics[TOPIC])
            loader = Loader(log, TOPIC)
            for file in find_files([self.files]):
                for _ in loader.load(Loaded(file)):
                    pass

    def duckdb(self) -> float:
        """Seconds to read the files into a table of DuckDB."""

        def work() -> None:
            with duckdb.connect(str(self.home / f"{next(_numbers)}.duckdb")) as db:
                db.execute(f"CREATE TABLE t AS FROM read_parquet('{self.files}/*.parquet')")

        return seconds(work)

    def _streamed(self, app: hr.App, folder: Path, *, changelogs: bool = True) -> None:
        url = f"file:{folder}"
        with Run(app, url, until_caught_up=True, spark=self.spark, changelogs=changelogs) as run:
            run.wait()
            (step,) = run.progress()
        with open_log(url) as log:
            late = pa.Table.from_batches(batch.data for batch in log.read(f"{app.name}.late"))
            with hr.open_views(url, app=app.name) as views:
                self._found("stream", views.to_arrow("hits"), late, step.law.dead)

    def _batch(self, compute: Any) -> float:
        made: list[hr.BatchResult] = []
        app = _app("batch")
        spent = seconds(lambda: made.append(compute(app)))
        (result,) = made
        self._found("batch", result.view("hits"), result.late("hits"), result.dead.num_rows)
        return spent

    def _found(self, what: str, view: pa.Table, late: pa.Table, dead: int) -> None:
        """Compare results with those of the first run."""
        order = [("user", "ascending"), ("at", "ascending"), ("url", "ascending")]
        mine = (view, late.sort_by(order), dead)
        assert mine[2] == self.events // DEAD, (what, dead)
        assert late.num_rows > 0 or self.events < LATE, what
        before = self.found.setdefault("first", mine)
        assert before[0].equals(view), f"view of {what}"
        assert before[1].equals(mine[1]), f"late rows of {what}"
        assert before[2] == dead, what


def run(*, quick: bool = False, progress: Progress = lambda _: None) -> dict[str, Any]:
    """Run the benchmark; `quick` takes few events, as a smoke test."""
    events = 40_000 if quick else 10_000_000
    settings = {
        "events": events,
        "keys": 20 if quick else 1_000,
        "files": 4,
        "late": f"1 in {LATE:,}",
        "rounds": 1 if quick else 2,
    }
    rounds = int(str(settings["rounds"]))
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        home = Path(name)
        job = Job(spark_session(log_file=home / "spark.log"), home, events, {})
        progress(f"files of {events:,} events")
        _write(home / "files", events, int(str(settings["keys"])), 4)
        job.load_into(job.log)
        progress("a range of the log")
        ours, theirs, bare = best_of(
            rounds, job.range, job.stream, lambda: job.stream(changelogs=False)
        )
        unit = "events/s"
        results = [
            rate("range", unit, events, ours, "stream", theirs),
            rate("range_without_changelog", unit, events, ours, "stream, no changelog", bare),
        ]
        progress("files")
        ours, theirs = best_of(rounds, job.over_files, job.load_and_stream)
        results.append(rate("files", unit, events, ours, "produce --file and stream", theirs))
        ours, theirs = best_of(rounds, job.load, job.duckdb)
        results.append(rate("load", unit, events, ours, "DuckDB reads the files", theirs))
    return report("batch", settings, results)


def _app(name: str) -> hr.App:
    app = hr.App(name)
    views = app.topic(TOPIC, schema=SCHEMA, key="url", event_time="at", partitions=2)
    counts = hr.aggregate(
        views,
        by="url",
        window=hr.tumbling(timedelta(minutes=1)),
        lateness=hr.Lateness(delay=timedelta(seconds=10), grace=timedelta(minutes=5)),
        hits=hr.count(),
        people=hr.max("user"),
    )
    app.view("hits", counts)
    app.publish(f"{name}.late", counts.late)
    return app


def _write(folder: Path, events: int, keys: int, files: int) -> None:
    folder.mkdir()
    chance = np.random.default_rng(7)
    for number, part in enumerate(np.array_split(np.arange(events), files)):
        moments = part * 1_000_000 // EVENTS_PER_SECOND + chance.integers(0, 8_000_000, len(part))
        moments[part % LATE == LATE - 1] -= 3_600_000_000
        times = pa.array(
            moments + int(BEGIN.timestamp()) * 1_000_000, pa.int64(), mask=part % DEAD == DEAD - 1
        )
        table = pa.table(
            {
                "url": pa.array([f"/page/{n}" for n in range(keys)]).take(
                    pa.array(chance.integers(0, keys, len(part)))
                ),
                "user": pa.array(part),
                "at": times.cast(pa.timestamp("us", "UTC")),
            }
        )
        pq.write_table(table, folder / f"{number}.parquet")
