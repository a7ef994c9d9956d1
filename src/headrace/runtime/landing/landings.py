"""The landings of an application, and the log that its steps then read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.closing import Closing
from headrace.log import Log, Topic, TopicSettings, open_log
from headrace.log.landed import LandedLog
from headrace.log.settings import MAX_RECORD_BYTES
from headrace.plan.crash_points import CrashPoint, nothing
from headrace.plan.kafka.connection import group_of
from headrace.plan.position import Positions, lags_of
from headrace.plan.source_options import BatchLimits
from headrace.plan.steps import extends
from headrace.runtime.landing.landing import Into, Landing
from headrace.runtime.task import Task
from headrace.store.location import checkpoint_of, landing_of
from headrace.store.outbox import Outbox
from headrace.store.sqlite.database import Database


class Landings(Closing):
    """The landings of an application, as tasks, and the resulting `log`."""

    def __init__(
        self,
        spark: SparkSession,
        app: str,
        broker: Log,
        topics: Sequence[Topic],
        database: Database,
        outbox: Outbox,
        *,
        until_caught_up: bool,
        batch_limits: BatchLimits,
        crash_point: CrashPoint = nothing,
    ) -> None:
        self._stack = contextlib.ExitStack()
        self.log = self._stack.enter_context(landed_log(broker, app, topics))
        inside = self.log.inside
        self.tasks = []
        self._landings: dict[str, Landing] = {}
        # so that Kafka's own tools show the progress
        tell = group_of(broker, f"{app}.landing")
        for topic in topics:
            landing = Landing(
                spark,
                app,
                topic,
                broker,
                checkpoint_of(broker.home, app, f"landing.{topic.name}"),
                Into(inside, database, outbox),
                tell,
                max_rows=batch_limits.max_rows,
                crash_point=crash_point,
            )
            self._stack.callback(landing.close)
            self._landings[topic.name] = landing
            start = partial(landing.start, until_caught_up=until_caught_up)
            place = partial(getattr, landing, "landed")
            self.tasks.append(Task(start, landing.wait, place))

    def lags_of(self, reached: Positions) -> dict[str, tuple[int, ...]]:
        """Rows per partition after a landed position, including those not landed yet, by topic."""
        return {
            topic: tuple(map(sum, zip_longest(here, self._landings[topic].lags(), fillvalue=0)))
            for topic, here in lags_of(self.log, reached).items()
        }

    def close(self) -> None:
        """Stop copying. The next run continues from there."""
        for landing in self._landings.values():
            landing.stop()
        self._stack.close()


def landed_log(broker: Log, app: str, topics: Iterable[Topic]) -> LandedLog:
    """The log of an application's landings, with these topics of a broker."""
    inside = open_log(f"file:{landing_of(broker.home, app)}")
    names = [_ensured(inside, _landed(topic)).name for topic in topics]
    return LandedLog(inside, broker, names)


def _ensured(inside: Log, topic: Topic) -> Topic:
    """A topic of a landing, with the columns that were added to it since."""
    there = inside.ensure_topic(topic)
    return inside.alter_topic(topic.name, schema=topic.schema) if extends(topic, there) else there


def _landed(topic: Topic) -> Topic:
    """A topic in the landed log. Records that do not fit its columns were removed before."""
    assert topic.schema is not None
    schema = pa.schema([field.with_nullable(True) for field in topic.schema])
    declared = topic.settings
    settings = TopicSettings(
        retention=declared.retention,
        # No size limit: the broker has already accepted the record.
        max_record_bytes=MAX_RECORD_BYTES,
        skew=declared.skew,
        frontier=declared.frontier,
        missing_time=declared.missing_time,
        idle=declared.idle,
    )
    return replace(topic, schema=schema, settings=settings)
