"""The results of keyed state in a batch: files that the workers write."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from headrace.plan import arrow_files
from headrace.plan.batch import Payload


@dataclass(frozen=True)
class Outcome(Payload):
    """The results of the buckets of a step.

    `taken` is the number of rows that the buckets received, by their own count. `failed` is the
    number of rows, also of earlier batches, for which the user's function failed.
    """

    folder: Path
    outputs: tuple[Path, ...]
    failures: tuple[Path, ...]
    taken: int
    failed: int
    state_rows: int = 0
    """The number of keys with state and of waiting rows."""
    state_bytes: int = 0

    @property
    def state(self) -> tuple[int, int]:
        return self.state_rows, self.state_bytes

    def slices(self) -> Iterator[pa.Table]:
        """The output in slices, each of which is one commit."""
        return arrow_files.slices(self.outputs)

    def failed_slices(self) -> Iterator[pa.Table]:
        """The failed rows with their positions and the reason."""
        return arrow_files.slices(self.failures)

    def remove(self) -> None:
        """Remove the files."""
        shutil.rmtree(self.folder, ignore_errors=True)
