"""The topics that a step reads: created if missing, else compared with their declaration."""

from __future__ import annotations

from headrace.errors import InvalidPipeline
from headrace.log import Log, Topic
from headrace.pipeline.where import Where
from headrace.plan.kafka.connection import OnKafka, connection_of
from headrace.plan.steps import Step, inputs_of
from headrace.schema.ddl import format_schema


def prepare_topics(log: Log, step: Step) -> None:
    """Create the topics that a step reads, and compare those that exist."""
    if isinstance(log, OnKafka):
        connection_of(log)  # before anything is created: Spark may not support the settings
    for source in inputs_of(step):
        _check_topic(log.ensure_topic(source.topic), source.topic, source.where)


def topics_of(step: Step) -> list[Topic]:
    """The topics that a step reads, as declared."""
    return [source.topic for source in inputs_of(step)]


def check_topics(log: Log, step: Step) -> None:
    """Compare the existing topics that a step reads with their declaration."""
    there = {topic.name: topic for topic in log.topics()}
    for source in inputs_of(step):
        if source.topic.name in there:
            _check_topic(there[source.topic.name], source.topic, source.where)


def _check_topic(there: Topic, wanted: Topic, where: Where) -> None:
    assert wanted.schema is not None
    fields = {} if there.schema is None else {field.name: field.type for field in there.schema}
    wrong = [f.name for f in wanted.schema if fields.get(f.name) != f.type]
    if wrong or there.event_time != wanted.event_time:
        schema = "raw bytes" if there.schema is None else format_schema(there.schema)
        raise InvalidPipeline(
            f"Topic {there.name!r} is not as declared: it has {schema}, with the event time "
            f"{there.event_time!r}",
            hint=f"Change the declaration to match, or use another topic. See {where}",
        )
