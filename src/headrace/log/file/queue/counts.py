"""Counts of a queue's messages."""

from __future__ import annotations

import apsw

from headrace.log.file.catalog import one
from headrace.log.file.queue.rows import ACQUIRED, BLOCKED, unfinished
from headrace.log.queueing import QueueRow, QueueState


def state(db: apsw.Connection, queue: QueueRow) -> QueueState:
    """The counts of a queue's messages, and the time of the oldest."""
    held, unread = unfinished(db, queue.id)
    acquired = count(db, queue, ACQUIRED)
    delayed, blocked = one(
        db,
        "SELECT (SELECT count(*) FROM message WHERE queue = ?1 AND due IS NOT NULL), "
        f"(SELECT count(*) FROM message WHERE queue = ?1 AND state = {BLOCKED} "
        "AND key IS NOT NULL)",
        queue.id,
    ) or (0, 0)
    dead = one(db, "SELECT count(*) FROM dead_message WHERE queue = ?", queue.id)
    oldest = one(
        db,
        "SELECT min(c.time) FROM commits c WHERE c.number IN ("
        "SELECT (SELECT number FROM message m WHERE m.queue = i.queue "
        "AND m.partition = i.partition ORDER BY m.offset LIMIT 1) "
        "FROM queue_partition i WHERE i.queue = ?1 UNION ALL "
        "SELECT (SELECT k.number FROM chunk k JOIN queue q ON q.topic = k.topic "
        "WHERE q.id = i.queue AND k.partition = i.partition AND k.first >= i.indexed "
        "ORDER BY k.first LIMIT 1) FROM queue_partition i WHERE i.queue = ?1)",
        queue.id,
    )
    return QueueState(
        queue.name,
        ready=held - acquired - delayed - blocked,
        acquired=acquired,
        delayed=delayed,
        blocked=blocked,
        unread=unread,
        dead=dead[0] if dead else 0,
        oldest=oldest[0] if oldest else None,
    )


def count(db: apsw.Connection, queue: QueueRow, state: int, limit: int = -1) -> int:
    """The number of messages in a state, counted up to a limit. The state is in the SQL, so that
    its index serves it."""
    sql = (
        f"SELECT count(*) FROM (SELECT 1 FROM message WHERE queue = ? AND state = {state} LIMIT ?)"
    )
    found = one(db, sql, queue.id, limit)
    return int(found[0]) if found else 0
