"""Results that may be many more than the rows they were made of, by way of files.

Executors write them, and whoever keeps them reads them a slice at a time, so that the driver's
memory does not grow with what a batch comes to.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql import DataFrame

_ROWS = 50_000


@dataclass(frozen=True)
class Staged:
    """The rows of a batch, in files in a folder."""

    folder: Path
    schema: pa.Schema

    def slices(self, where: ds.Expression | None = None) -> Iterator[pa.Table]:
        """The rows, some at a time; those for which an expression is true."""
        if not any(self.folder.glob("*.parquet")):
            return
        found = ds.dataset(self.folder, format="parquet")
        scanner = found.scanner(columns=self.schema.names, filter=where, batch_size=_ROWS)
        for batch in scanner.to_batches():
            if batch.num_rows:
                yield pa.Table.from_batches([batch]).cast(self.schema)

    def remove(self) -> None:
        """Remove the files."""
        shutil.rmtree(self.folder, ignore_errors=True)


def stage(frame: DataFrame, folder: Path, schema: pa.Schema) -> Staged:
    """Have Spark compute a frame, and keep its rows in a folder until they are removed."""
    # Not lz4: Spark frames its blocks in a way that Arrow does not read.
    frame.write.mode("overwrite").option("compression", "snappy").parquet(str(folder))
    return Staged(folder, schema)
