"""Run everything at once for a set time, with kills, stops and checks chosen by a seed."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import signal
from collections import Counter
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

from headrace.application.run import Run
from headrace.clock import SECOND, SystemClock
from headrace.errors import Fenced, Retryable
from headrace.log import open_log
from headrace.testing import Results
from tests.soak import stage
from tests.soak.accounts import Accounts, reached
from tests.soak.workers import GONE, begin, log_of, relay_some
from tests.spark import shuffling
from tests.waiting import left

FEWEST = 50
"""Minimum of batches that a run must acknowledge, however busy the machine is."""


_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.soak.workers"])


@dataclass
class Worker:
    """A process of a role, restarted whenever it has ended."""

    role: str
    name: str
    process: BaseProcess
    began: int
    reached: int | None
    """The view's position when it started."""
    resume: int | None = None
    """The time to resume it, if it is stopped."""


class Soak:
    """A run of the soak. With `spark`, the pipeline is killed and rebuilt as well."""

    def __init__(self, folder: Path, seed: int, seconds: float, *, spark: bool) -> None:
        self._folder = folder
        self._random = random.Random(seed)
        self._seconds = seconds
        self._spark = spark
        self._pause = max(0.03, seconds / 20_000)
        self._clock = SystemClock()
        self._log = open_log(log_of(folder))
        self._workers: dict[str, Worker] = {}
        self.accounts = Accounts(folder)
        self.happened: Counter[str] = Counter()

    def run(self) -> None:
        """Run everything; a violated invariant is an AssertionError."""
        with self._log as log:
            stage.make_log(log, self._folder)
            try:
                self._live()
            finally:
                for worker in self._workers.values():
                    self._signal(worker, signal.SIGKILL)
                    worker.process.join()
            self._finish_relaying()
            log.upkeep()
            tiered = sum(part.tiered_segments for part in log.topic(stage.ORDERS).partitions)
            self.happened["tiered segments"] = tiered
            self.accounts.check_end(log, self._catch_up())

    def _live(self) -> None:
        roles = dict.fromkeys(stage.MODES, "producer")
        roles |= {"relay-1": "relay", "relay-2": "relay", "upkeep": "upkeep"}
        roles |= {"pipeline": "pipeline"}
        for name, role in roles.items():
            self._start(role, name)
        end = self._clock.monotonic() + int(self._seconds * SECOND)
        next_check = self._clock.monotonic() + 4 * SECOND
        while self._clock.monotonic() < end or self.accounts.counted["acknowledged"] < FEWEST:
            self._clock.sleep(int(self._random.uniform(0.05, 0.6) * SECOND))
            self._revive()
            match self._random.choices(["kill", "stop", "rest"], [3, 2, 1])[0]:
                case "kill":
                    self._kill()
                case "stop":
                    self._stop()
            if self._clock.monotonic() > next_check:
                self.accounts.check(self._log)
                # Reading a long log takes long, and most of the time should go into the workers.
                span = max(4, self._seconds / 60)
                next_check = self._clock.monotonic() + int(span * SECOND)

    # Workers

    def _start(self, role: str, name: str) -> None:
        process = _context.Process(
            target=begin, args=(self._folder, role, name, self._pause), daemon=True
        )
        process.start()
        self._workers[name] = Worker(
            role, name, process, self._clock.monotonic(), reached(self._log)
        )
        self.happened[f"started {role}"] += 1

    def _revive(self) -> None:
        """Restart workers that have ended, and resume those that were stopped for long enough."""
        for worker in list(self._workers.values()):
            if worker.resume is not None and self._clock.monotonic() > worker.resume:
                self._signal(worker, signal.SIGCONT)
                worker.resume = None
            if worker.process.is_alive():
                continue
            code = worker.process.exitcode
            if code not in (0, GONE, -signal.SIGKILL):
                output = (self._folder / f"{worker.name}.said").read_text()
                raise AssertionError(f"{worker.name} ended with {code}: {output[-4000:]}")
            self.happened["sent away"] += code == GONE
            role = worker.role
            if worker.name == "pipeline":
                # A view can be switched only while its application is stopped.
                role = "rebuild" if self._spark and self._random.random() < 0.3 else "pipeline"
            self._start(role, worker.name)

    def _victim(self) -> Worker | None:
        """Choose a process, usually one that has had time to work."""
        worker = self._random.choice(list(self._workers.values()))
        lived = self._clock.monotonic() - worker.began
        if worker.name != "pipeline":
            ready = lived > self._random.uniform(0, 4) * SECOND
        else:
            done = reached(self._log) != worker.reached or self._random.random() < 0.02
            ready = self._spark and lived > self._random.uniform(5, 60) * SECOND and done
        return worker if ready and worker.process.is_alive() else None

    def _kill(self) -> None:
        if (worker := self._victim()) is not None:
            self._signal(worker, signal.SIGKILL)
            worker.process.join()
            self.happened[f"killed {worker.role}"] += 1

    def _stop(self) -> None:
        """Stop a process for a moment, or for longer than a session."""
        if (worker := self._victim()) is not None and worker.resume is None:
            self._signal(worker, signal.SIGSTOP)
            span = self._random.choice([0.1, 1, 1.5 * stage.SESSION.total_seconds()])
            worker.resume = self._clock.monotonic() + int(span * SECOND)
            self.happened[f"stopped {worker.role}"] += 1

    def _signal(self, worker: Worker, number: int) -> None:
        """Signal a worker and, once it leads a process group, its Java too."""
        pid = worker.process.pid
        if pid is None or not worker.process.is_alive():
            return
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(pid) == pid:
                os.killpg(pid, number)
            else:
                os.kill(pid, number)

    # The end

    def _finish_relaying(self) -> None:
        log = self._log
        while True:
            try:
                with (
                    log.producer() as producer,
                    log.consumer(
                        stage.ORDERS, group=stage.GROUP, commit="manual", session=stage.SESSION
                    ) as consumer,
                ):
                    while relay_some(producer, consumer) or log.group(stage.GROUP).lag:
                        assert left() > 1, "relaying does not come to its end"
                    return
            except (Fenced, Retryable):
                continue

    def _catch_up(self) -> Results:
        app, _ = stage.declare()
        with Run(app, self._log, until_caught_up=True, spark=shuffling(2)) as running:
            running.wait()
            return Results(self._log, app.name, tuple(running.progress()))

    def __str__(self) -> str:
        counts = {**self.happened, **self.accounts.counted}
        return ", ".join(f"{what} {number:,}" for what, number in sorted(counts.items()))
