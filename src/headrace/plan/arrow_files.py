"""Arrow files in which tasks hand over rows to the driver.

The driver reads them a slice at a time, so its memory does not grow with the number of rows. A file
ends in a footer, so a truncated one is an error.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

_SLICE_BYTES = 8 << 20
"""The approximate size of a slice."""


def write(folder: Path, batches: Iterable[pa.RecordBatch]) -> Path | None:
    """Write rows to a new file in a folder and return its path; None if there are no rows.

    A retried task writes another file, and only the path that it returns is read.
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
    """Yield the rows of files in slices. Small files share a slice."""
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
