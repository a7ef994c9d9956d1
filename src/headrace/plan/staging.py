"""Staged results: in files, because they may be many more than the rows they come from."""

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
    """The values of the counters in the frame."""

    def slices(self, where: pc.Expression | None = None) -> Iterator[pa.Table]:
        """The rows for which an expression is true, in slices."""
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
    """Compute a frame, and keep its rows in a folder until they are removed."""
    shutil.rmtree(folder, ignore_errors=True)
    made = map_in_arrow(frame, _writer_to(folder), "path string")
    paths = tuple(Path(row.path) for row in made.collect())
    return Staged(folder, paths, schema, observed(made, counters))


def staging_of(checkpoint: Path) -> Path:
    """The folder of a step's staged results, beside its checkpoint."""
    return checkpoint.with_name(f"{checkpoint.name}.staged")


def _writer_to(folder: Path) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function that writes the rows of a task to a file, and yields its path."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        path = arrow_files.write(folder, batches)
        if path is not None:
            yield pa.RecordBatch.from_pydict({"path": [str(path)]})

    return write
