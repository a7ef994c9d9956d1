"""Arrow IPC streams, written and read with pyarrow alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc


def write(folder: Path, batches: Sequence[pa.RecordBatch], files: int) -> None:
    """Write batches in turn to `files` stream files."""
    folder.mkdir(parents=True)
    sinks = [pa.OSFile(str(folder / f"{number}.arrows"), "wb") for number in range(files)]
    writers = [pa.ipc.new_stream(sink, batches[0].schema) for sink in sinks]
    for index, batch in enumerate(batches):
        writers[index % files].write_batch(batch)
    for writer in writers:
        writer.close()
    for sink in sinks:
        sink.close()


def read(folder: Path) -> int:
    """Read all stream files of a folder, batch by batch, and return the number of rows."""
    rows = 0
    for path in sorted(folder.iterdir()):
        with pa.OSFile(str(path), "rb") as source:
            for batch in pa.ipc.open_stream(source):
                rows += batch.num_rows
    return rows
