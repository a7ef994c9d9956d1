"""Run an application: its steps as queries of one Spark session, its results in its views.

run(app, until_caught_up=True)

with start(app) as running:
    running.wait()
"""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import overload

from pyspark.sql import SparkSession

from headrace.application.bounded import BatchResult, Over, compute_over
from headrace.application.chains import follow, part_topics
from headrace.application.live import LiveRun
from headrace.application.preflight import begins_anew, preflight
from headrace.application.stores import followers_of
from headrace.clock import SECOND, Clock, SystemClock
from headrace.closing import Closing
from headrace.errors import LawBroken, PipelineError
from headrace.log import DEFAULT_LOG, Log, open_log
from headrace.log.cutting import Cutting
from headrace.log.idle import IdleHeartbeat
from headrace.operators.registry import operator_of
from headrace.pipeline.app import App, Latency
from headrace.plan.crash_points import CrashPoint, nothing
from headrace.plan.kafka.connection import cluster_of
from headrace.plan.plans import Job
from headrace.plan.position import lags_of, total_lag
from headrace.plan.source_options import BatchLimits
from headrace.plan.steps import Step, prepare_topics, steps_of, with_schemas
from headrace.runtime.cluster import is_cluster, require_local, require_shared
from headrace.runtime.realtime.qualify import check_real_time
from headrace.runtime.realtime.settings import RealTime
from headrace.runtime.rounds import Rounds
from headrace.runtime.running import RunningStep, query_of
from headrace.runtime.session import SparkSettings, spark_session
from headrace.runtime.task import StepProgress, Task, died, wait_for
from headrace.runtime.tracing import traces
from headrace.store.location import app_folder, checkpoint_of, database_of, share_folder
from headrace.store.lock import only_run
from headrace.store.outbox import Outbox
from headrace.store.sqlite.database import Database
from headrace.store.sqlite.sink import ViewSink
from headrace.store.sqlite.stored import steps_in
from headrace.store.sqlite.switching import finish_switches
from headrace.store.status import StoreStatus

__all__ = ["LiveRun", "Run", "StepProgress", "run", "start"]


@dataclass(frozen=True)
class _Running:
    query: RunningStep
    sink: ViewSink
    task: Task


class Run(Closing):
    """An application that runs. Closing it stops it, and it can be started again."""

    def __init__(
        self,
        app: App,
        log: str | Log | None = None,
        *,
        until_caught_up: bool = False,
        spark: SparkSession | None = None,
        settings: SparkSettings | None = None,
        batch_limits: BatchLimits | None = None,
        changelogs: bool = True,
        stores: bool = True,
        fresh: bool = False,
        clock: Clock | None = None,
        crash_point: CrashPoint = nothing,
    ) -> None:
        self.app = app
        self._until_caught_up = until_caught_up
        self._batch_limits = batch_limits or BatchLimits()
        self._changelogs = changelogs
        self._stores = stores
        self._clock = clock or SystemClock()
        self._crash_point = crash_point
        self._stack = contextlib.ExitStack()
        self._steps = steps_of(app)
        try:
            if isinstance(log, Log):
                self.log = log
            else:
                self.log = self._stack.enter_context(open_log(log or app.log or DEFAULT_LOG))
            self._prepare(spark, settings, fresh=fresh)
            self._compose()
            self._begin()
        except BaseException:
            self._stack.close()
            raise

    def _prepare(
        self, spark: SparkSession | None, settings: SparkSettings | None, *, fresh: bool
    ) -> None:
        """Check that it can run, and open the session, the database and the outbox."""
        if self.log.judges_rows:
            share_folder(self.log.home, cluster_of(self.log))
        app, home = self.app.name, self.log.home
        folder, views = app_folder(home, app), database_of(home, app)
        self._stack.enter_context(only_run(folder, app))
        for step in self._steps:
            prepare_topics(self.log, step)
        if fresh or begins_anew(self._steps, steps_in(views)):
            _remove_results(folder, views)
            for topic in part_topics(self.log, self._steps):
                self.log.delete_topic(topic)
        else:
            finish_switches(home, app)
        if not fresh:
            preflight(self.app, self.log).require()
        self._spark = spark or spark_session(settings, log_file=folder / "spark.log")
        require_local(self._spark, self.log.url)
        if self.log.judges_rows and any(step.computed.has_spark_state for step in self._steps):
            require_shared(self._spark, folder)
        self._database = Database(views, app)
        self._stack.callback(self._database.close)
        producer = self.log.producer(id=f"{app}.{self._database.generation}")
        self._stack.callback(producer.close)
        self._outbox = Outbox(self._database, self.log, producer, self._crash_point)

    def _compose(self) -> None:
        """Make the query and the sink of each step."""
        self._tasks: list[Task] = []
        self._running = []
        for step in self._steps:
            checkpoint = checkpoint_of(self.log.home, self.app.name, step.name)
            step = with_schemas(self.log, step)
            query = query_of(
                Job(self._spark, self.log, step, checkpoint),
                batch_limits=self._batch_limits,
                crash_point=self._crash_point,
                clock=self._clock,
            )
            sink = ViewSink(
                self._database,
                self._outbox,
                self.log,
                step,
                query.shapes,
                operator_of(step.stream).keeper,
                changelog=self._changelogs or _has_stores(step),
                crash_point=self._crash_point,
            )
            task = Task(
                partial(self._start, query, sink),
                query.wait,
                partial(getattr, sink, "reached"),
                by_chance=self._by_chance,
            )
            self._running.append(_Running(query, sink, task))
            self._tasks.append(task)
        if self._until_caught_up:
            follow(self._steps, {r.query.step.name: r.task for r in self._running})
        self._followers = followers_of(
            self.app, self.log, self._clock, crash_point=self._crash_point
        )
        topics = {topic for step in self._steps for topic in step.topics}
        self._heartbeat = IdleHeartbeat(self.log, topics, self._clock)
        self._cutting = Cutting(self.log, topics, self._batch_limits.max_rows)

    def _start(self, query: RunningStep, sink: ViewSink) -> None:
        """Start the query of a step. Rounds catch up with the commits that there are by then."""
        if self._until_caught_up and isinstance(query, Rounds):
            self.log.cut(query.step.topics, rows=self._batch_limits.max_rows)
        query.start(sink, until_caught_up=self._until_caught_up)

    def _begin(self) -> None:
        self._outbox.send()
        for running in self._running:
            running.sink.pass_on_time()
        if not self._until_caught_up:
            self._heartbeat.start()
            self._stack.callback(self._heartbeat.stop)
        if self.log.judges_rows:
            self._cutting.start()
            self._stack.callback(self._cutting.stop)
        self._stack.callback(self._followers.close)
        if self._stores:
            self._followers.start()
        self._stack.callback(self.stop)
        queries = {id(running.task): running.query for running in self._running}
        for task in self._tasks:
            task.begin()
            if task.started and id(task) in queries and task is not self._tasks[-1]:
                queries[id(task)].wait_for_source(self._clock)

    def wait(self, seconds: float | None = None) -> bool:
        """True if all steps end by themselves within so many seconds. A failure is raised.

        The stores of the views have to catch up as well.
        """
        began = self._clock.monotonic()
        if not wait_for(self._tasks, self._clock, seconds, self._check):
            return False
        while self._stores and not self._followers.caught_up():
            if seconds is not None and self._clock.monotonic() - began >= seconds * SECOND:
                return False
            self._clock.sleep(SECOND // 50)
        return True

    def _check(self) -> None:
        self.log.check_there()
        self._heartbeat.check()
        self._cutting.check()

    def progress(self) -> list[StepProgress]:
        """The progress of each step."""
        return [self._progress(running) for running in self._running]

    def stores(self) -> list[StoreStatus]:
        """The state of each store of the views, if they are followed."""
        return self._followers.statuses() if self._stores else []

    @property
    def queries(self) -> list[RunningStep]:
        """The query of each step."""
        return [running.query for running in self._running]

    def stop(self) -> None:
        """Stop the queries. Stored results stay, and `progress` still works."""
        for running in self._running:
            running.query.stop()
        self._followers.stop()

    def close(self) -> None:
        """Stop, and release all resources."""
        self._stack.close()

    def _by_chance(self, failure: PipelineError) -> bool:
        """True if a restart may get past a failure.

        If a cluster loses a worker, Spark repeats some tasks and counts their rows twice. Such a
        batch breaks the row law, is not stored, and is computed again.
        """
        if isinstance(failure, LawBroken):
            return is_cluster(self._spark)
        return died(failure)

    def _progress(self, running: _Running) -> StepProgress:
        sink = running.sink
        lags = lags_of(self.log, sink.reached)
        step = running.query.step
        return StepProgress(step.name, sink.law, sink.frontier, total_lag(lags), lags, step.delay)


def _has_stores(step: Step) -> bool:
    return step.view is not None and bool(step.view.stores)


def start(
    app: App,
    log: str | Log | None = None,
    *,
    until_caught_up: bool = False,
    latency: Latency | None = None,
    spark: SparkSession | None = None,
    settings: SparkSettings | None = None,
    batch_limits: BatchLimits | None = None,
    real_time: RealTime | None = None,
    stores: bool = True,
    fresh: bool = False,
) -> Run | LiveRun:
    """Start an application in the background, to run until it is closed.

    It runs on `spark`, or on this process's session, which is made from `settings` if there is
    none. `latency` overrides the application's own: micro-batches of at most `batch_limits`, or
    real time with the settings `real_time`. Without `stores`, those of the views are left to
    `headrace stores run` in other processes. `fresh` removes all earlier results first.
    """
    traces()  # refuse settings that are wrong before Spark starts
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
        batch_limits=batch_limits,
        stores=stores,
        fresh=fresh,
    )


@overload
def run(
    app: App,
    log: str | Log | None = None,
    *,
    spark: SparkSession | None = None,
    settings: SparkSettings | None = None,
    batch_limits: BatchLimits | None = None,
) -> list[StepProgress]: ...


@overload
def run(
    app: App,
    log: str | Log | None = None,
    *,
    over: Over,
    spark: SparkSession | None = None,
    settings: SparkSettings | None = None,
) -> BatchResult: ...


def run(
    app: App,
    log: str | Log | None = None,
    *,
    over: Over | None = None,
    spark: SparkSession | None = None,
    settings: SparkSettings | None = None,
    batch_limits: BatchLimits | None = None,
) -> list[StepProgress] | BatchResult:
    """Run an application until it has caught up with the log; return the progress of each step.

    `over` computes it once instead, in one batch of Spark, and returns the results: over files
    ("history/*.parquet", or a mapping of topics to files), or over a `LogRange` of the log.
    Nothing is stored, and the results equal those of a run, late rows included.
    """
    if over is not None:
        return compute_over(app, log, over, spark=spark, settings=settings)
    with start(
        app, log, until_caught_up=True, spark=spark, settings=settings, batch_limits=batch_limits
    ) as running:
        running.wait()
        return running.progress()


def _remove_results(folder: Path, views: Path) -> None:
    """Remove all results and checkpoints. They can be computed again from the log."""
    for suffix in ("", "-wal", "-shm"):
        Path(f"{views}{suffix}").unlink(missing_ok=True)
    # Earlier versions copied topics of Kafka into a landing.
    for name in ("checkpoints", "landing"):
        shutil.rmtree(folder / name, ignore_errors=True)
