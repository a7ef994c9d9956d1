"""Which row goes to which partition, for whole batches at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.errors import TransactionTooLarge
from headrace.log.conform import row_sizes
from headrace.log.declared import TopicRow, check_partition, stored_schema
from headrace.log.partitioner import key_bytes, partition_column
from headrace.log.roles import Flags

MAX_COMMIT_BYTES = 32 << 20
"""What one commit may hold, so that a reader can always take a commit whole."""

_SMALL_BATCH = 1 << 16
_VALUE_BYTES = 8
"""The bytes that a value takes beside its own, and more: its offset and whether it is null."""


@dataclass(frozen=True)
class Piece:
    """Rows for one partition, in the columns they are stored in."""

    topic: TopicRow
    partition: int
    rows: pa.RecordBatch


Targets = np.ndarray[Any, np.dtype[np.int32]]


class Rotation:
    """Hands out partitions in turn to what has no key.

    `begin` says where to begin in a topic. It should depend on what the topic holds, or producers
    that live for one record would all begin, and end, at the same partition.
    """

    def __init__(self, begin: Callable[[TopicRow], int]) -> None:
        self._begin = begin
        self._next: dict[int, int] = {}

    def one(self, topic: TopicRow) -> int:
        """The next partition, for a whole batch."""
        return int(self.many(topic, 1)[0])

    def many(self, topic: TopicRow, rows: int) -> Targets:
        """The next partitions, one for each row."""
        count = topic.topic.partitions
        start = self._next.get(topic.id)
        if start is None:
            start = self._begin(topic) % count
        self._next[topic.id] = (start + rows) % count
        return ((start + np.arange(rows)) % count).astype(np.int32)


def commits_of(batches: list[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """The batches in groups that each fit one commit; a large batch is cut."""
    group: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        for part in _cut(batch):
            if group and size + part.nbytes > MAX_COMMIT_BYTES:
                yield _merged(group)
                group, size = [], 0
            group.append(part)
            size += part.nbytes
    if group:
        yield _merged(group)


def ranges_of(rows: pa.Table, most: int) -> Iterator[tuple[int, int]]:
    """Rows from where to where that take at most so many bytes together, or are one row."""
    if rows.nbytes <= most:
        yield from [(0, rows.num_rows)] * bool(rows.num_rows)
        return
    sizes = np.concatenate([row_sizes(batch) for batch in rows.to_batches()])
    ends = np.cumsum(sizes + _VALUE_BYTES * rows.num_columns)
    first = 0
    while first < len(ends):
        taken = int(ends[first - 1]) if first else 0
        end = max(first + 1, int(np.searchsorted(ends, taken + most, side="right")))
        yield first, end
        first = end


def check_commit_size(size: int) -> None:
    """Return if so many bytes fit one commit."""
    if size > MAX_COMMIT_BYTES:
        raise TransactionTooLarge(
            f"A transaction of {size:,} bytes is more than one commit may hold, "
            f"{MAX_COMMIT_BYTES:,}",
            hint="Commit more often; appending outside a transaction is cut into commits by itself",
        )


def with_tombstones(
    topic: TopicRow, batch: pa.RecordBatch, flags: Sequence[bool] | Flags | None = None
) -> pa.RecordBatch:
    """The batch as segments store it. `flags` says which rows are tombstones, if any."""
    if topic.columns is None:
        return batch
    rows = batch.num_rows
    if flags is None:
        none = pa.py_buffer(bytes((rows + 7) // 8))
        column = pa.Array.from_buffers(pa.bool_(), rows, [None, none])
    else:
        column = pa.array(flags, pa.bool_())
    return pa.RecordBatch.from_arrays([*batch.columns, column], schema=stored_schema(topic.columns))


def split(
    topic: TopicRow, rows: pa.RecordBatch, partition: int | None, rotation: Rotation
) -> list[Piece]:
    """A stored batch in pieces, one for each partition it touches, in order within each."""
    if partition is not None:
        return [Piece(topic, check_partition(topic, partition), rows)]
    if topic.topic.partitions == 1:
        return [Piece(topic, 0, rows)]
    keys = _keys(topic, rows)
    if keys is None or keys.null_count == len(keys):
        return [Piece(topic, rotation.one(topic), rows)]
    return split_by(topic, rows, targets_of(topic, rows, rotation))


def targets_of(topic: TopicRow, rows: pa.RecordBatch, rotation: Rotation) -> Targets:
    """The partition of each row: by its key, or without one the next in turn."""
    keys = _keys(topic, rows)
    if keys is None:
        return rotation.many(topic, rows.num_rows)
    targets = partition_column(key_bytes(keys), topic.topic.partitions)
    if keys.null_count:
        loose = targets < 0
        targets[loose] = rotation.many(topic, int(loose.sum()))
    return targets


def _keys(topic: TopicRow, rows: pa.RecordBatch) -> pa.Array | None:
    key = "key" if topic.columns is None else topic.topic.key
    return None if key is None else rows.column(key)


def split_by(topic: TopicRow, rows: pa.RecordBatch, targets: Targets) -> list[Piece]:
    """A stored batch in pieces by the partition named for each row."""
    counts = np.bincount(targets, minlength=topic.topic.partitions)
    if int(counts.max()) == rows.num_rows:
        return [Piece(topic, int(counts.argmax()), rows)]
    ordered = rows.take(pa.array(np.argsort(targets, kind="stable")))
    pieces, start = [], 0
    for partition, size in enumerate(counts):
        if size:
            pieces.append(Piece(topic, partition, ordered.slice(start, size)))
            start += int(size)
    return pieces


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    parts = -(-batch.nbytes // MAX_COMMIT_BYTES)
    if parts <= 1:
        yield batch
        return
    step = max(1, batch.num_rows // (parts + 1))
    for start in range(0, batch.num_rows, step):
        yield from _cut(batch.slice(start, step)) if step > 1 else (batch.slice(start, step),)


def _merged(group: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Small batches as one, since each batch becomes a chunk with an entry in the catalog."""
    if len(group) == 1 or sum(batch.nbytes for batch in group) > len(group) * _SMALL_BATCH:
        return group
    merged: list[pa.RecordBatch] = pa.Table.from_batches(group).combine_chunks().to_batches()
    return merged
