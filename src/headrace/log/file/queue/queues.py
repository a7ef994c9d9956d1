"""The queues of an embedded log."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import apsw

from headrace.clock import SECOND, Clock, micros
from headrace.errors import InvalidSetting
from headrace.log.declared import TopicRow, check_name
from headrace.log.file.catalog import Catalog, many
from headrace.log.file.queue import counts, leases
from headrace.log.file.queue.declaring import Creating, check_topic
from headrace.log.file.queue.index import Chunks, Index, Unread
from headrace.log.file.queue.keys import limit_times
from headrace.log.file.queue.parts import Handing, Redriving, Room, Seeking, Settling
from headrace.log.file.queue.rows import (
    ACQUIRED,
    READY,
    Now,
    all_queues,
    find_queue,
    forget_queue,
    places,
    queue_by_id,
    unfinished,
)
from headrace.log.file.reader import Reader
from headrace.log.file.topics import find_topic
from headrace.log.queueing import (
    Acquired,
    Acquiring,
    DeadMessage,
    Lease,
    QueueRow,
    Queues,
    QueueSettings,
    QueueState,
    Settled,
)
from headrace.log.record import Record
from headrace.log.roles import CommitPart


@dataclass(frozen=True)
class _Look:
    """What a worker saw before it took the write lock."""

    queue: QueueRow
    topic: TopicRow
    ends: Mapping[int, int]
    unread: Sequence[Unread]
    work: bool
    set_back: bool
    lease: int
    """The lease that the worker knows, and by which it renews: the setting may have changed."""


class FileQueues(Queues):
    """Work queues in the catalog. Thread-safe."""

    def __init__(self, catalog: Catalog, clock: Clock, boot: str, reader: Reader) -> None:
        self._catalog = catalog
        self.clock = clock
        self._boot = boot
        self._reader = reader
        self._chunks = Chunks(reader)
        self._index = Index(catalog, reader, self._chunks)
        self._goals: dict[int, Mapping[int, int]] = {}
        """Offsets by partition, up to which the messages of a queue with priorities get their rows
        before any is handed out: where the topic ended at the first look."""
        self._drifts: dict[int, int] = {}
        """The wall clock minus the monotonic one at the last look at a queue."""

    def close(self) -> None:
        self._reader.close()

    # Declaring

    def creating(
        self, name: str, topic: str, settings: QueueSettings, offsets: Mapping[int, int]
    ) -> CommitPart:
        return Creating(check_name(name, "queue"), topic, settings, offsets, self._boot)

    def alter(self, name: str, settings: QueueSettings) -> QueueRow:
        with self._catalog.writing(synced=True) as db:
            row = find_queue(db, name)
            check_topic(find_topic(db, row.topic), settings)
            old = row.settings
            rows = any(unfinished(db, row.id))
            if rows and (old.by_key, old.per_key) != (settings.by_key, settings.per_key):
                raise InvalidSetting(
                    f"Queue {name!r} has messages, so its limits per key cannot change",
                    hint="Let the workers finish them, or create another queue over the topic",
                )
            db.execute(
                "UPDATE queue SET settings = ? WHERE id = ?",
                (json.dumps(settings.to_text()), row.id),
            )
            row = find_queue(db, name)
            limit_times(db, row, self._now())
            return row

    def delete(self, name: str) -> None:
        with self._catalog.writing(synced=True) as db:
            forget_queue(db, find_queue(db, name).id)

    def all(self) -> list[QueueRow]:
        with self._catalog.reading() as db:
            return all_queues(db)

    def find(self, name: str) -> QueueRow:
        with self._catalog.reading() as db:
            return find_queue(db, name)

    # Handing out

    def acquire(self, queue: QueueRow, limit: int, worker: str) -> list[Acquired]:
        look = self._look(queue, limit)
        if not look.unread and not look.work:
            return []
        with self._catalog.writing() as db:
            token, picked = self._hand_out(db, look, limit, worker)
        return self._with_records(look.topic, token, picked)

    def oldest(self, queue: QueueRow, limit: int) -> list[Acquired]:
        look = self._look(queue, limit)
        if look.unread or look.work:
            with self._catalog.writing() as db:
                self._wake(db, look)
        with self._catalog.reading() as db:
            picked = leases.oldest(db, queue_by_id(db, queue), limit)
        return self._with_records(look.topic, 0, picked)

    def acquiring(self, queue: QueueRow, limit: int, worker: str) -> Acquiring:
        look = self._look(queue, limit)
        return Handing(
            lambda db: self._hand_out(db, look, limit, worker),
            lambda token, picked: self._with_records(look.topic, token, picked),
        )

    def _look(self, queue: QueueRow, limit: int) -> _Look:
        """Look for work, and read messages that have no row yet if too few with one are ready."""
        now, lease = self._now(), micros(queue.settings.lease)
        with self._catalog.reading() as db:
            queue = queue_by_id(db, queue)
            topic = find_topic(db, queue.topic)
            ready = counts.count(db, queue, READY, limit)
            _, unread = unfinished(db, queue.id)
            goal = places(db, queue.id) if queue.settings.priorities else []
            set_back = queue.settings.key_rate is not None and self._was_set_back(queue, now)
            work = ready > 0 or set_back or leases.may_have_work(db, queue, now)
        more = []
        if unread and (ready < limit or queue.settings.priorities):
            more = self._index.unread(queue, topic, limit)
        ends = {p: end for p, _, end in goal}
        return _Look(queue, topic, ends, more, work, set_back, lease)

    def _was_set_back(self, queue: QueueRow, now: Now) -> bool:
        """True if the wall clock was set back since the last look, or if this is the first."""
        before, self._drifts[queue.id] = self._drifts.get(queue.id), now.wall - now.beat
        return before is None or before - SECOND > now.wall - now.beat

    def _hand_out(
        self, db: apsw.Connection, look: _Look, limit: int, worker: str
    ) -> tuple[int, list[leases.Picked]]:
        queue, now = self._wake(db, look)
        if queue.settings.priorities:
            goal = self._goals.setdefault(queue.id, look.ends)
            if any(start < goal.get(p, 0) for p, start, _ in places(db, queue.id)):
                return 0, []  # a message of a higher priority may be among the rest
            self._goals.pop(queue.id, None)
        return leases.acquire(db, queue, limit, worker, look.lease, now)

    def _wake(self, db: apsw.Connection, look: _Look) -> tuple[QueueRow, Now]:
        """Give the messages that were read their rows, and end leases and delays."""
        now = self._now()
        queue = queue_by_id(db, look.queue)
        self._index.add(db, queue, look.unread, now)
        if look.set_back:
            limit_times(db, queue, now)
        leases.wake(db, queue, now)
        return queue, now

    def _with_records(
        self, topic: TopicRow, token: int, picked: Sequence[leases.Picked]
    ) -> list[Acquired]:
        wanted: dict[int, list[int]] = {}
        for partition, offset, _, _ in picked:
            wanted.setdefault(partition, []).append(offset)
        records: dict[tuple[int, int], Record] = {}
        for partition, offsets in wanted.items():
            found = self._chunks.records(topic, partition, sorted(offsets))
            records |= {(partition, offset): record for offset, record in found.items()}
        return [
            Acquired(partition, offset, token, deliveries, -rank, records.get((partition, offset)))
            for partition, offset, deliveries, rank in picked
        ]

    def changes(self) -> int:
        return self._catalog.changes()

    def next_due(self, queue: QueueRow) -> int | None:
        with self._catalog.reading() as db:
            return leases.next_due(db, queue, self._now())

    def renew(self, queue: QueueRow, held: Sequence[Acquired]) -> list[Acquired]:
        with self._catalog.writing() as db:
            queue_by_id(db, queue)  # or it was deleted
            places = [(each.partition, each.offset, each.token) for each in held]
            kept = leases.renew(db, queue, places, self._now())
        return [each for each, mine in zip(held, kept, strict=True) if not mine]

    # With a commit

    def settling(self, queue: QueueRow, settled: Sequence[Settled]) -> CommitPart:
        return Settling(self.clock, self._boot, queue, settled)

    def room(self, queue: QueueRow, wanted: int) -> CommitPart:
        return Room(queue, wanted)

    def redriving(self, queue: QueueRow, dead: Sequence[DeadMessage]) -> CommitPart:
        return Redriving(self.clock, self._boot, queue, dead)

    def seeking(self, queue: QueueRow, offsets: Mapping[int, int]) -> CommitPart:
        return Seeking(queue, offsets)

    # Looking

    def state(self, queue: QueueRow) -> QueueState:
        with self._catalog.reading() as db:
            return counts.state(db, queue_by_id(db, queue))

    def leases(self, queue: QueueRow, limit: int) -> list[Lease]:
        now = self._now()
        with self._catalog.reading() as db:
            return [
                Lease(p, offset, token, deliveries, worker, expires - now.beat)
                for p, offset, token, deliveries, worker, expires in many(
                    db,
                    "SELECT partition, offset, token, deliveries, worker, expires FROM message "
                    f"WHERE queue = ? AND state = {ACQUIRED} ORDER BY expires LIMIT ?",
                    queue.id,
                    limit,
                )
            ]

    def dead(
        self,
        queue: QueueRow,
        reason: str | None = None,
        upto: int | None = None,
        limit: int | None = None,
    ) -> list[DeadMessage]:
        with self._catalog.reading() as db:
            return [
                DeadMessage(*row)
                for row in many(
                    db,
                    "SELECT partition, offset, reason, deliveries, died FROM dead_message "
                    "WHERE queue = ?1 AND (?2 IS NULL OR instr(reason, ?2)) "
                    "AND (?3 IS NULL OR died <= ?3) ORDER BY died, partition, offset LIMIT ?4",
                    queue.id,
                    reason,
                    upto,
                    -1 if limit is None else limit,
                )
            ]

    def _now(self) -> Now:
        return Now(self.clock.now(), self.clock.monotonic(), self._boot)
