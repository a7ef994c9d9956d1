"""Schemas of the records of a topic, which name them by id, for the plans of queries.

A plan has the schemas that are known when its query starts. If a record has another, the query
fails before anything of the batch is stored. The driver looks it up and starts the query again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F

from headrace.errors import HeadraceError, PipelineFailed, Retryable
from headrace.log import Log, Topic
from headrace.log.kafka.registry import Registered, registry_of
from headrace.plan.kafka.connection import OnKafka

BY_ID = "avro-confluent"
"""The format whose records cannot be read without their schemas."""

Schemas = Mapping[int, Registered | None]
"""Schemas by id; None for an id that the registry does not know."""

_NEW = re.compile(
    r"topic '([^']+)' has a record of schema (\d+), which is new to the running query"
)


def schemas_of(log: Log | None, topic: Topic) -> Schemas:
    """The schemas that records of a topic are known to have; none for formats without ids."""
    if topic.settings.format != BY_ID:
        return {}
    assert isinstance(log, OnKafka)
    return registry_of(log.address, topic.name).schemas(topic.name)


def check_schemas(log: OnKafka, topic: Topic) -> None:
    """Raise if the records of a topic name schemas, and the log has no registry of them."""
    if topic.settings.format == BY_ID:
        registry_of(log.address, topic.name)


def fail_as_new(topic: Topic, number: Column) -> Column:
    """A condition that fails the query on a record of a schema that it does not know."""
    text = F.concat(
        F.lit(f"topic '{topic.name}' has a record of schema "),
        number,
        F.lit(", which is new to the running query"),
    )
    return F.raise_error(text).cast("boolean")


def learned(log: Log, step: str, errors: BaseException | None) -> HeadraceError | None:
    """The failure of a step on a new schema, after looking that up; None for any other failure."""
    found = _NEW.search(str(errors))
    if found is None or not isinstance(log, OnKafka):
        return None
    topic, number = found[1], int(found[2])
    try:
        registry_of(log.address, topic).learn(topic, number)
    except Retryable as error:
        message = f"Step {step!r} failed: {error.message}"
        return PipelineFailed(message, hint=error.hint, by_chance=True)
    except HeadraceError as error:
        return error
    return PipelineFailed(f"Step {step!r}: {found[0]}", by_chance=True, learned=True)
