"""A version of a view that is built beside the live one: it tells nobody of what it computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import apsw
import pyarrow as pa

from headrace.engine.crash import Reach
from headrace.engine.frames import Frames
from headrace.engine.law import Law
from headrace.engine.position import position_at
from headrace.engine.sink import Portion
from headrace.engine.steps import Step
from headrace.engine.wish import ANY
from headrace.errors import InvalidPipeline
from headrace.log import Log
from headrace.views import changelog
from headrace.views.database import Database
from headrace.views.outbox import Outbox
from headrace.views.sink import ViewSink, changelog_topic


class BuildSink(ViewSink):
    """Keeps the results of a step up to a limit, and publishes nothing."""

    def __init__(
        self, database: Database, log: Log, step: Step, frames: Frames, reach: Reach
    ) -> None:
        self.limits: Mapping[str, int] = {}
        """The last commit of each topic that is of interest; all of a topic that is not in it."""
        self._declared = step
        super().__init__(
            database,
            _NoOutbox(),
            log,
            quiet(step),
            frames.schema,
            frames.late_schema,
            frames.session_schema,
            changelog=False,
            reach=reach,
        )

    def limit(self, topic: str) -> int:
        return self.limits.get(topic, ANY)

    @property
    def schema(self) -> pa.Schema:
        """The columns of its panes."""
        return self._schema

    @property
    def lag(self) -> int:
        """Rows up to the limit that are not stored."""
        head = self._log.head()
        return sum(
            max(0, position_at(self._log, topic, min(head, self.limit(topic))).rows_after(position))
            for topic, position in self.reached.items()
        )

    def store(self, portion: Portion) -> Law:
        return super().store(replace(portion, dead=None))

    def prepare_changelog(self) -> str:
        """The changelog of the live view, made if need be. It has to have the same columns."""
        topic = changelog_topic(self._declared)
        assert topic is not None
        schema = changelog.envelope_schema(self._schema)
        self._create_topic(topic, schema, None, key="key")
        there = self._log.topic(topic).topic.schema
        assert there is not None
        if _columns(there) != _columns(schema):
            raise InvalidPipeline(
                f"The changelog {topic!r} has the columns that view {self._step.name!r} had before",
                hint=f"Its readers cannot be told of others: headrace topics delete {topic}, and "
                "the switch writes every row to a new one. Or give the view another name",
            )
        return topic

    def _create_topics(self, late_schema: pa.Schema | None) -> None:
        """None: those of the live step are there."""


def quiet(step: Step) -> Step:
    """A step that computes the same, and publishes nothing."""
    return replace(step, outputs=(), late=())


def _columns(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    return [(field.name, field.type) for field in schema.field("after").type]


class _NoOutbox(Outbox):
    """Where nothing is put, nothing is sent."""

    def __init__(self) -> None:
        pass

    def forget_sent(self, db: apsw.Connection) -> None:
        pass

    def send(self) -> None:
        pass
