"""A process that loads files, and expects to be killed."""

from __future__ import annotations

from pathlib import Path

from headrace.backfill import reading
from headrace.backfill.chunks import Refuse
from headrace.backfill.finding import find_files
from headrace.backfill.loading import Loaded, Loader
from headrace.log import Log
from headrace.log.file.log import FileLog
from tests.recovery.crashing import CrashingDisk, KillAt, StepFile

CHUNK = 10
"""Rows of a chunk, few so that a short file has many."""


def load(
    log: Log, topic: str, *wanted: str, job: str = "", refuse: Refuse | None = None
) -> list[Loaded]:
    """Load files to their end."""
    loader, found = Loader(log, topic, job=job), [Loaded(file) for file in find_files(wanted)]
    for loaded in found:
        for _ in loader.load(loaded, refuse):
            pass
    return found


def load_and_die(folder: Path, files: Path, kill_at: KillAt) -> None:
    """The child: load the files of a folder into the topic `rows`."""
    reading.CHUNK_ROWS = CHUNK  # type: ignore[attr-defined]
    disk = CrashingDisk(StepFile(folder / "step"), kill_at)
    with FileLog(folder, disk=disk) as log:
        load(log, "rows", str(files))
