"""What buckets come to in a batch: files that their workers write, and who wrote what.

The files are Arrow's, so whoever keeps the rows reads them a slice at a time, and the driver's
memory does not grow with what a batch comes to.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

_ROWS = 50_000


@dataclass(frozen=True)
class Outcome:
    """What the buckets of a step have come to in a batch.

    `taken` is how many rows the buckets say they were given, whatever was sent to them, and
    `failed` for how many of these, or of those before, the user's function failed.
    """

    folder: Path
    outputs: tuple[str, ...]
    failures: tuple[str, ...]
    taken: int
    failed: int
    state_rows: int = 0
    """Keys with state, and rows that wait."""
    state_bytes: int = 0

    def slices(self) -> Iterator[pa.Table]:
        """The output, some at a time."""
        return self._read(self.outputs)

    def failed_slices(self) -> Iterator[pa.Table]:
        """The rows that the function failed for, with their places and the reason."""
        return self._read(self.failures)

    def _read(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """What is in some files, those of several buckets together: each table is one commit."""
        waiting: list[pa.RecordBatch] = []
        rows = 0
        for batch in self._batches(names):
            if waiting and rows + batch.num_rows > _ROWS:
                yield pa.Table.from_batches(waiting)
                waiting, rows = [], 0
            waiting.append(batch)
            rows += batch.num_rows
        if waiting:
            yield pa.Table.from_batches(waiting)

    def _batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for name in names:
            with pa.OSFile(str(self.folder / name)) as file:
                reader = pa.ipc.open_file(file)
                for number in range(reader.num_record_batches):
                    yield reader.get_batch(number)

    def remove(self) -> None:
        """Remove the files."""
        shutil.rmtree(self.folder, ignore_errors=True)


def written(folder: Path, tables: Iterable[pa.Table], schema: pa.Schema) -> tuple[str, int]:
    """Write tables to a new file in a folder; returns its name, if there was any row, and how many.

    A task that is tried again writes another file, and only the one that was told of is read.
    """
    rows = pa.concat_tables([schema.empty_table(), *tables])
    if not rows.num_rows:
        return "", 0
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{uuid.uuid4()}.arrow"
    with pa.OSFile(str(folder / name), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        writer.write_table(rows, max_chunksize=_ROWS)
    return name, rows.num_rows
