"""Topics in the catalog: declared, changed, described and deleted."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import apsw
import pyarrow as pa

from headrace.errors import CorruptCatalog, UserError
from headrace.log.declared import (
    TopicRow,
    check_compaction,
    check_more_partitions,
    check_name,
    check_partitions,
    columns_of,
    topic_exists,
    topic_schema,
    unknown_topic,
    widened,
)
from headrace.log.event_time import check_embedded
from headrace.log.file.catalog import Catalog, many, one
from headrace.log.file.queue.rows import extend_queues, forget_queues
from headrace.log.matches import check_index, check_same_index
from headrace.log.settings import TopicSettings
from headrace.log.state import PartitionState, Topic, TopicState

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
    except (TypeError, ValueError, UserError) as error:  # it was valid when it was stored
        raise CorruptCatalog(
            f"The catalog's entry for topic {name!r} cannot be read: {error}",
            hint="Restore the folder from a backup",
            topic=name,
        ) from error
    return TopicRow(id, version, columns, Topic(name, partitions, schema, key, event_time, changed))


def find_topic(db: apsw.Connection, name: str) -> TopicRow:
    """A topic by name."""
    row = one(db, _SELECT + "WHERE t.name = ?", check_name(name, "topic"))
    if row is None:
        known = db.execute("SELECT name FROM topic")
        raise unknown_topic(name, [str(other) for (other,) in known])
    return _row(row)


def topic_by_id(db: apsw.Connection, id: int) -> TopicRow | None:
    """A topic by its id; None if it has been deleted."""
    row = one(db, _SELECT + "WHERE t.id = ?", id)
    return None if row is None else _row(row)


def all_topics(db: apsw.Connection) -> list[TopicRow]:
    """Every topic, by name."""
    return [_row(tuple(row)) for row in many(db, _SELECT + "ORDER BY t.name")]


def create_topic(catalog: Catalog, topic: Topic, schema: str | pa.Schema | None) -> Topic:
    """Create a topic as declared in `topic`, with the columns of `schema`."""
    name = check_name(topic.name, "topic")
    check_partitions(topic.partitions)
    columns = columns_of(schema, topic.key, topic.event_time)
    check_compaction(topic, columns)
    check_index(name, topic.settings, topic_schema(columns))
    check_embedded(topic, topic_schema(columns))
    with catalog.writing(synced=True) as db:
        if one(db, "SELECT 1 FROM topic WHERE name = ?", name):
            raise topic_exists(name)
        db.execute(
            "INSERT INTO topic (name, columns, key, event_time, settings, uid) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            (
                name, columns, topic.key, topic.event_time,
                json.dumps(topic.settings.to_text()), secrets.randbits(63),
            ),
        )  # fmt: skip
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
        check_compaction(replace(topic, settings=changed), columns)
        check_same_index(name, topic.settings, changed)
        if partitions is not None:
            check_more_partitions(topic, partitions)
            _add_partitions(db, row.id, topic.partitions, partitions)
        if schema is not None:
            columns = widened(row, schema)
        db.execute(
            "UPDATE topic SET settings = ?, columns = ?, version = version + 1 WHERE id = ?",
            (json.dumps(changed.to_text()), columns, row.id),
        )
        return find_topic(db, name).topic


def forget_topic(db: apsw.Connection, row: TopicRow) -> None:
    """Delete a topic from the catalog, and its queues. The files of its segments stay."""
    forget_queues(db, row.id)
    for table in ("chunk", "segment", "partition", "topic_commit", "claim", "group_offset", "mark"):
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
    """The topic's frontier after a commit, by default the last."""
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
    extend_queues(db, topic, start, stop)
