"""Read record batches of the embedded log, one chunk in memory at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.errors import CorruptCatalog, CorruptSegment, MisusedHandle
from headrace.forks import in_child
from headrace.log.declared import TopicRow
from headrace.log.file import storage
from headrace.log.file.catalog import Catalog, one
from headrace.log.file.disk import Disk, unreadable
from headrace.log.file.layout import OFFSET, Checksum, decode, stored_schema, tombstones
from headrace.log.file.lookup import out_of_range, partition_range
from headrace.log.file.storage import segment_file, segment_path
from headrace.log.record import Batch

_PAGE = 256
_LARGE = 1 << 20
_AHEAD = 2
"""Large chunks to read ahead; a scan holds one more in memory."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """The location of one commit's rows in one partition."""

    first: int
    end: int
    segment: int
    position: int
    length: int
    checksum: int
    number: int
    time: int
    columns: str | None
    sparse: bool
    location: str | None


_SELECT = """
    SELECT c.first, c.end, c.segment, c.position, c.length, c.checksum, c.number,
        m.time, s.columns, s.sparse, s.location
    FROM chunk c JOIN segment s ON s.id = c.segment JOIN commits m ON m.number = c.number
    WHERE c.topic = ? AND c.partition = ?
"""


class Reader:
    """Reads chunks. It may start threads, so each scan and each consumer has its own."""

    def __init__(self, folder: Path, catalog: Catalog, disk: Disk) -> None:
        self._folder = folder
        self._catalog = catalog
        self._disk = disk
        self._pool: ThreadPoolExecutor | None = None
        self._inherited = False
        in_child(self, Reader._inherit)

    def scan(
        self,
        topic: TopicRow,
        partition: int,
        start: int,
        stop: int,
        columns: Sequence[str] | None = None,
    ) -> Iterator[Batch]:
        """The rows with offsets from `start` up to `stop`, a batch for each commit."""
        wanted = self._chunks_between(topic, partition, start, stop)
        for batch in self._load_ahead(topic, partition, wanted, columns):
            if batch is not None and len(clipped := clip(batch, start, stop)):
                yield clipped

    def _chunks_between(
        self, topic: TopicRow, partition: int, start: int, stop: int
    ) -> Iterator[Chunk]:
        while start < stop:
            chunks = self.chunks(topic, partition, start)
            if not chunks:
                return
            for chunk in chunks:
                if chunk.first >= stop:
                    return
                yield chunk
                start = chunk.end

    def _load_ahead(
        self,
        topic: TopicRow,
        partition: int,
        chunks: Iterable[Chunk],
        columns: Sequence[str] | None,
    ) -> Iterator[Batch | None]:
        """The batches in order. Threads read large chunks ahead and verify their checksums."""
        ahead: deque[Future[Batch | None]] = deque()
        try:
            for chunk in chunks:
                self._check_process()
                large = chunk.length >= _LARGE
                if large:
                    ahead.append(
                        self._helpers().submit(self.load, topic, partition, chunk, columns)
                    )
                while ahead and (not large or len(ahead) > _AHEAD):
                    yield ahead.popleft().result()
                if not large:
                    yield self.load(topic, partition, chunk, columns)
            while ahead:
                self._check_process()
                yield ahead.popleft().result()
        finally:
            for unused in ahead:
                unused.cancel()

    def _check_process(self) -> None:
        """Check that this process started the read. A forked one does not have its threads."""
        if self._inherited:
            raise MisusedHandle(
                "This read belongs to the process that this one was forked from",
                hint="Start another: log.read()",
            )

    def _inherit(self) -> None:
        self._inherited = True
        self._pool = None

    def _helpers(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_AHEAD, "headrace-reader")
        return self._pool

    def chunks(
        self, topic: TopicRow, partition: int, offset: int, limit: int = _PAGE
    ) -> list[Chunk]:
        """The next chunks, from the one at `offset` on, or after it if compaction left a gap."""
        with self._catalog.reading() as db:
            first, end = partition_range(db, topic, partition)
            if offset < first:
                raise out_of_range(topic.name, partition, offset, first, end)
            rows = db.execute(
                _SELECT + "AND c.first >= coalesce((SELECT max(first) FROM chunk "
                "WHERE topic = ? AND partition = ? AND first <= ?), 0) ORDER BY c.first LIMIT ?",
                (topic.id, partition, topic.id, partition, offset, limit + 1),
            )
            found = [Chunk(*row) for row in rows]
            sql = "SELECT gaps FROM partition WHERE topic = ? AND partition = ?"
            gaps = one(db, sql, topic.id, partition)
        chunks = [chunk for chunk in found if chunk.end > offset][:limit]
        if gaps == (0,):
            upto = chunks[-1].end if len(chunks) == limit else end
            _check_contiguous(topic, partition, chunks, offset, upto)
        return chunks

    def past_gap(self, topic: TopicRow, partition: int, offset: int) -> int:
        """The partition's end if compaction removed everything after `offset`, else `offset`."""
        sql = "SELECT 1 FROM chunk WHERE topic = ? AND partition = ? AND end > ? LIMIT 1"
        with self._catalog.reading() as db:
            _, end = partition_range(db, topic, partition)
            more = one(db, sql, topic.id, partition, offset)
        return offset if more else max(offset, end)

    def chunks_of(self, topic: TopicRow, partition: int, segment: int) -> list[Chunk]:
        """All chunks of one segment, in order."""
        with self._catalog.reading() as db:
            rows = db.execute(
                _SELECT + "AND c.segment = ? ORDER BY c.first", (topic.id, partition, segment)
            )
            return [Chunk(*row) for row in rows]

    def load(
        self, topic: TopicRow, partition: int, chunk: Chunk, columns: Sequence[str] | None = None
    ) -> Batch | None:
        """The rows of a chunk; None if compaction has removed all of them meanwhile."""
        try:
            message = self._read(topic, partition, chunk)
        except FileNotFoundError as missing:
            # The segment was tiered, compacted or deleted since the look-up.
            moved = self._again(topic, partition, chunk)
            if moved is None:
                return None
            if moved == chunk:
                raise self._corrupt(topic, partition, chunk, "its file is missing") from missing
            return self.load(topic, partition, moved, columns)
        if message is None:
            raise self._corrupt(topic, partition, chunk, "its bytes do not match their checksum")
        rows = decode(message, stored_schema(chunk.columns, chunk.sparse))
        if chunk.sparse:
            offsets = rows.column(rows.schema.get_field_index(OFFSET.name)).to_numpy()
        else:
            offsets = np.arange(chunk.first, chunk.end, dtype=np.int64)
        return Batch(
            topic.name,
            partition,
            offsets,
            _project(rows, topic.schema, columns),
            tombstones(rows),
            topic.columns is None,
            topic.topic.key,
            chunk.time,
            chunk.number,
        )

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def _read(self, topic: TopicRow, partition: int, chunk: Chunk) -> pa.Buffer | None:
        """The chunk's bytes; None if they do not match their checksum."""
        path = segment_path(self._folder, topic.id, partition, chunk.segment)
        file = segment_file(self._disk, path, chunk.location)
        checksum = Checksum()
        try:
            message = checksum.read(file, chunk.position, chunk.length)
        except FileNotFoundError:
            raise
        except OSError as error:
            if chunk.location is None:
                raise unreadable(error, path) from error
            raise storage.unavailable(chunk.location, error) from error
        return message if checksum.value == chunk.checksum else None

    def _again(self, topic: TopicRow, partition: int, chunk: Chunk) -> Chunk | None:
        with self._catalog.reading() as db:
            first, end = partition_range(db, topic, partition)
            if chunk.first < first:
                raise out_of_range(topic.name, partition, chunk.first, first, end)
            row = one(db, _SELECT + "AND c.first = ?", topic.id, partition, chunk.first)
        return None if row is None else Chunk(*row)

    def _corrupt(self, topic: TopicRow, partition: int, chunk: Chunk, why: str) -> CorruptSegment:
        path = (
            storage.shown(chunk.location)
            if chunk.location
            else segment_path(self._folder, topic.id, partition, chunk.segment)
        )
        return CorruptSegment(
            f"Partition {partition} of {topic.name!r} is damaged at offsets {chunk.first} "
            f"to {chunk.end - 1}: {why} ({path})",
            hint=f"Restore the file from a backup, or seek to {chunk.end} to skip these records. "
            "Other partitions are not affected",
            topic=topic.name,
            partition=partition,
            offset=chunk.first,
            end=chunk.end,
        )


def _check_contiguous(
    topic: TopicRow, partition: int, chunks: Sequence[Chunk], start: int, stop: int
) -> None:
    """Check that no offset is missing, in a partition that was never compacted."""
    for chunk in chunks:
        if chunk.first > start:
            break
        start = chunk.end
    if start < stop:
        raise CorruptCatalog(
            f"The catalog has no entry for the records of partition {partition} of "
            f"{topic.name!r} from offset {start} on",
            hint="The catalog is damaged: restore the folder from a backup. Other partitions are "
            "not affected",
            topic=topic.name,
            partition=partition,
            offset=start,
        )


def clip(batch: Batch, start: int, stop: int) -> Batch:
    """The rows of a batch with offsets from `start` up to `stop`."""
    low, high = np.searchsorted(batch.offsets, (start, stop))
    if low == 0 and high == len(batch):
        return batch
    return batch.slice(int(low), int(high))


def _project(
    rows: pa.RecordBatch, schema: pa.Schema, columns: Sequence[str] | None
) -> pa.RecordBatch:
    """The topic's columns, in the order and with the types of its current schema."""
    wanted: list[Any] = []
    fields = []
    for field in schema:
        if columns is not None and field.name not in columns:
            continue
        index = rows.schema.get_field_index(field.name)
        if index < 0:  # written before the column was added
            wanted.append(pa.nulls(rows.num_rows, field.type))
        elif rows.schema.field(index).type != field.type:  # or fields of a struct
            wanted.append(rows.column(index).cast(field.type))
        else:
            wanted.append(rows.column(index))
        fields.append(field.with_nullable(True))
    return pa.RecordBatch.from_arrays(wanted, schema=pa.schema(fields))
