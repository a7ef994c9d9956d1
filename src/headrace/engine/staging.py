"""Results that may be many more than the rows they were made of, by way of files.

Executors write them, and whoever keeps them reads them a slice at a time, so that the driver's
memory does not grow with what a batch comes to.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from headrace.engine.counters import observed
from headrace.engine.frontdoor import map_in_arrow

_SLICE_BYTES = 8 << 20
"""About so much is handed over at once."""

_WRITTEN = "path string, rows bigint"


@dataclass(frozen=True)
class Staged:
    """The rows of a batch, in files in a folder."""

    folder: Path
    files: tuple[Path, ...]
    schema: pa.Schema
    counts: Mapping[str, int] = field(default_factory=dict)
    """What the counters in the frame have counted."""

    def slices(self, where: pc.Expression | None = None) -> Iterator[pa.Table]:
        """The rows, some at a time; those for which an expression is true."""
        for file in self.files:
            with pa.memory_map(str(file)) as source:
                for rows in _slices(pa.ipc.open_stream(source)):
                    found = rows if where is None else rows.filter(where)
                    if found.num_rows:
                        yield found.select(self.schema.names).cast(self.schema)

    def remove(self) -> None:
        """Remove the files."""
        shutil.rmtree(self.folder, ignore_errors=True)


def stage(
    frame: DataFrame, folder: Path, schema: pa.Schema, counters: tuple[str, ...] = ()
) -> Staged:
    """Have Spark compute a frame, and keep its rows in a folder until they are removed.

    Where the frame has counters, these say what they have counted.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    made = map_in_arrow(frame, _writer_to(folder), _WRITTEN)
    # A task that was tried twice may have left a file that nobody is told of.
    files = tuple(Path(row.path) for row in made.collect())
    return Staged(folder, files, schema, observed(made, counters))


def staging_of(checkpoint: Path) -> Path:
    """Where the results of a step are meanwhile: beside its checkpoint, if it has one."""
    return checkpoint.with_name(f"{checkpoint.name}.staged")


def _writer_to(folder: Path) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What each task does: it writes its rows to a file, and tells of it if there are any."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first = next(batches, None)
        if first is None:
            return
        path, rows = folder / f"{uuid.uuid4()}.arrow", first.num_rows
        with pa.ipc.new_stream(str(path), first.schema) as writer:
            writer.write_batch(first)
            for batch in batches:
                writer.write_batch(batch)
                rows += batch.num_rows
        yield pa.RecordBatch.from_pydict({"path": [str(path)], "rows": [rows]})

    return write


def _slices(reader: pa.RecordBatchStreamReader) -> Iterator[pa.Table]:
    """The batches of a file, as many at a time as make up a slice."""
    some: list[pa.RecordBatch] = []
    size = 0
    for batch in reader:
        some.append(batch)
        size += batch.nbytes
        if size >= _SLICE_BYTES:
            yield pa.Table.from_batches(some)
            some, size = [], 0
    if some:
        yield pa.Table.from_batches(some)
