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

_ROWS = 20_000
"""So many are read at once. Arrow reads whole groups of a file, so these are no larger."""


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
        # What is read ahead would be held as well.
        scanner = found.scanner(
            columns=self.schema.names, filter=where, batch_size=_ROWS,
            batch_readahead=1, fragment_readahead=1,
        )  # fmt: skip
        for batch in scanner.to_batches():
            if batch.num_rows:
                yield pa.Table.from_batches([batch]).cast(self.schema)

    def remove(self) -> None:
        """Remove the files."""
        shutil.rmtree(self.folder, ignore_errors=True)


def stage(frame: DataFrame, folder: Path, schema: pa.Schema) -> Staged:
    """Have Spark compute a frame, and keep its rows in a folder until they are removed."""
    # Not lz4: Spark frames its blocks in a way that Arrow does not read.
    writer = frame.write.mode("overwrite").option("compression", "snappy")
    writer.option("parquet.block.row.count.limit", _ROWS).parquet(str(folder))
    return Staged(folder, schema)


def stage_counted(frame: DataFrame, folder: Path, schema: pa.Schema) -> Staged:
    """The same for a frame of which one wants to know what its counters have counted."""
    # To write a frame Spark plans it anew, and nobody can ask the counters of that plan.
    rows, columns = frame._jdf.queryExecution().toRdd(), frame._jdf.schema()
    spark = frame.sparkSession
    made = spark._jsparkSession.internalCreateDataFrame(rows, columns, False)
    return stage(DataFrame(made, spark), folder, schema)


def staging_of(checkpoint: Path) -> Path:
    """Where the results of a step are meanwhile: beside its checkpoint, if it has one."""
    return checkpoint.with_name(f"{checkpoint.name}.staged")
