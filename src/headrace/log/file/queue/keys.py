"""Turns of keys: in order, and within limits of concurrency and rate.

A key has as many turns as messages of it may be acquired at once. A message has a turn while it is
ready, acquired or held; the others of its key are blocked, and get the turns that become free in
order. With a rate, at most one message that was not handed out yet has a turn, and it is held until
the key's next time.
"""

from __future__ import annotations

from typing import Any

import apsw

from headrace.clock import SECOND
from headrace.log.file.catalog import many, one
from headrace.log.file.queue.rows import BLOCKED, HELD, READY, Now
from headrace.log.queueing import QueueRow

Place = tuple[int, int]
"""A partition and an offset."""

_MINE = "FROM message INDEXED BY message_key WHERE queue = ?1 AND key = ?2"
_TURNS = (
    f"SELECT (SELECT count(*) {_MINE} AND state <= 2), "
    f"(SELECT count(*) {_MINE} AND state IN (0, 2)), "
    f"EXISTS (SELECT 1 {_MINE} AND state = 3)"
)
_NEXT = (
    f"SELECT partition, offset {_MINE} AND state = 3 "
    "ORDER BY rank, number, partition, offset LIMIT 1"
)
_MOVE = "UPDATE message SET state = ?, due = ? WHERE queue = ? AND partition = ? AND offset = ?"


def arrival(db: apsw.Connection, queue: QueueRow, key: Any, now: Now) -> tuple[int, int | None]:
    """The state of a message that takes its place in its key's line, and when it is due."""
    if key is None or not queue.settings.by_key:
        return READY, None
    taken, untried, line = one(db, _TURNS, queue.id, key) or (0, 0, 0)
    if line or _full(queue, taken, untried):
        return BLOCKED, None
    return _turn(db, queue, key, now)


def come_back(db: apsw.Connection, queue: QueueRow, place: Place, key: Any, now: Now) -> None:
    """Make a message ready that has its turn already."""
    state, due = READY, None
    if key is not None and queue.settings.key_rate is not None:
        _, untried, _ = one(db, _TURNS, queue.id, key) or (0, 0, 0)
        state, due = (BLOCKED, None) if untried else _turn(db, queue, key, now)
    move(db, queue, place, state, due)


def move(db: apsw.Connection, queue: QueueRow, place: Place, state: int, due: int | None) -> None:
    """Set a message's state, for one that is not acquired."""
    db.execute(
        "UPDATE message SET state = ?, due = ?, token = NULL, worker = NULL, expires = NULL "
        "WHERE queue = ? AND partition = ? AND offset = ?",
        (state, due, queue.id, *place),
    )


def promote(db: apsw.Connection, queue: QueueRow, keys: set[Any], now: Now) -> None:
    """Give the turns of keys that became free to the next messages of their lines."""
    if not queue.settings.by_key:
        return
    for key in keys:
        if key is None:
            continue
        taken, untried, line = one(db, _TURNS, queue.id, key) or (0, 0, 0)
        while line and not _full(queue, taken, untried):
            following = one(db, _NEXT, queue.id, key)
            if following is None:
                break
            state, due = _turn(db, queue, key, now)
            db.execute(_MOVE, (state, due, queue.id, *following))
            taken, untried = taken + 1, untried + 1


def handed_out(db: apsw.Connection, queue: QueueRow, keys: list[Any], now: Now) -> None:
    """Note the times of keys whose messages were handed out, and hold their next ones."""
    rate = queue.settings.key_rate
    if rate is None:
        return
    span = int(SECOND / rate)
    db.executemany(
        "INSERT INTO queue_key VALUES (?1, ?2, ?3 + ?4) ON CONFLICT (queue, key) "
        "DO UPDATE SET next = max(next, ?3) + ?4",
        ((queue.id, key, now.wall, span) for key in keys if key is not None),
    )
    promote(db, queue, set(keys), now)


def limit_times(db: apsw.Connection, queue: QueueRow, now: Now) -> None:
    """Hold no key for longer than its rate says: the clock was set back, or the rate raised."""
    if queue.settings.key_rate is None:
        return
    latest = now.wall + int(SECOND / queue.settings.key_rate)
    # A message that is held for another reason has a time of its own.
    db.execute(
        f"UPDATE message SET due = ?2 WHERE queue = ?1 AND state = {HELD} AND due > ?2 AND due = "
        "(SELECT next FROM queue_key k WHERE k.queue = message.queue AND k.key = message.key)",
        (queue.id, latest),
    )
    db.execute("UPDATE queue_key SET next = ?2 WHERE queue = ?1 AND next > ?2", (queue.id, latest))


def forget_idle_keys(db: apsw.Connection, queue: int, now: int) -> None:
    """Delete the times of keys that have passed."""
    db.execute("DELETE FROM queue_key WHERE queue = ? AND next <= ?", (queue, now))


def keys_of(db: apsw.Connection, queue: QueueRow, places: list[Place]) -> set[Any]:
    """The keys of messages."""
    sql = "SELECT key FROM message WHERE queue = ? AND partition = ? AND offset = ?"
    return {key for place in places for (key,) in many(db, sql, queue.id, *place)}


def _full(queue: QueueRow, taken: int, untried: int) -> bool:
    limit = queue.settings.per_key
    return (limit is not None and taken >= limit) or (
        queue.settings.key_rate is not None and untried > 0
    )


def _turn(db: apsw.Connection, queue: QueueRow, key: Any, now: Now) -> tuple[int, int | None]:
    """Ready, or held until the key's next time."""
    if queue.settings.key_rate is not None:
        sql = "SELECT next FROM queue_key WHERE queue = ? AND key = ?"
        following = one(db, sql, queue.id, key)
        if following is not None and following[0] > now.wall:
            return HELD, following[0]
    return READY, None
