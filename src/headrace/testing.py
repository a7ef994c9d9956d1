"""Tools to test pipelines: a scripted log, a virtual clock, and crashes.

    with scripted_log() as log:
        log.write(pageviews, {"url": "/", "user": "ann", "at": noon})
        results = log.run(app)
        assert results.view("hits_per_minute")[0]["hits"] == 1

Every run goes through Spark, and resumes where the one before ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from headrace.application.run import Run, StepProgress
from headrace.clock import VirtualClock, to_micros
from headrace.errors import InvalidSetting
from headrace.log import Log, Record, open_log
from headrace.operators.window.meaning import meaning
from headrace.oracle.events import events_of
from headrace.pipeline.app import App
from headrace.pipeline.stream import Source
from headrace.plan.crash_points import POINTS, REBUILD_POINTS, CrashPoint, nothing
from headrace.plan.law import Law
from headrace.plan.source_options import BatchLimits
from headrace.store import open_views

__all__ = [
    "POINTS",
    "REBUILD_POINTS",
    "Crash",
    "Results",
    "ScriptedLog",
    "crash_at",
    "events_of",
    "kill_at",
    "meaning",
    "scripted_log",
]

START = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Crash(BaseException):
    """A simulated crash. No handler of ordinary errors catches it."""


class ScriptedLog:
    """A log with a virtual clock, and runs of an application on it."""

    def __init__(self, log: Log, clock: VirtualClock) -> None:
        self.log = log
        self.clock = clock

    def write(
        self, topic: str | Source, *rows: Mapping[str, Any], at: datetime | None = None
    ) -> int:
        """Write rows to a topic in one commit; return its number. `at` moves the clock.

        A topic that an application declares is created if it is missing.
        """
        if at is not None:
            self.clock.sleep(to_micros(at) - self.clock.now())
        if isinstance(topic, Source):
            topic = self.log.ensure_topic(topic.topic).name
        with self.log.producer() as producer, producer.transaction() as transaction:
            for row in rows:
                transaction.send(topic, dict(row))
        return self.log.head()

    def pass_time(self, by: timedelta) -> None:
        """Advance the log's clock."""
        self.clock.advance(by)

    def run(
        self,
        app: App,
        *,
        spark: SparkSession | None = None,
        max_commits: int | None = None,
        crash_point: CrashPoint = nothing,
    ) -> Results:
        """Run an application until it has caught up, in batches of at most `max_commits`."""
        batch_limits = (
            BatchLimits() if max_commits is None else BatchLimits(max_commits=max_commits)
        )
        with Run(
            app,
            self.log,
            until_caught_up=True,
            spark=spark,
            batch_limits=batch_limits,
            crash_point=crash_point,
        ) as running:
            running.wait()
            return Results(self.log, app.name, tuple(running.progress()))

    def records(self, topic: str) -> list[Record]:
        """The records of a topic."""
        return [record for batch in self.log.read(topic) for record in batch.records()]


@dataclass(frozen=True)
class Results:
    """The results of a run: its views, its topics and the row law of each step."""

    log: Log
    app: str
    steps: tuple[StepProgress, ...]

    def view(self, name: str) -> list[dict[str, Any]]:
        """The rows of a view, by key."""
        with open_views(self.log.home, app=self.app) as views:
            return views.rows(name)

    def topic(self, name: str) -> list[Any]:
        """The rows of a topic."""
        return [record.value for batch in self.log.read(name) for record in batch.records()]

    def law(self, step: str) -> Law:
        """The row law of a step."""
        return next(progress.law for progress in self.steps if progress.step == step)


@contextlib.contextmanager
def scripted_log(
    folder: Path | str | None = None, *, start: datetime = START
) -> Iterator[ScriptedLog]:
    """Open a log in a folder, by default a temporary one, with a virtual clock at `start`."""
    with contextlib.ExitStack() as stack:
        if folder is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-"))
        clock = VirtualClock(start)
        log = stack.enter_context(open_log(f"file:{folder}", clock=clock))
        yield ScriptedLog(log, clock)


def crash_at(point: str, nth: int = 1) -> CrashPoint:
    """Raise `Crash` when a crash point is reached for the nth time. The process survives."""

    def crash() -> None:
        raise Crash(point)

    return _at(point, nth, crash)


def kill_at(point: str, nth: int = 1) -> CrashPoint:
    """Kill this process, as kill -9 does, when a crash point is reached for the nth time."""
    return _at(point, nth, lambda: os.kill(os.getpid(), signal.SIGKILL))


def _at(point: str, nth: int, act: Any) -> CrashPoint:
    known = (*POINTS, *REBUILD_POINTS)
    if point not in known:
        raise InvalidSetting(
            f"There is no crash point {point!r}", hint=f"There are: {', '.join(known)}"
        )
    times = 0

    def crash_point(name: str) -> None:
        nonlocal times
        times += name == point
        if name == point and times == nth:
            act()

    return crash_point
