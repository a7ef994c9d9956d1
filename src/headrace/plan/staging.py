"""Results that may be many more than the rows they were made of, by way of files."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from headrace.plan import arrow_files
from headrace.plan.counters import observed
from headrace.plan.python_operators import map_in_arrow


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
        for rows in arrow_files.slices(self.files):
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
    made = map_in_arrow(frame, _writer_to(folder), "path string")
    paths = tuple(Path(row.path) for row in made.collect())
    return Staged(folder, paths, schema, observed(made, counters))


def staging_of(checkpoint: Path) -> Path:
    """Where the results of a step are meanwhile: beside its checkpoint, if it has one."""
    return checkpoint.with_name(f"{checkpoint.name}.staged")


def _writer_to(folder: Path) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What each task does: it writes its rows to a file, and tells of it if there are any."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        path = arrow_files.write(folder, batches)
        if path is not None:
            yield pa.RecordBatch.from_pydict({"path": [str(path)]})

    return write
