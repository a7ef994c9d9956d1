"""Rows that tasks hand over by way of files, which are Arrow's.

Whoever keeps the rows reads them a slice at a time, so the driver's memory does not grow with how
many they are. A file ends in a footer, so that one which was cut off is noticed.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

_SLICE_BYTES = 8 << 20
"""About so much is handed over at once."""


def write(folder: Path, batches: Iterable[pa.RecordBatch]) -> Path | None:
    """Write rows to a new file in a folder; returns it if there was any row.

    A task that is tried again writes another file, and only the one that was told of is read.
    """
    rows = (batch for batch in batches if batch.num_rows)
    first = next(rows, None)
    if first is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{uuid.uuid4()}.arrow"
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, first.schema) as writer:
        writer.write_batch(first)
        for batch in rows:
            writer.write_batch(batch)
    return path


def slices(files: Iterable[Path]) -> Iterator[pa.Table]:
    """The rows of files, those of several together where they are few."""
    some: list[pa.RecordBatch] = []
    size = 0
    for batch in _batches(files):
        some.append(batch)
        size += batch.nbytes
        if size >= _SLICE_BYTES:
            yield pa.Table.from_batches(some)
            some, size = [], 0
    if some:
        yield pa.Table.from_batches(some)


def _batches(files: Iterable[Path]) -> Iterator[pa.RecordBatch]:
    for path in files:
        with pa.memory_map(str(path)) as file:
            reader = pa.ipc.open_file(file)
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)
