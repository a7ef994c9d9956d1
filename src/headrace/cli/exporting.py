"""Files that the rows of a view are written to."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import csv, ipc, parquet

from headrace.errors import UserError

_WRITERS: dict[str, Callable[[str, pa.Schema], Any]] = {
    ".parquet": parquet.ParquetWriter,
    ".arrow": ipc.new_file,
    ".csv": csv.CSVWriter,
}


def write(batches: pa.RecordBatchReader, file: Path) -> int:
    """Write batches to a file, whole or not at all; return the number of rows."""
    if (kind := file.suffix.lower()) not in _WRITERS:
        raise UserError(
            f"{str(file)!r} has no ending that is known", hint=f"Use {', '.join(_WRITERS)}"
        )
    if kind == ".csv" and any(pa.types.is_nested(field.type) for field in batches.schema):
        raise UserError("CSV cannot hold arrays and structs", hint="Use .parquet")
    part, rows = file.with_name(f".{file.name}.part"), 0
    try:
        with _WRITERS[kind](str(part), batches.schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
                rows += batch.num_rows
        part.replace(file)
    except OSError as error:
        raise UserError(f"{file} cannot be written: {error}", hint="Choose another file") from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink()
    return rows
