"""Messages get a row in the catalog when they are about to be handed out, many at once.

A queue with a million waiting messages has rows for some thousands. What is read from the segments
is read before the write lock is taken; the lock's holder checks that nobody was faster.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import apsw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.log.declared import TopicRow
from headrace.log.file.catalog import Catalog, many
from headrace.log.file.queue.keys import arrival
from headrace.log.file.queue.rows import DELAYED, READY, Now, change_held
from headrace.log.file.reader import Chunk, Reader, clip
from headrace.log.queueing import DUE_HEADER, PRIORITY_HEADER, QueueRow
from headrace.log.record import Batch, Record

LEAST = 1_000
"""Messages that are indexed at once, if there are as many."""
MOST = 10_000
"""The most of one commit that are indexed at once, and what is indexed at once with priorities:
there, all that wait are indexed before the first is handed out."""

_PAGE = 64
_KEPT = 256
_KEPT_BYTES = 64 << 20

_NUMBER = re.compile(rb"-?[0-9]{1,18}")
"""A whole number of 64 bits."""

_INSERT = (
    "INSERT INTO message (queue, partition, offset, number, rank, key, state, due) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)


@dataclass(frozen=True)
class Unread:
    """Messages of a partition that have no row yet: offset, commit, rank, key and due time."""

    partition: int
    start: int
    end: int
    messages: Sequence[tuple[int, int, int, Any, int | None]]


class Chunks:
    """Chunks of a topic in memory, the latest used. Thread-safe."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[int, int, int], tuple[Chunk, Batch]] = OrderedDict()
        self._bytes = 0

    def load(self, topic: TopicRow, partition: int, chunk: Chunk) -> Batch | None:
        """The rows of a chunk, from memory if they are there."""
        with self._lock:
            return self._load(topic, partition, chunk)

    def records(self, topic: TopicRow, partition: int, offsets: Sequence[int]) -> dict[int, Record]:
        """The records at offsets in ascending order; without those that retention has deleted."""
        found: dict[int, Record] = {}
        with self._lock:
            ahead: list[Chunk] = []
            at = 0
            while at < len(offsets):
                batch = self._at(topic, partition, offsets[at], ahead)
                upto = at
                if batch is not None:
                    last = int(batch.offsets[-1])
                    while upto < len(offsets) and offsets[upto] <= last:
                        upto += 1
                    found |= _pick(batch, offsets[at:upto])
                at = max(upto, at + 1)
        return found

    def _at(self, topic: TopicRow, partition: int, offset: int, ahead: list[Chunk]) -> Batch | None:
        """The chunk that holds an offset; None if there is none."""
        for (id, place, _), (chunk, batch) in reversed(self._kept.items()):
            if (id, place) == (topic.id, partition) and chunk.first <= offset < chunk.end:
                return batch
        if not any(chunk.first <= offset < chunk.end for chunk in ahead):
            ahead[:] = self._reader.chunks(topic, partition, offset, _PAGE)
        for chunk in ahead:
            if chunk.first <= offset < chunk.end:
                return self._load(topic, partition, chunk)
        return None

    def _load(self, topic: TopicRow, partition: int, chunk: Chunk) -> Batch | None:
        key = (topic.id, partition, chunk.first)
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key][1]
        batch = self._reader.load(topic, partition, chunk)
        if batch is None or not len(batch):
            return None
        self._kept[key] = (chunk, batch)
        self._bytes += chunk.length
        while len(self._kept) > _KEPT or (self._bytes > _KEPT_BYTES and len(self._kept) > 1):
            self._bytes -= self._kept.popitem(last=False)[1][0].length
        return batch


def _pick(batch: Batch, offsets: Sequence[int]) -> dict[int, Record]:
    """Records of a batch by offset, those that it has."""
    wanted = np.asarray(offsets, np.int64)
    at = np.searchsorted(batch.offsets, wanted)
    at = at[batch.offsets[at] == wanted]
    picked = Batch(
        batch.topic,
        batch.partition,
        batch.offsets[at],
        batch.data.take(pa.array(at)),
        None if batch.tombstones is None else batch.tombstones[at],
        batch.raw,
        batch.key,
        batch.timestamp,
        batch.commit,
    )
    return {record.offset: record for record in picked.records(as_text=True)}


class Index:
    """The rows of a queue's messages."""

    def __init__(self, catalog: Catalog, reader: Reader, chunks: Chunks) -> None:
        self._catalog = catalog
        self._reader = reader
        self._chunks = chunks

    def unread(self, queue: QueueRow, topic: TopicRow, wanted: int) -> list[Unread]:
        """The next messages without a row, in the order of their commits."""
        with self._catalog.reading() as db:
            places = many(
                db,
                "SELECT i.partition, i.indexed, max(i.indexed, p.first) FROM queue_partition i "
                "JOIN partition p ON p.topic = ?2 AND p.partition = i.partition "
                "WHERE i.queue = ?1 AND i.indexed < p.end",
                queue.id,
                topic.id,
            )
        pages = {
            partition: self._reader.chunks(topic, partition, start, _PAGE)
            for partition, _, start in places
        }
        # Of a partition with more chunks than a page, nothing is known of those after it.
        known = min(
            (page[-1].number for page in pages.values() if len(page) == _PAGE), default=None
        )
        merged = sorted(
            ((chunk.number, p, chunk) for p, page in pages.items() for chunk in page
             if known is None or chunk.number <= known),
            key=lambda found: found[:2],
        )  # fmt: skip
        room = max(wanted, MOST if queue.settings.priorities else LEAST)
        found: dict[int, list[tuple[int, int, int, Any, int | None]]] = {}
        starts = {partition: (indexed, start) for partition, indexed, start in places}
        ends: dict[int, int] = {}
        for _, partition, chunk in merged:
            if room <= 0:
                break
            start = max(starts[partition][1], chunk.first)
            end = min(chunk.end, start + max(room, MOST))
            batch = self._chunks.load(topic, partition, chunk)
            if batch is not None:
                rows = _messages(queue, clip(batch, start, end))
                found.setdefault(partition, []).extend(rows)
                room -= len(rows)
            ends[partition] = end
        return [
            Unread(partition, starts[partition][0], end, found.get(partition, ()))
            for partition, end in ends.items()
        ]

    def add(self, db: apsw.Connection, queue: QueueRow, unread: Iterable[Unread], now: Now) -> int:
        """Give messages their rows, and return their number."""
        found: list[tuple[int, int, int, int, Any, int | None]] = []
        for part in unread:
            db.execute(
                "UPDATE queue_partition SET indexed = ? "
                "WHERE queue = ? AND partition = ? AND indexed = ?",
                (part.end, queue.id, part.partition, part.start),
            )
            if not db.changes():
                continue  # another process was faster
            found += (
                (number, part.partition, offset, rank, key, due)
                for offset, number, rank, key, due in part.messages
            )
        if queue.settings.by_key:
            # A key is in another partition since its topic has more of them.
            found.sort(key=lambda row: row[:3])
        rows = (
            (queue.id, partition, offset, number, rank, key, state, due)
            for number, partition, offset, rank, key, due in found
            for state, due in (_state(db, queue, key, due, now),)
        )
        db.executemany(_INSERT, rows)
        if found:
            change_held(db, queue.id, len(found))
        return len(found)


def _state(
    db: apsw.Connection, queue: QueueRow, key: Any, due: int | None, now: Now
) -> tuple[int, int | None]:
    if due is not None and due > now.wall:
        return DELAYED, due
    return arrival(db, queue, key, now) if queue.settings.by_key else (READY, None)


def _messages(queue: QueueRow, batch: Batch) -> list[tuple[int, int, int, Any, int | None]]:
    """The offset, commit, rank, key and due time of each row."""
    count = len(batch)
    keys: list[Any] = [None] * count
    if queue.settings.by_key and batch.key is not None:
        keys = [_plain(key) for key in batch.data.column(batch.key).to_pylist()]
    elif queue.settings.by_key and batch.raw:
        keys = batch.data.column("key").to_pylist()
    priorities = _numbers(batch, PRIORITY_HEADER) if queue.settings.priorities else {}
    due = _numbers(batch, DUE_HEADER)
    commit = batch.commit or 0
    return [
        (offset, commit, -priorities.get(i, 0), keys[i], due.get(i))
        for i, offset in enumerate(batch.offsets.tolist())
    ]


def _plain(key: Any) -> Any:
    return key if key is None or isinstance(key, int | str | bytes) else str(key)


def _numbers(batch: Batch, header: str) -> dict[int, int]:
    """The values of a header by the row's index. One that is no whole number is ignored: any
    producer may have written it."""
    if not batch.raw:
        return {}
    lists = batch.data.column("headers")
    if lists.null_count == len(lists):
        return {}
    flat = pc.list_flatten(lists)
    parents = pc.list_parent_indices(lists)
    mine = pc.equal(flat.field("key"), header)
    values = flat.field("value").filter(mine).to_pylist()
    return {
        row: int(value)
        for row, value in zip(parents.filter(mine).to_pylist(), values, strict=True)
        if value is not None and _NUMBER.fullmatch(value)
    }
