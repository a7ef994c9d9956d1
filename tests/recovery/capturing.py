"""A process that captures a SQLite database, and kills itself or is killed."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from headrace.cdc import Limits, run
from headrace.cdc.sqlite import SqliteSource
from headrace.log import open_log

LIMITS = Limits(chunk_rows=40)


def main(folder: Path, point: str, nth: int) -> None:
    """Capture `shop.db` until a point is reached for the nth time, which kills the process."""
    reached = 0

    def look(name: str) -> None:
        nonlocal reached
        reached += name == point
        if name == point and reached == nth:
            os.kill(os.getpid(), signal.SIGKILL)

    with open_log(f"file:{folder / 'log'}") as log, SqliteSource(folder / "shop.db") as source:
        run(source, log, "shop", limits=LIMITS, crash_point=look, until_caught_up=not nth)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
