"""Declarations of topics, and checks of them that are common to all logs."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import pyarrow as pa

from headrace.errors import (
    InvalidName,
    InvalidRecord,
    InvalidSchema,
    InvalidSetting,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
)
from headrace.log.event_time import check_event_time
from headrace.log.partitioner import key_bytes
from headrace.log.record import RAW_SCHEMA
from headrace.log.rows import RowReader
from headrace.log.state import Topic
from headrace.schema.ddl import check_arrow_schema, format_schema, parse_schema

MAX_PARTITIONS = 10_000

TOMBSTONE = pa.field("_tombstone", pa.bool_(), nullable=False)


@dataclass(frozen=True)
class TopicRow:
    """A topic as stored in its log; `columns` is its schema as DDL.

    A topic that is deleted and created again gets another `id`; altering it changes `version`.
    """

    id: int
    version: int
    columns: str | None
    topic: Topic

    @property
    def name(self) -> str:
        return self.topic.name

    @property
    def schema(self) -> pa.Schema:
        return topic_schema(self.columns)

    @cached_property
    def reader(self) -> RowReader:
        """The checks of rows from Python, for a typed topic."""
        return RowReader(self.topic)


@lru_cache(maxsize=1024)
def topic_schema(columns: str | None) -> pa.Schema:
    """The topic's columns, parsed from its DDL; None means raw bytes."""
    return RAW_SCHEMA if columns is None else parse_schema(columns)


@lru_cache(maxsize=1024)
def stored_schema(columns: str | None) -> pa.Schema:
    """The columns that rows are stored in.

    All are nullable, whatever the topic declares, since a tombstone has only its key.
    """
    fields = [field.with_nullable(True) for field in topic_schema(columns)]
    return pa.schema(fields if columns is None else [*fields, TOMBSTONE])


def unknown_topic(name: str, known: Iterable[str] = ()) -> UnknownTopic:
    """The error for a topic that does not exist, with the nearest of the `known` ones."""
    near = difflib.get_close_matches(name, known, 1)
    meant = f"Did you mean {near[0]!r}? " if near else ""
    return UnknownTopic(
        f"There is no topic {name!r}",
        hint=f"{meant}'headrace topics list' shows all topics; 'headrace topics create {name}' "
        "creates it",
        topic=name,
    )


def topic_exists(name: str) -> TopicExists:
    """The error for a topic that exists already."""
    return TopicExists(
        f"Topic {name!r} already exists",
        hint=f"'headrace topics describe {name}' shows it",
        topic=name,
    )


def check_key(row: TopicRow) -> None:
    """Raise unless a topic can have tombstones."""
    if row.topic.key is None:
        raise InvalidRecord(
            f"Topic {row.name!r} has no key column, so it cannot have tombstones",
            hint="Create it with a key",
            topic=row.name,
        )


def check_partition(row: TopicRow, partition: int) -> int:
    """Return the partition number, if the topic has that partition."""
    if not 0 <= partition < row.topic.partitions:
        raise UnknownPartition(
            f"Topic {row.name!r} has no partition {partition}",
            hint=f"It has partitions 0 to {row.topic.partitions - 1}",
            topic=row.name,
            partition=partition,
        )
    return partition


def check_partitions(partitions: int) -> None:
    """Check that a topic can have that many partitions."""
    if not 1 <= partitions <= MAX_PARTITIONS:
        raise InvalidSetting(
            f"A topic cannot have {partitions} partitions", hint=f"Choose 1 to {MAX_PARTITIONS}"
        )


def check_more_partitions(topic: Topic, partitions: int) -> None:
    """Check that a topic's partitions can be increased to that many."""
    check_partitions(partitions)
    if partitions < topic.partitions:
        raise InvalidSetting(
            f"Topic {topic.name!r} has {topic.partitions} partitions "
            f"and cannot be reduced to {partitions}",
            hint="Partitions hold records, so they can be added but not removed",
        )


def check_compaction(topic: Topic, columns: str | None) -> None:
    """Check that a compacted topic has a key."""
    if topic.settings.compacts and columns is not None and topic.key is None:
        raise InvalidSetting(
            f"Topic {topic.name!r} cannot be compacted: it has no key",
            hint="Name the key column, or use cleanup=delete",
        )


def columns_of(
    schema: str | pa.Schema | None, key: str | None, event_time: str | None
) -> str | None:
    """A schema as DDL, after checking its key and event-time columns; None for raw bytes."""
    if schema is None:
        for what, name in (("key", key), ("event-time", event_time)):
            if name is not None:
                raise InvalidSchema(
                    f"A topic of raw bytes has no {what} column {name!r}",
                    hint=f"Give the topic a schema, or omit the {what} column",
                )
        return None
    parsed = _parse(schema)
    if key is not None:
        if key not in parsed.names:
            raise InvalidSchema(
                f"The key column {key!r} is not in the schema",
                hint=f"The schema has: {', '.join(parsed.names)}",
            )
        key_bytes(pa.nulls(0, parsed.field(key).type))  # refuses a type that cannot be a key
    if event_time is not None:
        check_event_time(event_time, parsed)
    return format_schema(parsed)


def widened(row: TopicRow, schema: str | pa.Schema) -> str:
    """A topic's new columns as DDL, after checking that they extend the current ones."""
    if row.columns is None:
        raise InvalidSchema(f"Topic {row.name!r} holds raw bytes and cannot get columns")
    new, old = _parse(schema), row.schema
    if len(new) < len(old) or not all(map(_extends, new, old)):
        raise InvalidSchema(
            f"The new schema of {row.name!r} does not begin with its current columns",
            hint=f"Keep '{row.columns}' as it is and add columns after it, or fields after those "
            "of a struct",
        )
    for field in list(new)[len(old) :]:
        if not field.nullable:
            raise InvalidSchema(
                f"The new column {field.name!r} must be nullable: existing rows do not have it"
            )
    return format_schema(new)


def _extends(new: pa.Field, old: pa.Field) -> bool:
    """True if a field is the same as another, or a struct with more fields at its end."""
    if new.equals(old):
        return True
    if (new.name, new.nullable) != (old.name, old.nullable):
        return False
    if not pa.types.is_struct(new.type) or not pa.types.is_struct(old.type):
        return False
    fields, known = list(new.type), list(old.type)
    added = fields[len(known) :]
    return (
        len(fields) >= len(known)
        and all(map(_extends, fields, known))
        and all(field.nullable for field in added)
    )


def _parse(schema: str | pa.Schema) -> pa.Schema:
    return check_arrow_schema(schema) if isinstance(schema, pa.Schema) else parse_schema(schema)


_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")


def check_name(name: str, kind: str) -> str:
    """Return the name, if it is valid. `kind` is the word for the error, such as topic."""
    if not _NAME.fullmatch(name) or name in {".", ".."}:
        raise InvalidName(
            f"{name!r} is not a valid {kind} name",
            hint="Use 1 to 249 letters, digits, dots, underscores and dashes, "
            "and not just '.' or '..'",
            name=name,
        )
    return name
