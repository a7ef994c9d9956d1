"""A process that runs a pipeline, and is killed repeatedly while its topics grow."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from headrace.clock import SystemClock
from headrace.testing import POINTS
from tests.waiting import left, started

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Cluster:
    """The cluster that it runs on, if any, and the Python of its workers."""

    url: str
    python: str


class Victim:
    """The application `killed` of a kind, in a log's folder.

    `feed` is called with a number of batches, and adds that many to the log.
    """

    def __init__(
        self,
        folder: Path,
        which: str,
        seed: int,
        feed: Callable[[int], None],
        cluster: Cluster | None = None,
    ) -> None:
        self._folder = folder
        self._which = which
        self._points = folder.parent / "points.txt"
        self._feed = feed
        self._cluster = cluster
        self._random = random.Random(seed)
        self.fell_on: Counter[str] = Counter()

    def kill_at(self, point: str, nth: int) -> None:
        """Let it run until it kills itself at a point."""
        self._feed(nth + 1)
        assert self._start(point, nth).wait(left()) == -signal.SIGKILL, point
        self._record()

    def kill_soon(self) -> None:
        """Kill it from outside some time after its first batch began."""
        self._feed(6)
        process, clock = self._start("-", 0), SystemClock()
        while process.poll() is None and "batch began" not in self._reached():
            clock.sleep(20_000)
        clock.sleep(self._random.randrange(3_000_000))
        process.send_signal(signal.SIGKILL)
        if process.wait(left()) == -signal.SIGKILL:
            self._record()

    def run_while(self, batches: int, happens: Callable[[], None]) -> None:
        """Let it run to the end, and call something some time after a batch began."""
        self._feed(batches)
        process, clock = self._start("-", 0), SystemClock()
        while process.poll() is None and self._reached().count("batch began") < 2:
            clock.sleep(20_000)
        clock.sleep(self._random.randrange(2_000_000))
        assert process.poll() is None, "it was over before anything could happen"
        happens()
        assert process.wait(left()) == 0

    def kill_everywhere(self, *, times: int = 1, more: int = 0) -> None:
        """Kill it at every point a number of times, and then at random."""
        for nth in range(1, times + 1):
            for point in POINTS:
                self.kill_at(point, nth)
        for _ in range(more):
            self.kill_soon()
        assert set(POINTS) <= set(self.fell_on)

    def __str__(self) -> str:
        summary = ", ".join(f"{point} {n}" for point, n in self.fell_on.items())
        return f"{self.fell_on.total()} kills: {summary}"

    def _start(self, point: str, nth: int) -> subprocess.Popen[bytes]:
        self._points.unlink(missing_ok=True)
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
        if self._cluster is not None:
            environment["PYSPARK_PYTHON"] = self._cluster.python
        process = subprocess.Popen(
            [
                sys.executable, "-m", "tests.recovery.piping",
                str(self._folder), "killed", self._which, str(self._points), point, str(nth),
                "" if self._cluster is None else self._cluster.url,
            ],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )  # fmt: skip
        return started(process)

    def _reached(self) -> str:
        return self._points.read_text() if self._points.exists() else ""

    def _record(self) -> None:
        points = self._reached().splitlines()
        self.fell_on[points[-1] if points else "starting"] += 1
