"""Run an application in real time: each step is a query that writes to topics row by row.

with LiveRun(app, "kafka://127.0.0.1:9092") as running:
    running.wait()
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.clock import MILLISECOND, SECOND, Clock, SystemClock
from headrace.closing import Closing
from headrace.errors import InvalidSetting
from headrace.log import Log, open_log
from headrace.pipeline.app import App
from headrace.pipeline.stream import sources
from headrace.plan.gaps import TOPICS, check_known
from headrace.plan.kafka.connection import cluster_of, connection_of, group_of
from headrace.plan.position import Position, total_lag
from headrace.plan.steps import Step, prepare_topics
from headrace.runtime.cluster import is_cluster, require_shared
from headrace.runtime.realtime.qualify import check_real_time
from headrace.runtime.realtime.query import RealTimeQuery, TableLetters
from headrace.runtime.realtime.settings import RealTime
from headrace.runtime.session import SparkSettings, spark_session
from headrace.runtime.task import StepProgress, Task, wait_for
from headrace.servers.java import jars
from headrace.store.location import app_folder, share_folder
from headrace.store.lock import only_run
from headrace.store.topics import create_topics

_SPARE = 2
"""Extra task slots for lookup tables."""

_WORKERS_WITHIN = 30 * SECOND
_POLL = 100 * MILLISECOND


class LiveRun(Closing):
    """An application that runs in real time. Closing it stops it, and it can be started again.

    A restart writes the records since the last checkpoint again. So delivery is at least once, and
    an alert has an id by which readers drop duplicates.
    """

    def __init__(
        self,
        app: App,
        log: str | Log,
        *,
        spark: SparkSession | None = None,
        settings: SparkSettings | None = None,
        real_time: RealTime | None = None,
        fresh: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self.app = app
        self._clock = clock or SystemClock()
        self._stack = contextlib.ExitStack()
        self.queries: list[RealTimeQuery] = []
        """The query of each step."""
        self._tasks: list[Task] = []
        real_time = real_time or RealTime()
        steps = check_real_time(app, log.url if isinstance(log, Log) else log)
        try:
            self.log = log if isinstance(log, Log) else self._stack.enter_context(open_log(log))
            connection_of(self.log)  # before anything is made: Spark may not take its settings
            share_folder(self.log.home, cluster_of(self.log))
            folder = app_folder(self.log.home, app.name)
            self._stack.enter_context(only_run(folder, app.name))
            for step in steps:
                prepare_topics(self.log, step)
            if fresh:
                shutil.rmtree(folder / "live", ignore_errors=True)
            check_known(self.log, folder / "live" / TOPICS, steps)
            settings = settings or SparkSettings()
            slots = _slots(self.log, steps, settings)
            spark = spark or spark_session(
                replace(settings, slots=slots),
                log_file=folder / "spark.log",
                jars=jars("spark-kafka"),
            )
            _check_slots(spark, slots, self._clock)
            if any(step.computed.has_spark_state for step in steps):
                require_shared(spark, folder)
            self._stack.callback(self.stop)
            for step in steps:
                checkpoint = folder / "live" / step.name
                query = RealTimeQuery(
                    spark,
                    self.log,
                    step,
                    checkpoint,
                    real_time,
                    group_of(self.log, f"{step.app}.{step.name}"),
                    self._letters(spark, step, checkpoint),
                )
                create_topics(self.log, step, query.plan.schema, query.plan.late_schema, None)
                self.queries.append(query)
                self._tasks.append(Task(query.start, query.wait, partial(_rows_of, query)))
            for task in self._tasks:
                task.begin()
        except BaseException:
            self._stack.close()
            raise

    def _letters(self, spark: SparkSession, step: Step, checkpoint: Path) -> TableLetters | None:
        """The writer of dead letters for the lookup table of a step; None without a table."""
        if not step.stream.looked_up:
            return None
        ((source,),) = map(sources, step.stream.looked_up)
        place = checkpoint / "headrace.table"
        return TableLetters(spark, self.log, step, source.topic, place)

    def wait(self, seconds: float | None = None) -> bool:
        """Return False after so many seconds. It does not end by itself. A failure is raised."""
        return wait_for(self._tasks, self._clock, seconds)

    def progress(self) -> list[StepProgress]:
        """The progress of each step at the last checkpoint. Its law is that of this run."""
        return [self._progress(query) for query in self.queries]

    def stop(self) -> None:
        """Stop the queries. `progress` still works."""
        for query in self.queries:
            query.stop()

    def close(self) -> None:
        """Stop, and release all resources."""
        self._stack.close()

    def _progress(self, query: RealTimeQuery) -> StepProgress:
        ends = {
            topic: [state.end for state in self.log.topic(topic).partitions]
            for topic in query.step.topics
        }
        none = Position(0, ())
        lags = {
            topic: query.reached.get(topic, none).rows_before(Position(0, tuple(partitions)))
            for topic, partitions in ends.items()
        }
        return StepProgress(query.step.name, query.law, None, total_lag(lags), lags)


def _rows_of(query: RealTimeQuery) -> int:
    return query.law.rows


def _slots(log: Log, steps: Sequence[Step], settings: SparkSettings) -> int:
    """The number of tasks that run at once: one for each partition, and those with state."""
    read = sum(len(log.topic(topic).partitions) for step in steps for topic in step.topics)
    keeping = sum(step.computed.has_spark_state for step in steps)
    return read + keeping * (settings.shuffle_partitions or settings.tasks) + _SPARE


def _check_slots(spark: SparkSession, slots: int, clock: Clock) -> None:
    """Return when so many tasks can run at once. A cluster gets time to start executors."""
    until = clock.monotonic() + _WORKERS_WITHIN
    while (there := spark.sparkContext.defaultParallelism) < slots:
        if not is_cluster(spark) or clock.monotonic() >= until:
            raise InvalidSetting(
                f"Spark can run {there} tasks at once, and real time needs {slots}",
                hint="Give Spark more cores, or the topics fewer partitions. A local Spark can "
                f"have more tasks than cores: local[{slots}]",
            )
        clock.sleep(_POLL)
