"""The layout of a segment file: one Arrow IPC stream with a record batch per commit.

The topic's columns come first, then the log's: `_tombstone` in typed topics, and `_offset` once
compaction has made the offsets sparse. Any Arrow reader can open a segment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

import numpy as np
import pyarrow as pa
import xxhash

from headrace.log import declared
from headrace.log.declared import TOMBSTONE
from headrace.log.file.storage import SegmentFile

_COPIED_BYTES = 1 << 18
"""Below this size a copy is cheaper than collecting the parts."""
_PIECE_BYTES = 1 << 20
"""Small enough for a processor's cache, large enough that threads rarely contend for the GIL."""

OFFSET = pa.field("_offset", pa.int64(), nullable=False)


@lru_cache(maxsize=1024)
def stored_schema(columns: str | None, sparse: bool) -> pa.Schema:
    """The columns of a segment."""
    schema = declared.stored_schema(columns)
    return schema.append(OFFSET) if sparse else schema


def header(columns: str | None, sparse: bool) -> pa.Buffer:
    """The first bytes of a segment: its schema as an Arrow message."""
    return stored_schema(columns, sparse).serialize()


class Checksum:
    """XXH3 of a message, computed piece by piece while it is read or written.

    Each piece is hashed while it is in the processor's cache, which takes half the time.
    """

    def __init__(self) -> None:
        self._hash = xxhash.xxh3_64()

    def passing(self, parts: Iterable[pa.Buffer | bytes]) -> Iterator[memoryview]:
        """The same bytes in pieces, each added to the checksum."""
        for part in parts:
            view = memoryview(part).cast("B")
            for start in range(0, len(view), _PIECE_BYTES):
                piece = view[start : start + _PIECE_BYTES]
                self._hash.update(piece)
                yield piece

    def read(self, file: SegmentFile, position: int, length: int) -> pa.Buffer:
        """Up to `length` bytes of a file, fewer at its end, added to the checksum."""
        buffer = pa.allocate_buffer(length)
        view = memoryview(buffer).cast("B")
        done = 0
        with file.reading() as read_into:
            while done < length:
                piece = view[done : done + _PIECE_BYTES]
                size = read_into(piece, position + done)
                if not size:
                    return buffer.slice(0, done)
                self._hash.update(piece[:size])
                done += size
        return buffer

    @property
    def value(self) -> int:
        """The checksum as a signed integer, as SQLite stores it."""
        digest = self._hash.intdigest()
        return digest - (1 << 64) if digest >> 63 else digest


Message = list[pa.Buffer | bytes]
"""A record batch to be written: an Arrow message in parts.

Where possible, the parts are the batch's own memory, so a large batch is not copied.
"""


def encode(batch: pa.RecordBatch, compression: str) -> Message:
    """A record batch as an Arrow message."""
    # The bytes that it refers to are counted faster than those that are its own.
    if compression == "none" and (
        batch.get_total_buffer_size() < _COPIED_BYTES or batch.nbytes < _COPIED_BYTES
    ):
        return [batch.serialize()]
    sink = _Parts()
    options = pa.ipc.IpcWriteOptions(compression=None if compression == "none" else compression)
    with pa.PythonFile(sink, mode="w") as file:
        writer = pa.ipc.new_stream(file, batch.schema, options=options)
        writer.write_batch(batch)
        parts, sink.parts = sink.parts, []
        writer.close()
    schema = batch.schema.serialize().size
    while schema > 0:  # drop the schema: the segment's header has it
        schema -= len(parts.pop(0))
    return parts


class _Parts:
    """A file object for pyarrow that keeps what is written to it without copying."""

    def __init__(self) -> None:
        self.parts: list[pa.Buffer | bytes] = []
        self.closed = False

    def write(self, part: pa.Buffer | bytes) -> int:
        self.parts.append(part)
        return len(part)

    def tell(self) -> int:
        return sum(map(len, self.parts))

    def flush(self) -> None:
        """There is nothing to flush."""

    def close(self) -> None:
        self.closed = True


def decode(message: pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
    """The record batch of an Arrow message."""
    return pa.ipc.read_record_batch(message, schema)


def tombstones(batch: pa.RecordBatch) -> np.ndarray | None:
    """A mask of the rows that are tombstones; None if there are none."""
    index = batch.schema.get_field_index(TOMBSTONE.name)
    if index < 0:
        return None
    flags: np.ndarray = batch.column(index).to_numpy(zero_copy_only=False)
    return flags if flags.any() else None
