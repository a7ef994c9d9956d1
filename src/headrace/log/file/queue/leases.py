"""Messages change hands: acquired under a lease, renewed, and taken back when it ends.

Leases use the monotonic clock, which counts from the machine's boot, since the wall clock may be
set. Those from another boot have ended. Delays use the wall clock, for they outlast a boot.
"""

from __future__ import annotations

from collections.abc import Iterable

import apsw

from headrace.clock import micros
from headrace.log.file.catalog import many, one
from headrace.log.file.queue.keys import arrival, come_back, forget_idle_keys, handed_out, move
from headrace.log.file.queue.rows import ACQUIRED, DELAYED, READY, Now, places
from headrace.log.queueing import LONGEST_LEASE, QueueRow

_BATCH = 10_000
_HAND_OUTS = 1_000
"""Idle keys are forgotten after so many."""

Picked = tuple[int, int, int, int]
"""A partition, an offset, the deliveries and the rank."""


def may_have_work(db: apsw.Connection, queue: QueueRow, now: Now) -> bool:
    """True if a message with a row can be handed out, or its lease or delay has ended."""
    found = one(
        db,
        "SELECT boot <> ?2 OR EXISTS (SELECT 1 FROM message WHERE queue = ?1 AND state = 0) "
        "OR EXISTS (SELECT 1 FROM message WHERE queue = ?1 AND due <= ?3) "
        "OR EXISTS (SELECT 1 FROM message WHERE queue = ?1 AND state = 1 "
        "AND (expires <= ?4 OR expires > ?5)) FROM queue WHERE id = ?1",
        queue.id, now.boot, now.wall, now.beat, now.beat + micros(LONGEST_LEASE),
    )  # fmt: skip
    return found is None or bool(found[0])


def wake(db: apsw.Connection, queue: QueueRow, now: Now) -> None:
    """Make messages ready whose lease has ended or whose delay is over."""
    (boot,) = one(db, "SELECT boot FROM queue WHERE id = ?", queue.id) or ("",)
    sql = "SELECT partition, offset, key FROM message WHERE queue = ? AND state = 1"
    if boot != now.boot:
        db.execute("UPDATE queue SET boot = ? WHERE id = ?", (now.boot, queue.id))
        ended = many(db, sql, queue.id)
    else:
        # A lease that ends far ahead is from another boot of a system without boot ids.
        sql += " AND (expires <= ? OR expires > ?)"
        ended = many(db, sql, queue.id, now.beat, now.beat + micros(LONGEST_LEASE))
    for partition, offset, key in ended:
        come_back(db, queue, (partition, offset), key, now)
    over = many(
        db,
        "SELECT partition, offset, key, state FROM message WHERE queue = ? AND due <= ? "
        "ORDER BY due LIMIT ?",
        queue.id,
        now.wall,
        _BATCH,
    )
    for partition, offset, key, state in over:
        if state == DELAYED:
            move(db, queue, (partition, offset), *arrival(db, queue, key, now))
        else:
            move(db, queue, (partition, offset), READY, None)


def acquire(
    db: apsw.Connection, queue: QueueRow, limit: int, worker: str, lease: int, now: Now
) -> tuple[int, list[Picked]]:
    """Hand out ready messages: their fencing token, and each as it is now."""
    rows = many(
        db,
        "SELECT partition, offset, deliveries + 1, rank, key FROM message "
        f"WHERE queue = ? AND state = {READY} "
        "ORDER BY rank, number, partition, offset LIMIT ?",
        queue.id,
        limit,
    )
    if not rows:
        return 0, []
    sql = "UPDATE queue SET token = token + 1 WHERE id = ? RETURNING token"
    (token,) = one(db, sql, queue.id) or (0,)
    expires = now.beat + lease
    db.executemany(
        f"UPDATE message SET state = {ACQUIRED}, token = ?, worker = ?, expires = ?, "
        "deliveries = ? WHERE queue = ? AND partition = ? AND offset = ?",
        ((token, worker, expires, tries, queue.id, p, o) for p, o, tries, _, _ in rows),
    )
    handed_out(db, queue, [key for *_, key in rows], now)
    if token % _HAND_OUTS == 0:
        forget_idle_keys(db, queue.id, now.wall)
    return token, [(p, o, tries, rank) for p, o, tries, rank, _ in rows]


def oldest(db: apsw.Connection, queue: QueueRow, limit: int) -> list[Picked]:
    """Messages that nobody works on: those of the lowest priority, and then the oldest, first."""
    found: dict[tuple[int, int], Picked] = {}
    rank = 1 << 62
    while queue.settings.priorities and len(found) < limit:
        sql = f"SELECT max(rank) FROM message WHERE queue = ? AND state = {READY} AND rank < ?"
        (lower,) = one(db, sql, queue.id, rank) or (None,)
        if lower is None:
            break
        rank = lower
        ready = many(
            db,
            f"SELECT partition, offset, deliveries, rank FROM message WHERE queue = ? "
            f"AND state = {READY} AND rank = ? ORDER BY number, partition, offset LIMIT ?",
            queue.id,
            rank,
            limit - len(found),
        )
        found |= {(row[0], row[1]): row for row in ready}
    if len(found) < limit:
        first = [
            row
            for partition, _, _ in places(db, queue.id)
            for row in many(
                db,
                "SELECT number, partition, offset, deliveries, rank FROM message WHERE queue = ? "
                f"AND partition = ? AND state <> {ACQUIRED} ORDER BY offset LIMIT ?",
                queue.id,
                partition,
                limit,
            )
        ]
        for _, partition, offset, deliveries, rank in sorted(first):
            found.setdefault((partition, offset), (partition, offset, deliveries, rank))
    return list(found.values())[:limit]


def renew(
    db: apsw.Connection, queue: QueueRow, held: Iterable[tuple[int, int, int]], now: Now
) -> list[bool]:
    """Begin the leases of messages anew, given by place and token; True for those still held."""
    expires = now.beat + micros(queue.settings.lease)
    done = []
    for partition, offset, token in held:
        db.execute(
            "UPDATE message SET expires = ? WHERE queue = ? AND partition = ? AND offset = ? "
            f"AND token = ? AND state = {ACQUIRED}",
            (expires, queue.id, partition, offset, token),
        )
        done.append(db.changes() > 0)
    return done


def next_due(db: apsw.Connection, queue: QueueRow, now: Now) -> int | None:
    """Microseconds until a delay is over or a lease ends."""
    due, lease = one(
        db,
        "SELECT (SELECT min(due) FROM message WHERE queue = ?1 AND due IS NOT NULL), "
        "(SELECT min(expires) FROM message WHERE queue = ?1 AND state = 1)",
        queue.id,
    ) or (None, None)
    spans = [due - now.wall] if due is not None else []
    spans += [lease - now.beat] if lease is not None else []
    return max(0, min(spans)) if spans else None
