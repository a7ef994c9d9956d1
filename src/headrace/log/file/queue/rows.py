"""Queues and their messages as rows of the catalog, and what other parts of the log do to them."""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from typing import Any, Final

import apsw

from headrace.errors import UnknownQueue
from headrace.log.declared import check_name
from headrace.log.file.catalog import many, one
from headrace.log.queueing import QueueRow, QueueSettings

READY: Final = 0
"""It can be handed out."""
ACQUIRED: Final = 1
"""A worker has it until its lease ends."""
HELD: Final = 2
"""It waits for a time, and meanwhile has its key's turn."""
BLOCKED: Final = 3
"""It waits for its key's turn."""
DELAYED: Final = 4
"""It waits for a time, and takes its place in its key's line after that."""

PLACE = "queue = ? AND partition = ? AND offset = ?"


@dataclass(frozen=True, slots=True)
class Now:
    """A moment: the wall clock, for delays; and the monotonic one and the boot, for leases."""

    wall: int
    beat: int
    boot: str


_SELECT = """
    SELECT q.id, q.name, t.name, t.uid, q.settings FROM queue q JOIN topic t ON t.id = q.topic
"""


def _row(values: tuple[Any, ...]) -> QueueRow:
    id, name, topic, uid, settings = values
    return QueueRow(id, name, topic, uid, QueueSettings().change(json.loads(settings)))


def find_queue(db: apsw.Connection, name: str) -> QueueRow:
    """A queue by name."""
    found = one(db, _SELECT + "WHERE q.name = ?", check_name(name, "queue"))
    if found is None:
        known = [row.name for row in all_queues(db)]
        near = difflib.get_close_matches(name, known, 1)
        raise UnknownQueue(
            f"There is no queue {name!r}",
            hint=f"Did you mean {near[0]!r}?"
            if near
            else "Create it: headrace queue create " + name,
            queue=name,
        )
    return _row(found)


def queue_by_id(db: apsw.Connection, queue: QueueRow) -> QueueRow:
    """The current row of a queue, whose settings may have changed."""
    found = one(db, _SELECT + "WHERE q.id = ?", queue.id)
    if found is None:
        raise UnknownQueue(
            f"Queue {queue.name!r} was deleted", hint="Create and open it again", queue=queue.name
        )
    return _row(found)


def all_queues(db: apsw.Connection) -> list[QueueRow]:
    """Every queue, by name."""
    return [_row(row) for row in many(db, _SELECT + "ORDER BY q.name")]


def unfinished(db: apsw.Connection, queue: int) -> tuple[int, int]:
    """The numbers of messages with a row, and of those that were not looked at yet."""
    held, unread = one(
        db,
        "SELECT q.held, (SELECT coalesce(sum(p.end - max(i.indexed, p.first)), 0) "
        "FROM queue_partition i JOIN partition p ON p.partition = i.partition "
        "WHERE i.queue = q.id AND p.topic = q.topic) FROM queue q WHERE q.id = ?",
        queue,
    ) or (0, 0)
    return held, unread


def places(db: apsw.Connection, queue: int) -> list[tuple[int, int, int]]:
    """Each partition of a queue, the first offset that was not looked at, and the topic's end."""
    return many(
        db,
        "SELECT i.partition, max(i.indexed, p.first), p.end FROM queue q "
        "JOIN queue_partition i ON i.queue = q.id "
        "JOIN partition p ON p.topic = q.topic AND p.partition = i.partition WHERE q.id = ?",
        queue,
    )


def change_held(db: apsw.Connection, queue: int, by: int) -> None:
    """Count messages whose rows were added or removed."""
    db.execute("UPDATE queue SET held = held + ? WHERE id = ?", (by, queue))


def extend_queues(db: apsw.Connection, topic: int, start: int, stop: int) -> None:
    """Let the queues over a topic follow it into partitions that are added."""
    db.executemany(
        "INSERT INTO queue_partition SELECT id, ?, 0 FROM queue WHERE topic = ?",
        ((partition, topic) for partition in range(start, stop)),
    )


def forget_queue(db: apsw.Connection, queue: int) -> None:
    """Delete a queue's state."""
    for table in ("queue_partition", "message", "queue_key", "dead_message"):
        db.execute(f"DELETE FROM {table} WHERE queue = ?", (queue,))
    db.execute("DELETE FROM queue WHERE id = ?", (queue,))


def forget_queues(db: apsw.Connection, topic: int) -> None:
    """Delete the queues over a topic that is being deleted."""
    for (queue,) in many(db, "SELECT id FROM queue WHERE topic = ?", topic):
        forget_queue(db, queue)


def roll_back_queues(db: apsw.Connection) -> None:
    """Forget messages that a recovery took back."""
    beyond = (
        "offset >= (SELECT p.end FROM queue q JOIN partition p ON p.topic = q.topic "
        "WHERE q.id = {0}.queue AND p.partition = {0}.partition)"
    )
    for table in ("message", "dead_message"):
        db.execute(f"DELETE FROM {table} WHERE {beyond.format(table)}")
    db.execute(
        "UPDATE queue_partition SET indexed = min(indexed, (SELECT p.end FROM queue q "
        "JOIN partition p ON p.topic = q.topic WHERE q.id = queue_partition.queue "
        "AND p.partition = queue_partition.partition))"
    )
    db.execute("UPDATE queue SET held = (SELECT count(*) FROM message m WHERE m.queue = queue.id)")


def first_unfinished(db: apsw.Connection, topic: int, partition: int) -> int | None:
    """The first offset that a queue still needs; None if no queue needs any."""
    found = one(
        db,
        "SELECT min(coalesce((SELECT min(m.offset) FROM message m WHERE m.queue = i.queue "
        "AND m.partition = i.partition), i.indexed)) FROM queue q "
        "JOIN queue_partition i ON i.queue = q.id WHERE q.topic = ? AND i.partition = ?",
        topic,
        partition,
    )
    return None if found is None else found[0]
