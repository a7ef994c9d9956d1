"""Topics in the catalog: declared, changed, described and deleted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import apsw
import pyarrow as pa

from headrace.errors import (
    CorruptCatalog,
    InvalidSchema,
    InvalidSetting,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
    UserError,
)
from headrace.log.file.catalog import Catalog, many, one
from headrace.log.file.layout import topic_schema
from headrace.log.names import check_name
from headrace.log.partitioner import key_bytes
from headrace.log.settings import TopicSettings
from headrace.log.state import PartitionState, Topic, TopicState
from headrace.schema.ddl import check_arrow_schema, format_schema, parse_schema

MAX_PARTITIONS = 10_000


@dataclass(frozen=True)
class TopicRow:
    """A topic as the catalog has it; `columns` is its schema as DDL."""

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


_SELECT = """
    SELECT t.id, t.version, t.name, t.columns, t.key, t.event_time, t.settings,
        (SELECT count(*) FROM partition p WHERE p.topic = t.id)
    FROM topic t
"""


def _row(values: tuple[Any, ...]) -> TopicRow:
    id, version, name, columns, key, event_time, settings, partitions = values
    try:
        schema = None if columns is None else topic_schema(columns)
        changed = TopicSettings().change(json.loads(settings))
    except (TypeError, ValueError, UserError) as error:  # it was good when it was stored
        raise CorruptCatalog(
            f"What the catalog says of topic {name!r} cannot be read: {error}",
            hint="Restore the folder from a copy",
            topic=name,
        ) from error
    return TopicRow(id, version, columns, Topic(name, partitions, schema, key, event_time, changed))


def find_topic(db: apsw.Connection, name: str) -> TopicRow:
    """A topic by name."""
    row = one(db, _SELECT + "WHERE t.name = ?", check_name(name, "topic"))
    if row is None:
        raise UnknownTopic(
            f"There is no topic {name!r}",
            hint=f"'headrace topics list' shows what there is; "
            f"'headrace topics create {name}' makes it",
            topic=name,
        )
    return _row(row)


def topic_by_id(db: apsw.Connection, id: int) -> TopicRow | None:
    """A topic by its number; None if it has been deleted."""
    row = one(db, _SELECT + "WHERE t.id = ?", id)
    return None if row is None else _row(row)


def all_topics(db: apsw.Connection) -> list[TopicRow]:
    """Every topic, by name."""
    return [_row(tuple(row)) for row in many(db, _SELECT + "ORDER BY t.name")]


def check_partition(row: TopicRow, partition: int) -> int:
    """The partition number itself, if the topic has it."""
    if not 0 <= partition < row.topic.partitions:
        raise UnknownPartition(
            f"Topic {row.name!r} has no partition {partition}",
            hint=f"It has the partitions 0 to {row.topic.partitions - 1}",
            topic=row.name,
            partition=partition,
        )
    return partition


def create_topic(catalog: Catalog, topic: Topic, schema: str | pa.Schema | None) -> Topic:
    """Declare a topic as `topic` says, with `schema` for its columns."""
    name = check_name(topic.name, "topic")
    _check_partitions(topic.partitions)
    columns = _columns(schema, topic.key, topic.event_time)
    _check_compaction(topic, columns)
    with catalog.writing(synced=True) as db:
        if one(db, "SELECT 1 FROM topic WHERE name = ?", name):
            raise TopicExists(
                f"Topic {name!r} is there already",
                hint=f"'headrace topics describe {name}' shows it",
                topic=name,
            )
        db.execute(
            "INSERT INTO topic (name, columns, key, event_time, settings) VALUES (?, ?, ?, ?, ?)",
            (name, columns, topic.key, topic.event_time, json.dumps(topic.settings.to_text())),
        )
        _add_partitions(db, db.last_insert_rowid(), 0, topic.partitions)
        return find_topic(db, name).topic


def alter_topic(
    catalog: Catalog,
    name: str,
    settings: Mapping[str, Any] | None,
    partitions: int | None,
    schema: str | pa.Schema | None,
) -> Topic:
    with catalog.writing(synced=True) as db:
        row = find_topic(db, name)
        topic, columns = row.topic, row.columns
        changed = topic.settings.change(settings or {})
        _check_compaction(replace(topic, settings=changed), columns)
        if partitions is not None:
            _check_partitions(partitions)
            if partitions < topic.partitions:
                raise InvalidSetting(
                    f"Topic {name!r} has {topic.partitions} partitions, "
                    f"and cannot have fewer: {partitions}",
                    hint="Partitions hold records, so they can be added and not taken away",
                )
            _add_partitions(db, row.id, topic.partitions, partitions)
        if schema is not None:
            columns = _widened(row, schema)
        db.execute(
            "UPDATE topic SET settings = ?, columns = ?, version = version + 1 WHERE id = ?",
            (json.dumps(changed.to_text()), columns, row.id),
        )
        return find_topic(db, name).topic


def forget_topic(db: apsw.Connection, row: TopicRow) -> None:
    """Delete all the catalog knows of a topic, but its segments' files."""
    for table in ("chunk", "segment", "partition", "topic_commit", "claim", "group_offset"):
        db.execute(f"DELETE FROM {table} WHERE topic = ?", (row.id,))
    db.execute("DELETE FROM topic WHERE id = ?", (row.id,))


def describe_topic(db: apsw.Connection, name: str) -> TopicState:
    row = find_topic(db, name)
    states = []
    for partition, first, end in many(
        db, "SELECT partition, first, end FROM partition WHERE topic = ? ORDER BY partition", row.id
    ):
        segments, tiered, size = one(
            db,
            "SELECT count(*), count(location), coalesce(sum(length), 0) FROM segment "
            "WHERE topic = ? AND partition = ?",
            row.id,
            partition,
        ) or (0, 0, 0)
        last = one(
            db,
            "SELECT m.time FROM chunk c JOIN commits m ON m.number = c.number "
            "WHERE c.topic = ? AND c.partition = ? ORDER BY c.first DESC LIMIT 1",
            row.id,
            partition,
        )
        states.append(
            PartitionState(partition, first, end, segments, tiered, size, last[0] if last else None)
        )
    return TopicState(row.topic, tuple(states), frontier_at(db, row.id, None))


def frontier_at(db: apsw.Connection, topic: int, commit: int | None) -> int | None:
    """The topic's frontier after a commit; after the last, if None."""
    found = one(
        db,
        "SELECT after FROM topic_commit WHERE topic = ? AND number <= ? "
        "ORDER BY number DESC LIMIT 1",
        topic,
        (1 << 62) if commit is None else commit,
    )
    return None if found is None else found[0]


def _add_partitions(db: apsw.Connection, topic: int, start: int, stop: int) -> None:
    db.executemany(
        "INSERT INTO partition (topic, partition) VALUES (?, ?)",
        ((topic, partition) for partition in range(start, stop)),
    )


def _check_partitions(partitions: int) -> None:
    if not 1 <= partitions <= MAX_PARTITIONS:
        raise InvalidSetting(
            f"A topic cannot have {partitions} partitions", hint=f"Choose 1 to {MAX_PARTITIONS}"
        )


def _check_compaction(topic: Topic, columns: str | None) -> None:
    if topic.settings.compacts and columns is not None and topic.key is None:
        raise InvalidSetting(
            f"Topic {topic.name!r} cannot be compacted, since it has no key",
            hint="Name the key column, or use cleanup=delete",
        )


def _columns(schema: str | pa.Schema | None, key: str | None, event_time: str | None) -> str | None:
    if schema is None:
        for what, name in (("key", key), ("event-time", event_time)):
            if name is not None:
                raise InvalidSchema(
                    f"A topic of raw bytes has no {what} column {name!r}",
                    hint="Give the topic a schema, or leave the column out",
                )
        return None
    parsed = _parse(schema)
    for what, name in (("key", key), ("event-time", event_time)):
        if name is not None and name not in parsed.names:
            raise InvalidSchema(
                f"The {what} column {name!r} is not in the schema",
                hint=f"Its columns are: {', '.join(parsed.names)}",
            )
    if key is not None:
        key_bytes(pa.nulls(0, parsed.field(key).type))  # refuses a type that cannot be a key
    if event_time is not None and not pa.types.is_timestamp(parsed.field(event_time).type):
        raise InvalidSchema(
            f"The event-time column {event_time!r} must be a timestamp, "
            f"not {format_schema(pa.schema([parsed.field(event_time)]))!r}"
        )
    return format_schema(parsed)


def _parse(schema: str | pa.Schema) -> pa.Schema:
    return check_arrow_schema(schema) if isinstance(schema, pa.Schema) else parse_schema(schema)


def _widened(row: TopicRow, schema: str | pa.Schema) -> str:
    if row.columns is None:
        raise InvalidSchema(f"Topic {row.name!r} holds raw bytes and cannot be given columns")
    new, old = _parse(schema), row.schema
    if list(new)[: len(old)] != list(old):
        raise InvalidSchema(
            f"The new schema of {row.name!r} does not begin with its present columns",
            hint=f"Keep '{row.columns}' as it is and add columns after it",
        )
    for field in list(new)[len(old) :]:
        if not field.nullable:
            raise InvalidSchema(
                f"The new column {field.name!r} must be nullable: older rows do not have it"
            )
    return format_schema(new)
