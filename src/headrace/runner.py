"""Running an application: its steps as queries of one Spark session, its results in its views.

run(app, until_caught_up=True)

with start(app) as running:
    running.wait()
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.clock import SECOND, Clock, SystemClock
from headrace.engine.crash import Reach, nothing
from headrace.engine.frames import Portions
from headrace.engine.idle import Heart
from headrace.engine.inputs import prepare_topics
from headrace.engine.position import Position, lag_of
from headrace.engine.progress import StepProgress
from headrace.engine.realtime.qualify import check_real_time
from headrace.engine.realtime.settings import RealTime
from headrace.engine.running import RunningStep, query_of
from headrace.engine.session import SparkSettings, spark_session
from headrace.engine.steps import steps_of
from headrace.errors import PipelineFailed
from headrace.java import jars
from headrace.live import LiveRun
from headrace.log import Capability, Log, open_log
from headrace.log.roles import Closing
from headrace.streams.app import App, Latency
from headrace.views.database import Database
from headrace.views.location import app_folder, checkpoint_of, database_of
from headrace.views.lock import only_run
from headrace.views.outbox import Outbox
from headrace.views.preflight import preflight
from headrace.views.sink import ViewSink
from headrace.views.switching import finish_switches

__all__ = ["LiveRun", "Run", "StepProgress", "run", "start"]

DEFAULT_LOG = "file:./data"

_RESTARTS = 3
"""How often in a row a step is started again after a worker died, without getting any further."""


@dataclass
class _Running:
    query: RunningStep
    sink: ViewSink
    restarts: int = 0
    failed_at: Mapping[str, Position] | None = None
    started: bool = False
    ended: bool = False


class Run(Closing):
    """An application that runs. Closing it stops it, and it can be started again at any time."""

    def __init__(
        self,
        app: App,
        log: str | Log | None = None,
        *,
        until_caught_up: bool = False,
        spark: SparkSession | None = None,
        settings: SparkSettings | None = None,
        portions: Portions | None = None,
        changelogs: bool = True,
        fresh: bool = False,
        clock: Clock | None = None,
        reach: Reach = nothing,
    ) -> None:
        self.app = app
        self._until_caught_up = until_caught_up
        self._clock = clock or SystemClock()
        self._stack = contextlib.ExitStack()
        steps = steps_of(app)
        try:
            if isinstance(log, Log):
                self.log = log
            else:
                self.log = self._stack.enter_context(open_log(log or app.log or DEFAULT_LOG))
            folder = app_folder(self.log.url, app.name)
            self._stack.enter_context(only_run(folder, app.name))
            for step in steps:
                prepare_topics(self.log, step)
            views = database_of(self.log.url, app.name)
            if fresh:
                _forget(folder, views)
            else:
                finish_switches(self.log.url, app.name)
                preflight(app, self.log).require()
            on_kafka = Capability.COMMITS not in self.log.capabilities
            self._spark = spark or spark_session(
                settings,
                log_file=folder / "spark.log",
                jars=jars("spark-kafka") if on_kafka else (),
            )
            database = Database(views, app.name)
            self._stack.callback(database.close)
            producer = self.log.producer(id=f"{app.name}.{database.generation}")
            self._stack.callback(producer.close)
            outbox = Outbox(database, producer, reach)
            self._running = []
            for step in steps:
                query = query_of(
                    self._spark,
                    self.log,
                    step,
                    checkpoint_of(self.log.url, app.name, step.name),
                    portions=portions,
                    reach=reach,
                    clock=self._clock,
                )
                sink = ViewSink(
                    database,
                    outbox,
                    self.log,
                    step,
                    query.frames.shapes,
                    changelog=changelogs,
                    reach=reach,
                )
                self._running.append(_Running(query, sink))
            outbox.send()
            self._heart = Heart(self.log, {t for step in steps for t in step.topics}, self._clock)
            if not until_caught_up and Capability.FRONTIERS in self.log.capabilities:
                self._heart.start()
                self._stack.callback(self._heart.stop)
            self._stack.callback(self.stop)
            for running in self._running:
                running.query.start(running.sink, until_caught_up=until_caught_up)
                running.started = True
                if running is not self._running[-1]:
                    running.query.wait_for_source(self._clock)
        except BaseException:
            self._stack.close()
            raise

    def wait(self, seconds: float | None = None) -> bool:
        """Whether all steps ended by themselves within so many seconds. A failure is raised."""
        until = None if seconds is None else self._clock.monotonic() + int(seconds * SECOND)
        # Every step is looked at, or the failure of a later one would wait for the first to end.
        while [running for running in self._running if not self._ended(running)]:
            self._heart.check()
            if until is not None and self._clock.monotonic() >= until:
                return False
        return True

    def progress(self) -> list[StepProgress]:
        """How each step is doing."""
        return [self._progress(running) for running in self._running]

    @property
    def queries(self) -> list[RunningStep]:
        """The streaming query of each step, for what Spark has to tell of it."""
        return [running.query for running in self._running]

    def stop(self) -> None:
        """Stop computing. What was stored stays, and `progress` can still be asked for."""
        for running in self._running:
            running.query.stop()

    def close(self) -> None:
        """Stop, and give everything back. The rest of the log is for the next run."""
        self._stack.close()

    def _ended(self, running: _Running) -> bool:
        if running.ended:
            return True
        try:
            if not running.started:
                running.query.start(running.sink, until_caught_up=self._until_caught_up)
                running.started = True
            running.ended = running.query.wait(0.1)
        except PipelineFailed as failure:
            running.started = False
            stuck = running.sink.reached == running.failed_at
            running.restarts = running.restarts + 1 if stuck else 1
            running.failed_at = running.sink.reached
            if running.restarts > _RESTARTS or not failure.details.get("by_chance"):
                raise
            self._clock.sleep(SECOND // 2)
        return running.ended

    def _progress(self, running: _Running) -> StepProgress:
        sink = running.sink
        lag = lag_of(self.log, sink.reached)
        return StepProgress(running.query.step.name, sink.law, sink.frontier, lag)


def start(
    app: App,
    log: str | Log | None = None,
    *,
    until_caught_up: bool = False,
    latency: Latency | None = None,
    spark: SparkSession | None = None,
    settings: SparkSettings | None = None,
    portions: Portions | None = None,
    real_time: RealTime | None = None,
    fresh: bool = False,
) -> Run | LiveRun:
    """Start an application in the background, to go on until it is closed.

    It runs on `spark`, or on this process's session, which is made as `settings` say if there is
    none yet. `latency` says how, if not as the application itself does: in micro-batches, with
    `portions` of the log in each, or in real time, with its place kept as `real_time` says.
    `fresh` forgets what was computed before.
    """
    if (latency or app.latency) == "real-time":
        where = log or app.log or DEFAULT_LOG
        url = where.url if isinstance(where, Log) else where
        check_real_time(app, url, until_caught_up=until_caught_up)
        return LiveRun(app, where, spark=spark, settings=settings, real_time=real_time, fresh=fresh)
    return Run(
        app,
        log,
        until_caught_up=until_caught_up,
        spark=spark,
        settings=settings,
        portions=portions,
        fresh=fresh,
    )


def run(
    app: App,
    log: str | Log | None = None,
    *,
    spark: SparkSession | None = None,
    settings: SparkSettings | None = None,
    portions: Portions | None = None,
) -> list[StepProgress]:
    """Run an application until it has caught up with the log; returns what became of all rows."""
    with start(
        app, log, until_caught_up=True, spark=spark, settings=settings, portions=portions
    ) as running:
        running.wait()
        return running.progress()


def _forget(folder: Path, views: Path) -> None:
    """Remove all that was computed. The log has what it was computed from."""
    for suffix in ("", "-wal", "-shm"):
        Path(f"{views}{suffix}").unlink(missing_ok=True)
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
