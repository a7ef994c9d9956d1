"""Creation of the topics that a step writes to."""

from __future__ import annotations

import pyarrow as pa

from headrace.errors import InvalidPipeline
from headrace.log import Log, Topic, TopicSettings
from headrace.log.dead_letter import DEAD_LETTER
from headrace.log.settings import MAX_RECORD_BYTES, READ_ONLY
from headrace.pipeline.output import PANE
from headrace.plan.kafka.connection import OnKafka
from headrace.plan.steps import Step
from headrace.store import changelog

_SETTINGS = TopicSettings(max_record_bytes=MAX_RECORD_BYTES)
"""The largest record size: a step has to write each of its rows."""


def create_topics(
    log: Log,
    step: Step,
    schema: pa.Schema,
    late_schema: pa.Schema | None,
    changes: str | None,
) -> None:
    """Create the topics of a step with results of that schema, and check those that exist."""
    # A step's key may be null, which is no key to a topic: outputs have one partition, in order.
    stream = step.stream
    _create_topic(log, step, step.dead_letters, DEAD_LETTER, "appended")
    for topic in step.late:
        assert late_schema is not None
        # Rows are late for the part that Spark computes.
        time = stream.computed.late_time(late_schema.names)
        _create_topic(log, step, topic, late_schema, time)
    published = schema
    if stream.has_panes:
        published = changelog.published(schema).append(pa.field(PANE, pa.string()))
    for topic in step.outputs:
        if step.passes_on is not None:
            made = step.passes_on
            _create_topic(log, step, topic, published, made.event_time, settings=made.settings)
        else:
            _create_topic(log, step, topic, published, stream.output_time(published.names))
    if changes is not None:
        _create_topic(log, step, changes, changelog.envelope_schema(schema), None, key="key")


def _create_topic(
    log: Log,
    step: Step,
    name: str,
    schema: pa.Schema,
    event_time: str | None,
    key: str | None = None,
    settings: TopicSettings = _SETTINGS,
) -> None:
    for field in schema:
        if field.name.startswith("_"):
            raise InvalidPipeline(
                f"Topic {name!r} cannot have a column {field.name!r}",
                hint="Names that start with an underscore are reserved",
            )
    nullable = pa.schema([field.with_nullable(True) for field in schema])
    declared = Topic(name, 1, nullable, key, event_time, settings)
    made = log.ensure_topic(declared)
    if isinstance(log, OnKafka) and made.settings.format in READ_ONLY:
        raise InvalidPipeline(
            f"Step {step.name!r} cannot write to topic {name!r}: headrace reads the format "
            f"{made.settings.format}, and does not write it",
            hint="Publish to another topic",
        )
    there = made.schema
    if there is None or not set(nullable.names) <= set(there.names):
        raise InvalidPipeline(
            f"Topic {name!r} exists already, without all columns that step {step.name!r} writes: "
            f"{', '.join(nullable.names)}",
            hint="Publish to another topic",
        )
