"""Sliding windows, sessions and rankings, each against hand-written PySpark.

The state of each kind is measured too: its rows and bytes after each batch, the maximum of the
second half of a run against that of the first. A ratio of about 1 means that it levels off.
"""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Literal

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import headrace as hr
from bench.baselines import own_windows
from bench.measure import Progress, Result, best_of, cost, rate, seconds
from headrace.application.run import Run
from headrace.log import open_log
from headrace.operators.window.windows import AnyWindow
from headrace.plan.source_options import BatchLimits
from headrace.store.location import views_folder
from headrace.store.sqlite.stored import looking

SECOND = timedelta(seconds=1)
DELAY = 10 * SECOND
SIZE = 5 * SECOND
GAP = SECOND
MINUTE = 60 * SECOND
TOP = 10
NAME = "PySpark by hand"
BATCHES = 20
ENOUGH = 100_000
"""With fewer events no session may have ended."""
PARTS = 5
"""Batches of a timed run. The baseline emits a session only in a later batch."""

_numbers = itertools.count()

Declare = Callable[[hr.App, hr.Stream], object]
ByHand = Callable[[SparkSession, str, str, int, Path], StreamingQuery]
Emit = Literal["updates", "final"]


def _counted(rows: hr.Stream, window: AnyWindow, emit: Emit = "updates") -> hr.Aggregation:
    lateness = hr.Lateness(DELAY, timedelta(0))
    return hr.aggregate(
        rows, by="url", window=window, lateness=lateness, emit=emit, hits=hr.count()
    )


OURS: dict[str, Declare] = {
    "tumbling": lambda app, rows: app.view("hits", _counted(rows, hr.tumbling(MINUTE))),
    "sliding": lambda app, rows: app.view("hits", _counted(rows, hr.sliding(SIZE))),
    "session": lambda app, rows: app.view("hits", _counted(rows, hr.session(GAP), "final")),
    "top_n": lambda app, rows: app.view(
        "hits", hr.top(_counted(rows, hr.tumbling(MINUTE)), TOP, by="hits")
    ),
}
BY_HAND: dict[str, ByHand] = {
    "sliding": partial(own_windows.sliding, size=SIZE, delay=DELAY),
    "session": partial(own_windows.session, gap=GAP, delay=DELAY),
    "top_n": partial(own_windows.top, size=MINUTE, delay=DELAY, n=TOP),
}


@dataclass(frozen=True)
class Kind:
    """One kind of window over a log."""

    name: str
    spark: SparkSession
    folder: Path
    topic: str
    schema: str
    events: int

    @property
    def url(self) -> str:
        return f"file:{self.folder}"

    def against_by_hand(self, rounds: int, progress: Progress) -> Result:
        """Events/s until both have caught up, with the same results."""
        progress(self.name)
        results: list[Path] = []
        ours, theirs = best_of(rounds, lambda: self._ours(results), lambda: self._by_hand(results))
        self._compare(*results[-2:])
        return rate(self.name, "events/s", self.events, ours, NAME, theirs)

    def state(self, progress: Progress) -> list[Result]:
        """The rows and bytes of state in the second half of a run, against the first half."""
        progress(f"the state of {self.name}")
        app = self._app()
        held: dict[int, tuple[float, float]] = {}
        batch_limits = self._batch_limits(BATCHES)
        with Run(
            app, self.url, until_caught_up=True, spark=self.spark, batch_limits=batch_limits
        ) as run:
            while not run.wait(0.05):
                self._look(run, app.name, held)
            self._look(run, app.name, held)
        self._forget(app.name)
        after = [held[batch] for batch in sorted(held)]
        assert len(after) >= BATCHES // 4, f"only {len(after)} batches of {self.name} were measured"
        halves = after[: len(after) // 2], after[len(after) // 2 :]
        found = []
        for index, what in enumerate(("rows", "bytes")):
            first, second = (max((pair[index] for pair in half), default=0.0) for half in halves)
            name = f"{self.name}_state_{what}"
            found.append(cost(name, what, max(second, 1.0), "the first half", max(first, 1.0)))
        return found

    def _look(self, run: Run, app: str, held: dict[int, tuple[float, float]]) -> None:
        (query,) = run.queries
        last = query.progress
        operators = last.get("stateOperators", ())
        if operators:
            held[last["batchId"]] = (
                float(sum(operator["numRowsTotal"] for operator in operators)),
                float(sum(operator["memoryUsedBytes"] for operator in operators)),
            )
        elif last:  # open sessions are stored beside the view, not in Spark's state
            held[last["batchId"]] = self._open_sessions(app)

    def _open_sessions(self, app: str) -> tuple[float, float]:
        path = views_folder(self.url) / f"{app}.db"
        # Not with sqlite3: two SQLite libraries in one process release each other's locks.
        with looking(live=path) as db:
            rows = db.execute("SELECT count(*) FROM live._headrace_open_hits").get
            size = db.execute(
                "SELECT coalesce(sum(pgsize), 0) FROM dbstat('live') "
                "WHERE name IN ('_headrace_open_hits', '_headrace_open_ends_hits')"
            ).get
            return float(rows), float(size)

    def _app(self) -> hr.App:
        app = hr.App(f"{self.name.replace('_', '-')}-{next(_numbers)}")
        OURS[self.name](
            app, app.topic(self.topic, schema=self.schema, event_time="at", key="url", partitions=2)
        )
        return app

    def _batch_limits(self, batches: int) -> BatchLimits:
        return BatchLimits(max_rows=max(1, self.events // batches))

    def _ours(self, results: list[Path]) -> float:
        app = self._app()
        results.append(views_folder(self.url) / f"{app.name}.db")

        def work() -> None:
            with Run(
                app,
                self.url,
                until_caught_up=True,
                spark=self.spark,
                batch_limits=self._batch_limits(PARTS),
            ) as run:
                run.wait()
                (step,) = run.progress()
            assert step.law.rows == self.events, step.law

        spent = seconds(work)
        self._forget(app.name)
        return spent

    def _by_hand(self, results: list[Path]) -> float:
        folder = self.folder.parent / f"{self.name}-by-hand-{next(_numbers)}"
        results.append(folder / "hits.db")
        start = BY_HAND[self.name]
        rows = self._batch_limits(PARTS).max_rows
        return seconds(
            lambda: start(self.spark, self.url, self.topic, rows, folder).awaitTermination()
        )

    def _compare(self, ours: Path, by_hand: Path) -> None:
        """Check that both results are equal, except for a few rows that came an hour late."""
        with contextlib.closing(sqlite3.connect(ours)) as db:
            db.execute("ATTACH ? AS hand", (str(by_hand),))
            found, wrong = db.execute(
                "SELECT count(*), sum(o.hits IS NOT h.hits) FROM hand.hits h "
                "LEFT JOIN _headrace_panes_hits o USING (url, window_start, window_end)"
            ).fetchone()
            assert found or self.events < ENOUGH, "the baseline found nothing"
            assert (wrong or 0) <= self.events / 100, f"{wrong:,} of {found:,} differ"

    def _forget(self, app: str) -> None:
        """Delete an application's topics, so that the log does not grow with each round."""
        with open_log(self.url, create=False) as log:
            for topic in log.topics():
                if topic.name.startswith(f"{app}."):
                    log.delete_topic(topic.name)
