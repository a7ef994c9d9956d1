"""A version of a view that is built beside the live one and publishes nothing."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.errors import InvalidPipeline, ViewError
from headrace.log import Log
from headrace.operators.registry import operator_of
from headrace.plan.batch import Payload, Shapes, StepBatch
from headrace.plan.crash_points import CrashPoint
from headrace.plan.gaps import Gaps
from headrace.plan.law import Law
from headrace.plan.plans import Job
from headrace.plan.position import Positions, position_at
from headrace.plan.source_options import ANY, BatchLimits
from headrace.plan.steps import Step, fingerprints
from headrace.runtime.running import query_of
from headrace.store import changelog
from headrace.store.location import BuildPlace
from headrace.store.outbox import SilentOutbox
from headrace.store.sqlite.database import Database
from headrace.store.sqlite.sink import ViewSink, changelog_topic
from headrace.store.sqlite.stored import StoredStep, steps_in
from headrace.store.topics import create_topics

_LOOK = 0.25


class BuildSink(ViewSink):
    """Stores the results of a step up to a limit, and publishes nothing."""

    def __init__(
        self, database: Database, log: Log, step: Step, shapes: Shapes, crash_point: CrashPoint
    ) -> None:
        self.limits: Mapping[str, int] = {}
        """The last commit to read of each topic; no limit for others."""
        self._declared = step
        self._late_schema = shapes.late
        super().__init__(
            database,
            SilentOutbox(),
            log,
            quiet(step),
            shapes,
            operator_of(step.stream).keeper,
            changelog=False,
            crash_point=crash_point,
        )

    def limit(self, topic: str) -> int:
        return self.limits.get(topic, ANY)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the view, and its row counts."""
        return self._keeper.schema

    @property
    def lag(self) -> int:
        """Rows up to the limit that are not stored."""
        head = self._log.head()
        return sum(
            max(0, position_at(self._log, topic, min(head, self.limit(topic))).rows_after(position))
            for topic, position in self.reached.items()
        )

    def store(self, batch: StepBatch[Payload]) -> Law:
        return super().store(replace(batch, dead=None))

    def prepare_changelog(self) -> str:
        """Return the changelog of the live view, created if missing. Its columns have to match.

        The topics that the step publishes to have to match too, or the next run would be refused.
        """
        topic = changelog_topic(self._declared)
        assert topic is not None
        create_topics(self._log, self._declared, self.schema, self._late_schema, topic)
        schema = changelog.envelope_schema(self.schema)
        there = self._log.topic(topic).topic.schema
        assert there is not None
        if _columns(there) != _columns(schema):
            raise InvalidPipeline(
                f"The changelog {topic!r} has the columns that view {self._step.name!r} had before",
                hint=f"A changelog cannot change its columns. Run headrace topics delete {topic}, "
                "and the switch writes every row to a new one. Or rename the view",
            )
        return topic

    def _create_topics(self, late_schema: pa.Schema | None, changes: str | None) -> None:
        """Do nothing: the live step has created them."""


class Build:
    """The build of a step, in its own folder."""

    def __init__(
        self,
        spark: SparkSession,
        log: Log,
        step: Step,
        place: BuildPlace,
        *,
        batch_limits: BatchLimits | None,
        crash_point: CrashPoint,
    ) -> None:
        self.place = place
        self._done: Mapping[str, int] | None = None
        name = f"{step.app}.{step.name}.rebuild"
        self._query = query_of(
            Job(spark, log, step, place.checkpoint),
            batch_limits=batch_limits,
            crash_point=crash_point,
            name=name,
        )
        self._database = Database(place.database, step.app)
        self.sink = BuildSink(self._database, log, step, self._query.shapes, crash_point)

    def advance(self, limits: Mapping[str, int], look: Callable[[], None]) -> None:
        """Compute up to these commits of its topics, calling `look` in between."""
        if limits == self._done:
            return
        self.sink.limits = limits
        try:
            self._query.start(self.sink, until_caught_up=True)
            while not self._query.wait(_LOOK):
                look()
        finally:
            self._query.stop()
        look()
        self._done = limits

    def is_ahead(self, limits: Mapping[str, int]) -> bool:
        """True if it has read past the limits."""
        return _is_ahead(self.sink.reached, limits)

    def close(self) -> None:
        """Release all resources. The build stays."""
        self._database.close()


def limits_of(step: Step, live: StoredStep | None, head: int) -> dict[str, int]:
    """The last commit to read of each topic: that of the live step, or the newest."""
    reached = live.reached if live is not None else {}
    newest = max((position.commit for position in reached.values()), default=head)
    return {t: reached[t].commit if t in reached else newest for t in step.topics}


def make_room(log: Log, place: BuildPlace, step: Step, limits: Mapping[str, int]) -> None:
    """Remove an earlier build, unless it can be resumed."""
    before = None
    with contextlib.suppress(ViewError):
        before = steps_in(place.database).get(step.name)
    if (
        before is None
        or before.fingerprint not in fingerprints(step)
        or _is_ahead(before.reached, limits)
        or Gaps(log, step.name, step.topics).found(before.reached) is not None
    ):
        shutil.rmtree(place.folder, ignore_errors=True)


def _is_ahead(reached: Positions, limits: Mapping[str, int]) -> bool:
    return any(place.commit > limits.get(topic, 0) for topic, place in reached.items())


def quiet(step: Step) -> Step:
    """The same step without outputs."""
    return replace(step, outputs=(), late=(), selective=())


def _columns(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    return [(field.name, field.type) for field in schema.field("after").type]
