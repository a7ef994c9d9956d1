"""What a segment file holds: one Arrow IPC stream, a record batch for each commit.

The columns are the topic's own, and after them those of the log: `_tombstone` in typed topics,
and `_offset` once compaction has made the offsets sparse. Any Arrow reader can open a segment.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa
import xxhash

from headrace.log.record import RAW_SCHEMA
from headrace.schema.ddl import parse_schema

TOMBSTONE = pa.field("_tombstone", pa.bool_(), nullable=False)
OFFSET = pa.field("_offset", pa.int64(), nullable=False)


@lru_cache(maxsize=1024)
def topic_schema(columns: str | None) -> pa.Schema:
    """The topic's own columns, from its DDL; None stands for raw bytes."""
    return RAW_SCHEMA if columns is None else parse_schema(columns)


@lru_cache(maxsize=1024)
def stored_schema(columns: str | None, sparse: bool) -> pa.Schema:
    """The columns of a segment.

    Every column may be null here, whatever the topic says, since a tombstone has only its key.
    """
    fields = [field.with_nullable(True) for field in topic_schema(columns)]
    if columns is not None:
        fields.append(TOMBSTONE)
    if sparse:
        fields.append(OFFSET)
    return pa.schema(fields)


def header(columns: str | None, sparse: bool) -> pa.Buffer:
    """The first bytes of a segment: its schema as an Arrow message."""
    return stored_schema(columns, sparse).serialize()


def encode(batch: pa.RecordBatch, compression: str) -> pa.Buffer:
    """A record batch as an Arrow message."""
    if compression == "none":
        return batch.serialize()
    sink = pa.BufferOutputStream()
    writer = pa.ipc.new_stream(
        sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=compression)
    )
    start = sink.tell()
    writer.write_batch(batch)
    end = sink.tell()
    writer.close()
    return sink.getvalue().slice(start, end - start)


def decode(message: pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
    """The record batch of an Arrow message."""
    return pa.ipc.read_record_batch(message, schema)


def checksum(message: pa.Buffer) -> int:
    """XXH3 of a message, as the signed integer that SQLite stores."""
    digest = xxhash.xxh3_64_intdigest(message)
    return digest - (1 << 64) if digest >> 63 else digest


def tombstones(batch: pa.RecordBatch) -> np.ndarray | None:
    """Which rows are tombstones; None where none is."""
    index = batch.schema.get_field_index(TOMBSTONE.name)
    if index < 0:
        return None
    flags: np.ndarray = batch.column(index).to_numpy(zero_copy_only=False)
    return flags if flags.any() else None
