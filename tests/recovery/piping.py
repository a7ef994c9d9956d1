"""Run a pipeline in a separate process, to be killed at a point of a batch or from outside.

    python -m tests.recovery.piping FOLDER APP WHICH REACHED POINT NTH [MASTER]

WHICH is one of those in `pipeline`, `joined` or `order_tables`. Every point that is reached is
written to the file REACHED. POINT `-` kills nothing. MASTER is the cluster to run on.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import headrace as hr
from headrace.application.run import Run
from headrace.clock import VirtualClock
from headrace.log import open_log
from headrace.plan.source_options import BatchLimits
from headrace.runtime.session import SparkSettings
from headrace.testing import kill_at
from tests.recovery import joined, order_tables, pipeline
from tests.recovery.pipeline import NOW


def declare(name: str, which: str) -> hr.App:
    """An application of a kind."""
    match which:
        case "tables":
            return order_tables.declare(name)[0]
        case "pairs" | "known":
            return joined.declare(name, (which,))
        case "small" | "grid" | "own" | "distinct" | "state" | "alerts":
            return pipeline.declare(name, which)[0]
        case _:
            raise ValueError(which)


def main(
    folder: str, name: str, which: str, reached: str, point: str, nth: str, master: str = ""
) -> None:
    app = declare(name, which)
    kill = kill_at(point, int(nth)) if point != "-" else None
    with Path(reached).open("a") as file:

        def crash_point(name: str) -> None:
            file.write(name + "\n")
            file.flush()
            if kill is not None:
                kill(name)

        with (
            # The producers' clock, or its own commits would make their append times later.
            open_log(f"file:{folder}", clock=VirtualClock(NOW)) as log,
            Run(
                app,
                log,
                until_caught_up=True,
                settings=SparkSettings(
                    memory="1g", shuffle_partitions=2, brief=True, master=master
                ),
                batch_limits=BatchLimits(max_commits=3),
                crash_point=crash_point,
            ) as running,
        ):
            running.wait()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
