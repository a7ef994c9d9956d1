"""Split batches of rows by partition, and into commits."""

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
"""The largest commit, so that a reader can always load a whole one."""

_SMALL_BATCH = 1 << 16
_VALUE_BYTES = 8
"""An upper bound on a value's overhead in bytes: its offset and its null bit."""


@dataclass(frozen=True)
class Piece:
    """Rows for one partition, in their stored columns."""

    topic: TopicRow
    partition: int
    rows: pa.RecordBatch


Targets = np.ndarray[Any, np.dtype[np.int32]]


class Rotation:
    """Round-robin partitions for rows without a key.

    `begin` returns the first partition for a topic. It should depend on the topic's contents, or
    short-lived producers of one record would all use the same partition.
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
    """Group batches so that each group fits one commit; large batches are cut."""
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
    """Ranges of rows, each of at most `most` bytes, or of a single row."""
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
    """Check that `size` bytes fit one commit."""
    if size > MAX_COMMIT_BYTES:
        raise TransactionTooLarge(
            f"A transaction of {size:,} bytes is more than one commit may hold, "
            f"{MAX_COMMIT_BYTES:,}",
            hint="Commit more often, or append outside a transaction, which splits large data",
        )


def with_tombstones(
    topic: TopicRow, batch: pa.RecordBatch, flags: Sequence[bool] | Flags | None = None
) -> pa.RecordBatch:
    """The batch in its stored columns. `flags` marks the rows that are tombstones."""
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
    """Split a stored batch by partition; the order within each partition stays."""
    if partition is not None:
        return [Piece(topic, check_partition(topic, partition), rows)]
    if topic.topic.partitions == 1:
        return [Piece(topic, 0, rows)]
    keys = _keys(topic, rows)
    if keys is None or keys.null_count == len(keys):
        return [Piece(topic, rotation.one(topic), rows)]
    return split_by(topic, rows, targets_of(topic, rows, rotation))


def targets_of(topic: TopicRow, rows: pa.RecordBatch, rotation: Rotation) -> Targets:
    """The partition of each row: by its key, or round-robin without one."""
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
    """Split a stored batch by the given partition of each row."""
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
    """Merge small batches, since each batch becomes a chunk with an entry in the catalog."""
    if len(group) == 1 or sum(batch.nbytes for batch in group) > len(group) * _SMALL_BATCH:
        return group
    merged: list[pa.RecordBatch] = pa.Table.from_batches(group).combine_chunks().to_batches()
    return merged
