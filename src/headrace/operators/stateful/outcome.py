"""What buckets come to in a batch: files that their workers write, and who wrote what."""

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
    """What the buckets of a step have come to in a batch.

    `taken` is how many rows the buckets say they were given, whatever was sent to them, and
    `failed` for how many of these, or of those before, the user's function failed.
    """

    folder: Path
    outputs: tuple[Path, ...]
    failures: tuple[Path, ...]
    taken: int
    failed: int
    state_rows: int = 0
    """Keys with state, and rows that wait."""
    state_bytes: int = 0

    @property
    def state(self) -> tuple[int, int]:
        return self.state_rows, self.state_bytes

    def slices(self) -> Iterator[pa.Table]:
        """The output, some at a time: each table is one commit."""
        return arrow_files.slices(self.outputs)

    def failed_slices(self) -> Iterator[pa.Table]:
        """The rows that the function failed for, with their places and the reason."""
        return arrow_files.slices(self.failures)

    def remove(self) -> None:
        """Remove the files."""
        shutil.rmtree(self.folder, ignore_errors=True)
