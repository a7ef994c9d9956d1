"""A capture that is wrong on purpose: it acknowledges what it has read before it is in the log.

    python -m tests.recovery.early KIND ADDRESS FOLDER

It kills itself between the two.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from headrace.cdc import run
from headrace.cdc.contract import Gap, Source, SourceTransaction
from headrace.cdc.postgres.source import PostgresSource
from headrace.cdc.sqlite import SqliteSource
from headrace.log import open_log
from tests.waiting import left, started


def early_source(kind: str, address: str) -> Source:
    """A source that acknowledges too early, and takes it for granted that no change is missing."""
    source = SqliteSource(Path(address)) if kind == "sqlite" else PostgresSource(address)
    begin, read = source.begin, source.read

    def begin_anyway(position: str | None) -> Gap | None:
        return begin(position) and begin(None)

    def read_and_acknowledge(seconds: float) -> Sequence[SourceTransaction]:
        found = read(seconds)
        if found:
            source.acknowledge(found[-1].position)
        return found

    source.begin, source.read = begin_anyway, read_and_acknowledge  # type: ignore[method-assign]
    return source


def capture_early(kind: str, address: str, folder: Path) -> None:
    """Capture in a process that is killed before it writes what it has acknowledged."""
    command = [sys.executable, "-m", "tests.recovery.early", kind, address, str(folder)]
    process = started(subprocess.Popen(command, process_group=0))
    assert process.wait(left()) == -signal.SIGKILL


def main(kind: str, address: str, folder: str) -> None:
    def look(point: str) -> None:
        if point == "encoded":
            os.kill(os.getpid(), signal.SIGKILL)

    with open_log(f"file:{folder}") as log, early_source(kind, address) as source:
        run(source, log, "shop", crash_point=look)


if __name__ == "__main__":
    main(*sys.argv[1:])
