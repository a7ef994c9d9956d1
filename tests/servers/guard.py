"""Removes a server when nobody uses it any more, even if the test run was killed.

Each user holds a shared lock of a file, which ends with its process. The guard waits for the lock
that excludes all others, then stops the server and deletes its folder.

    python -m tests.servers.guard USERS FOLDER SIGNAL
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sys
from pathlib import Path

from headrace.clock import SECOND, SystemClock
from headrace.servers.java.process import Process, start

PROCESS = "process"
"""The file, in a server's folder, that has its process id and start time."""

_ROOT = Path(__file__).parents[2]


def watch(users: Path, folder: Path, number: int) -> None:
    """Start the guard of a server. The caller holds the shared lock."""
    arguments = [str(users), str(folder), str(number)]
    # The test may have left the folder of the project.
    found = os.environ | {"PYTHONPATH": f"{_ROOT}{os.pathsep}{_ROOT / 'src'}"}
    start([sys.executable, "-m", __name__, *arguments], folder / "guard.log", found)


def running(folder: Path) -> Process | None:
    """The process of the server in a folder; None if it was never started."""
    try:
        pid, _, started = (folder / PROCESS).read_text().partition(" ")
    except FileNotFoundError:
        return None
    return Process(int(pid), started)


def main(users: Path, folder: Path, number: int) -> None:
    with users.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (process := running(folder)) is not None:
            process.signal(number)
            with contextlib.suppress(TimeoutError):
                process.end(SystemClock(), 20 * SECOND)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
