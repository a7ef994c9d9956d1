"""The event time of a topic's rows: a column, or an expression over the record."""

from __future__ import annotations

import importlib
from typing import Any

import pyarrow as pa

from headrace.clock import micros
from headrace.errors import InvalidPosition, InvalidSchema, InvalidSetting
from headrace.log.state import Topic
from headrace.schema.ddl import format_schema


def time_column(topic: Topic) -> str | None:
    """The event-time column; None if the event time is an expression, or if there is none."""
    there = topic.schema is not None and topic.event_time in topic.schema.names
    return topic.event_time if there else None


def time_inputs(topic: Topic) -> tuple[str, ...]:
    """The columns that the event time is computed from."""
    if topic.event_time is None or topic.schema is None:
        return ()
    if time_column(topic) is not None:
        return (topic.event_time,)
    found: tuple[str, ...] = expressions().inputs(topic.event_time, topic.schema)
    return found


def times_of(topic: Topic, rows: pa.RecordBatch | pa.Table) -> pa.Array:
    """The event times of rows that have at least the columns of `time_inputs`."""
    assert topic.event_time is not None
    if topic.event_time in rows.schema.names:
        return rows.column(topic.event_time)
    return expressions().computed(topic.event_time, topic.schema, rows)


def has_event_time(topic: Topic) -> None:
    """Raise unless a topic has an event time, and so a frontier."""
    if topic.event_time is None:
        raise InvalidSetting(
            f"Topic {topic.name!r} has no event time, and so no frontier",
            hint="Create the topic with an event-time column",
        )


def last_believed(topic: Topic, now: int) -> int | None:
    """The latest valid event time by a clock; None if any is."""
    return None if topic.settings.skew is None else now + micros(topic.settings.skew)


def check_not_ahead(topic: Topic, moment: int, bound: int | None) -> None:
    """Raise if a frontier would move ahead of the latest valid event time."""
    if bound is not None and moment > bound:
        raise InvalidPosition(
            f"The frontier of topic {topic.name!r} cannot move ahead of the clock by more than the "
            "topic's skew",
            hint="Check this machine's clock, or raise the topic setting `skew`",
        )


def check_event_time(event_time: str, schema: pa.Schema) -> None:
    """Check that an event time is a timestamp column, or an expression over columns."""
    if event_time not in schema.names:
        expressions().check(event_time, schema)
    elif not pa.types.is_timestamp(schema.field(event_time).type):
        raise InvalidSchema(
            f"The event-time column {event_time!r} must be a timestamp, "
            f"not {format_schema(pa.schema([schema.field(event_time)]))!r}",
            hint=f"For a number, write event_time='timestamp_millis({event_time})'; for a text, "
            f"'to_timestamp({event_time})'",
        )


def check_embedded(topic: Topic, schema: pa.Schema) -> None:
    """Check that a log can compute the event times of a topic."""
    time = topic.event_time
    if time is None or time in schema.names:
        return
    expressions().check_computed(time, schema)
    if topic.settings.missing_time == "arrival":
        raise InvalidSetting(
            f"missing_time=arrival fills the event-time column, and {time!r} is not a column",
            hint="Omit it: rows without an event time are dead letters",
        )


def expressions() -> Any:
    """The module for expressions, which few topics have and which takes a second to load."""
    return importlib.import_module("headrace.log.time_expression")
