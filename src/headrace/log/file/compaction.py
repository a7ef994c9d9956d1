"""Compaction: keep only the last record of each key. Offsets and order do not change.

Closed segments are rewritten one at a time. The remaining rows are chosen and encoded without a
lock; the swap is one transaction, which detects that another process was faster.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.clock import Clock, micros
from headrace.errors import InvalidSetting
from headrace.log.declared import TopicRow
from headrace.log.file.appender import StaleTopic, check_unchanged
from headrace.log.file.catalog import Catalog, many, one
from headrace.log.file.clock_watch import made_at
from headrace.log.file.disk import Disk
from headrace.log.file.layout import Checksum, Message, encode, stored_schema
from headrace.log.file.marks import remove_marks
from headrace.log.file.reader import Chunk, Reader
from headrace.log.file.segments import Segments
from headrace.log.partitioner import key_bytes
from headrace.log.record import Batch
from headrace.log.split import with_tombstones
from headrace.log.state import UpkeepReport

_MERGE_ROWS = 1_000_000


@dataclass(frozen=True)
class _Rewritten:
    """A chunk after compaction; `message` is None if no rows remain."""

    chunk: Chunk
    removed: Batch
    rows: int
    tombstones: int
    message: Message | None


class Compactor:
    """Compacts topics whose `cleanup` setting includes compaction."""

    def __init__(
        self, folder: Path, catalog: Catalog, segments: Segments, disk: Disk, clock: Clock
    ) -> None:
        self._folder = folder
        self._catalog = catalog
        self._segments = segments
        self._disk = disk
        self._clock = clock

    def compact(self, topic: TopicRow, *, all_segments: bool) -> UpkeepReport:
        """Compact a topic; with `all_segments` the open ones are closed first."""
        if not topic.topic.settings.compacts:
            raise InvalidSetting(
                f"Topic {topic.name!r} does not use compaction",
                hint=f"Turn it on: headrace topics alter {topic.name} --set cleanup=compact",
            )
        reports = []
        with contextlib.closing(Reader(self._folder, self._catalog, self._disk)) as reader:
            for partition in range(topic.topic.partitions):
                if all_segments:
                    self._close_open(topic, partition)
                reports.append(
                    self._compact_partition(reader, topic, partition, force=all_segments)
                )
        return UpkeepReport.total(topic.name, reports)

    def _close_open(self, topic: TopicRow, partition: int) -> None:
        sql = "SELECT segment FROM partition WHERE topic = ? AND partition = ?"
        with self._catalog.writing() as db:
            found = one(db, sql, topic.id, partition)
            if found and found[0] is not None:
                self._segments.close(db, found[0], self._clock.now())

    def _compact_partition(
        self, reader: Reader, topic: TopicRow, partition: int, *, force: bool
    ) -> UpkeepReport:
        segments = self._closed(topic, partition)
        if not force and all(compacted for _, compacted in segments):
            return UpkeepReport(topic.name)
        last = self._last_offsets(reader, topic, partition, [id for id, _ in segments])
        count = records = freed = 0
        for segment, _ in segments:
            rewritten = [
                self._rewrite(topic, chunk, batch, last)
                for chunk, batch in self._rows(reader, topic, partition, segment)
            ]
            size = self._swap(topic, partition, segment, rewritten)
            if size is not None:
                removed = sum(len(piece.removed) for piece in rewritten)
                count, records, freed = count + 1, records + removed, freed + size
        return UpkeepReport(
            topic.name, segments_compacted=count, records_removed=records, bytes_freed=freed
        )

    def _closed(self, topic: TopicRow, partition: int) -> list[tuple[int, bool]]:
        """The closed segments in order, each with True if it is fully compacted."""
        with self._catalog.reading() as db:
            return [
                (id, bool(compacted))
                for id, compacted in many(
                    db,
                    "SELECT id, compacted FROM segment WHERE topic = ? AND partition = ? "
                    "AND closed IS NOT NULL "
                    "ORDER BY (SELECT min(first) FROM chunk WHERE segment = segment.id)",
                    topic.id,
                    partition,
                )
            ]

    def _rows(
        self, reader: Reader, topic: TopicRow, partition: int, segment: int
    ) -> Iterator[tuple[Chunk, Batch]]:
        for chunk in reader.chunks_of(topic, partition, segment):
            batch = reader.load(topic, partition, chunk)
            if batch is not None:
                yield chunk, batch

    def _last_offsets(
        self, reader: Reader, topic: TopicRow, partition: int, segments: list[int]
    ) -> pa.Array:
        """The offset of the last record of each key in the given segments."""
        found: list[pa.Table] = []
        waiting = 0
        for segment in segments:
            for _, batch in self._rows(reader, topic, partition, segment):
                keys = key_bytes(batch.data.column(_key_column(topic)))
                found.append(pa.table({"key": keys, "offset": pa.array(batch.offsets)}))
                waiting += len(batch)
                if waiting > _MERGE_ROWS:
                    found, waiting = [_last_of(found)], 0
        return _last_of(found)["offset"].combine_chunks() if found else pa.array([], pa.int64())

    def _rewrite(self, topic: TopicRow, chunk: Chunk, batch: Batch, last: pa.Array) -> _Rewritten:
        keep = pc.is_in(pa.array(batch.offsets), value_set=last).to_numpy(zero_copy_only=False)
        # Records without a key, from before the topic was compacted, stay.
        keys = batch.data.column(_key_column(topic))
        keep = keep | keys.is_null().to_numpy(zero_copy_only=False)
        dead = _tombstones(batch)
        made = now = self._clock.now()
        if dead.any():
            with self._catalog.reading() as db:
                made = made_at(db, chunk.number, now)
        if made + micros(topic.topic.settings.tombstone_retention) < now:
            keep = keep & ~dead
        rows = int(keep.sum())
        if not rows:
            return _Rewritten(chunk, batch, 0, 0, None)
        dead = dead[keep]
        stored = with_tombstones(topic, batch.data.filter(pa.array(keep)), dead.tolist())
        sparse = pa.RecordBatch.from_arrays(
            [*stored.columns, pa.array(batch.offsets[keep])],
            schema=stored_schema(topic.columns, sparse=True),
        )
        message = encode(sparse, topic.topic.settings.compression)
        return _Rewritten(chunk, batch.only(~keep), rows, int(dead.sum()), message)

    def _swap(
        self, topic: TopicRow, partition: int, segment: int, rewritten: list[_Rewritten]
    ) -> int | None:
        """Replace a segment by its rewritten chunks; return the bytes freed.

        None if there was nothing to remove.
        """
        finished = not any(piece.tombstones for piece in rewritten)
        with self._catalog.writing(synced=True) as db:
            check_unchanged(db, topic)  # or columns added since would be lost
            old = one(db, "SELECT length, created, closed FROM segment WHERE id = ?", segment)
            if old is None:
                # Another process has rewritten it, and may have kept records that this one
                # considers superseded: start again from the current segments.
                raise StaleTopic(topic)
            if not any(len(piece.removed) for piece in rewritten):
                db.execute("UPDATE segment SET compacted = ? WHERE id = ?", (finished, segment))
                return None
            length, created, closed = old
            db.execute(
                "UPDATE partition SET gaps = 1 WHERE topic = ? AND partition = ?",
                (topic.id, partition),
            )
            kept = [piece for piece in rewritten if piece.message is not None]
            size = (
                self._write(db, topic, partition, kept, created=created, closed=closed)
                if kept
                else 0
            )
            self._segments.discard(db, segment)
            for piece in rewritten:
                gone, number = piece.removed, piece.chunk.number
                remove_marks(db, topic, number, partition, gone.data, gone.offsets.tolist())
            return int(length) - size

    def _write(
        self,
        db: apsw.Connection,
        topic: TopicRow,
        partition: int,
        kept: list[_Rewritten],
        *,
        created: int,
        closed: int,
    ) -> int:
        """Write a new closed segment of the given chunks; return its length."""
        segment, position = self._segments.create(
            db, topic.id, partition, topic.columns, created, sparse=True
        )
        path = self._segments.path(topic.id, partition, segment)
        for piece in kept:
            assert piece.message is not None
            checksum, size = Checksum(), sum(map(len, piece.message))
            self._disk.write(path, checksum.passing(piece.message), position)
            db.execute(
                "UPDATE chunk SET segment = ?, position = ?, length = ?, checksum = ?, rows = ? "
                "WHERE topic = ? AND partition = ? AND first = ?",
                (segment, position, size, checksum.value, piece.rows,
                 topic.id, partition, piece.chunk.first),
            )  # fmt: skip
            position += size
        finished = not any(piece.tombstones for piece in kept)
        db.execute(
            "UPDATE segment SET length = ?, closed = ?, compacted = ? WHERE id = ?",
            (position, closed, finished, segment),
        )
        return position


def _key_column(topic: TopicRow) -> str:
    return topic.topic.key or "key"


def _tombstones(batch: Batch) -> np.ndarray[Any, np.dtype[np.bool_]]:
    if batch.raw:
        nulls: np.ndarray[Any, np.dtype[np.bool_]] = (
            batch.data.column("value").is_null().to_numpy(zero_copy_only=False)
        )
        return nulls
    return np.zeros(len(batch), np.bool_) if batch.tombstones is None else batch.tombstones


def _last_of(tables: list[pa.Table]) -> pa.Table:
    """The highest offset of each key. Records without a key are left out."""
    table = pa.concat_tables(tables)
    table = table.rename_columns(["key", "offset"]).filter(pc.is_valid(table["key"]))
    grouped = table.group_by("key").aggregate([("offset", "max")])
    return grouped.select(["key", "offset_max"]).rename_columns(["key", "offset"])
