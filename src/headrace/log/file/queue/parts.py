"""What changes in a queue together with a commit of the log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import apsw

from headrace.clock import Clock
from headrace.errors import LeaseLost, QueueFull
from headrace.log.file.catalog import one
from headrace.log.file.parts import FilePart
from headrace.log.file.queue.keys import Place, arrival, come_back, move, promote
from headrace.log.file.queue.leases import Picked
from headrace.log.file.queue.rows import (
    ACQUIRED,
    DELAYED,
    HELD,
    PLACE,
    Now,
    change_held,
    queue_by_id,
    unfinished,
)
from headrace.log.queueing import (
    Acquired,
    Acquiring,
    DeadMessage,
    Outcome,
    QueueRow,
    Settled,
)
from headrace.log.state import Ack

HandOut = Callable[[apsw.Connection], tuple[int, Sequence[Picked]]]
"""Hands out messages in a transaction: their token, and each."""

WithRecords = Callable[[int, Sequence[Picked]], list[Acquired]]
"""Reads the records of messages."""


@dataclass(frozen=True, slots=True)
class _Row:
    number: int
    rank: int
    key: Any
    deliveries: int


class Settling(FilePart):
    """The end of deliveries. `lasting`: a recovery does not bring finished messages back."""

    lasting = True

    def __init__(self, clock: Clock, boot: str, queue: QueueRow, settled: Sequence[Settled]):
        self._clock = clock
        self._boot = boot
        self._queue = queue
        self._settled = settled
        self._rows: dict[Place, _Row] = {}

    def check(self, db: apsw.Connection) -> None:
        lost = []
        self._rows.clear()
        for each in self._settled:
            delivery = (each.partition, each.offset, each.token)
            # Nobody has a message that is dropped.
            mine = (
                f"? = 0 AND state <> {ACQUIRED}"
                if each.outcome == Outcome.DROPPED
                else f"token = ? AND state = {ACQUIRED}"
            )
            found = one(
                db,
                f"SELECT number, rank, key, deliveries FROM message WHERE {PLACE} AND {mine}",
                self._queue.id,
                *delivery,
            )
            place = delivery[:2]
            if found is None or place in self._rows:  # each delivery ends once
                lost.append(delivery)
            else:
                self._rows[place] = _Row(*found)
        if lost:
            raise LeaseLost(
                f"{len(lost)} leases of queue {self._queue.name!r} were lost",
                hint="Other workers have these messages",
                deliveries=lost,
            )

    def record(
        self, db: apsw.Connection, commit: int | None, time: int, acks: Sequence[Ack]
    ) -> None:
        queue = queue_by_id(db, self._queue)
        now = Now(self._clock.now(), self._clock.monotonic(), self._boot)
        gone: list[Place] = []
        dead = []
        for each in self._settled:
            place, row = (each.partition, each.offset), self._rows[each.partition, each.offset]
            match each.outcome:
                case Outcome.RELEASED:
                    self._release(db, queue, each, row, now)
                case Outcome.REJECTED | Outcome.DROPPED:
                    dead.append((queue.id, *place, row.number, row.rank, row.key, row.deliveries,
                                 each.reason, commit or 0))  # fmt: skip
                    gone.append(place)
                case _:
                    gone.append(place)
        db.executemany(f"DELETE FROM message WHERE {PLACE}", ((queue.id, *p) for p in gone))
        db.executemany(
            "INSERT OR REPLACE INTO dead_message VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", dead
        )
        change_held(db, queue.id, -len(gone))
        promote(db, queue, {row.key for row in self._rows.values()}, now)

    def _release(
        self, db: apsw.Connection, queue: QueueRow, settled: Settled, row: _Row, now: Now
    ) -> None:
        place = (settled.partition, settled.offset)
        if settled.delay > 0:
            # Out of order, the next message of the key need not wait for this one.
            state = HELD if queue.settings.ordered else DELAYED
            move(db, queue, place, state, now.wall + settled.delay)
        else:
            come_back(db, queue, place, row.key, now)
        if not settled.counted:
            db.execute(
                f"UPDATE message SET deliveries = deliveries - 1 WHERE {PLACE}", (queue.id, *place)
            )


class Handing(FilePart, Acquiring):
    """Messages that are handed out with a commit, which saves a worker a turn at the write lock.

    `lasting`, since it commits with settlements.
    """

    lasting = True

    def __init__(self, hand_out: HandOut, records: WithRecords) -> None:
        self._hand_out = hand_out
        self._records = records
        self._token = 0
        self._picked: Sequence[Picked] = ()

    def record(
        self, db: apsw.Connection, commit: int | None, time: int, acks: Sequence[Ack]
    ) -> None:
        self._token, self._picked = self._hand_out(db)

    def acquired(self) -> list[Acquired]:
        return self._records(self._token, self._picked)


class Room(FilePart):
    """The condition that a bounded queue has room."""

    def __init__(self, queue: QueueRow, wanted: int) -> None:
        self._queue = queue
        self._wanted = wanted

    def check(self, db: apsw.Connection) -> None:
        bound = queue_by_id(db, self._queue).settings.max_messages
        waiting = sum(unfinished(db, self._queue.id))
        if bound is not None and waiting + self._wanted > bound:
            raise QueueFull(
                f"Queue {self._queue.name!r} is full: it has {waiting} unfinished messages of at "
                f"most {bound}",
                hint="Try again when workers have finished some, start more workers, or raise "
                "max_messages",
                queue=self._queue.name,
                unfinished=waiting,
                bound=bound,
            )

    def record(
        self, db: apsw.Connection, commit: int | None, time: int, acks: Sequence[Ack]
    ) -> None:
        pass


class Redriving(FilePart):
    """Dead messages wait again."""

    lasting = True

    def __init__(self, clock: Clock, boot: str, queue: QueueRow, dead: Sequence[DeadMessage]):
        self._clock = clock
        self._boot = boot
        self._queue = queue
        self._dead = dead

    def check(self, db: apsw.Connection) -> None:
        sql = f"SELECT 1 FROM dead_message WHERE {PLACE} AND died = ?"
        places = [(dead.partition, dead.offset, dead.commit) for dead in self._dead]
        gone = [p for p in places if one(db, sql, self._queue.id, *p) is None]
        if gone:
            raise LeaseLost(
                f"{len(gone)} dead messages of queue {self._queue.name!r} were redriven meanwhile",
                hint="Look again which are left",
                places=gone,
            )

    def record(
        self, db: apsw.Connection, commit: int | None, time: int, acks: Sequence[Ack]
    ) -> None:
        queue = queue_by_id(db, self._queue)
        now = Now(self._clock.now(), self._clock.monotonic(), self._boot)
        for dead in self._dead:
            place = (queue.id, dead.partition, dead.offset)
            sql = f"DELETE FROM dead_message WHERE {PLACE} RETURNING number, rank, key"
            number, rank, key = one(db, sql, *place) or (0, 0, None)
            state, due = arrival(db, queue, key, now)
            db.execute(
                "INSERT INTO message (queue, partition, offset, number, rank, key, state, due) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (*place, number, rank, key, state, due),
            )
        change_held(db, queue.id, len(self._dead))


class Seeking(FilePart):
    """The queue goes on from other offsets: exactly the messages from there on wait."""

    lasting = True

    def __init__(self, queue: QueueRow, offsets: Mapping[int, int]) -> None:
        self._queue = queue
        self._offsets = offsets

    def record(
        self, db: apsw.Connection, commit: int | None, time: int, acks: Sequence[Ack]
    ) -> None:
        queue = self._queue.id
        db.execute("DELETE FROM message WHERE queue = ?", (queue,))
        db.execute("UPDATE queue SET held = 0 WHERE id = ?", (queue,))
        for partition, offset in self._offsets.items():
            db.execute(
                "UPDATE queue_partition SET indexed = ? WHERE queue = ? AND partition = ?",
                (offset, queue, partition),
            )
            db.execute(
                "DELETE FROM dead_message WHERE queue = ? AND partition = ? AND offset >= ?",
                (queue, partition, offset),
            )
