"""A process that captures a database until it is killed: `KIND ADDRESS FOLDER`.

It writes a line for each step that wrote something.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

from headrace.cdc import Limits, Progress, run
from headrace.cdc.contract import Source
from headrace.cdc.mysql.source import MySqlSource
from headrace.cdc.postgres.source import PostgresSource
from headrace.cdc.sqlite import SqliteSource
from headrace.log import open_log
from tests.recovery.loading import Loading
from tests.waiting import started, wait_until

LIMITS = Limits(changes=300, chunk_rows=100)
"""Small ones, so that there are many commits, and transactions with more changes than one has."""


class Capturing:
    """The process. It counts its steps."""

    def __init__(self, kind: str, address: str, folder: Path) -> None:
        command = [sys.executable, "-m", "tests.recovery.capturing_process", kind, address]
        with (folder.parent / "capture.txt").open("a") as errors:
            self._process = started(
                subprocess.Popen(
                    [*command, str(folder)],
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                    process_group=0,
                )
            )
        self.steps = 0
        self._reader = threading.Thread(target=self._count)
        self._reader.start()

    def _count(self) -> None:
        assert self._process.stdout is not None
        for _ in self._process.stdout:
            self.steps += 1

    def wait(self, steps: int, load: Loading) -> None:
        """Return when it has written so many times, or all there is to write is committed."""

        def done() -> bool:
            assert self._process.poll() is None, "the capture has ended by itself"
            return self.steps >= max(1, steps if load.running else 1)

        wait_until(done)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


def source_of(kind: str, address: str) -> Source:
    """The database at an address."""
    match kind:
        case "sqlite":
            return SqliteSource(Path(address))
        case "postgresql":
            return PostgresSource(address)
        case _:
            return MySqlSource(address, part_bytes=8_000)


def limits_of(kind: str) -> Limits:
    """Those of the tests. SQLite knows no transactions, so a small commit would divide one."""
    return Limits(chunk_rows=100) if kind == "sqlite" else LIMITS


def main(kind: str, address: str, folder: str) -> None:
    last = None

    def tell(progress: Progress) -> None:
        nonlocal last
        if progress.reached != last:
            last = progress.reached
            print(last.position, flush=True)

    with open_log(f"file:{folder}") as log, source_of(kind, address) as source:
        run(source, log, "shop", limits=limits_of(kind), tell=tell)


if __name__ == "__main__":
    main(*sys.argv[1:])
