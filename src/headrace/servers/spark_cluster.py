"""Spark's standalone cluster on one machine: a master and workers, each in its own process.

It shows how a cluster behaves, also when a worker dies, on one machine. The master and the workers
come with pyspark.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pyspark

from headrace.clock import MILLISECOND, SECOND, Clock, SystemClock
from headrace.closing import Closing
from headrace.errors import ServerError
from headrace.servers.java import java_home
from headrace.servers.java.ports import HOST, free
from headrace.servers.java.process import Process, start

_POLL = 50 * MILLISECOND
_READY_WITHIN = 90 * SECOND
_END_WITHIN = 5 * SECOND
_DEPLOY = "org.apache.spark.deploy"


class Standalone(Closing):
    """A master and workers on loopback. Closing it stops them.

    Their logs and the executors' work folders are in `folder`, and its file `url` has the master's
    address. `python` is the Python that runs functions on the workers.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        workers: int = 2,
        cores: int = 1,
        memory: str = "1g",
        python: str = sys.executable,
        clock: Clock | None = None,
    ) -> None:
        self.folder = Path(folder).resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._clock = clock or SystemClock()
        self._cores = cores
        self._memory = memory
        self._python = python
        self._workers: list[Process] = []
        port, self._page = free(2)
        self.url = f"spark://{HOST}:{port}"
        (self.folder / "url").write_text(self.url)
        where = ["--host", HOST, "--port", str(port), "--webui-port", str(self._page)]
        self._master = self._start("master", [f"{_DEPLOY}.master.Master", *where])
        try:
            for _ in range(workers):
                self.add_worker()
            self._wait()
        except BaseException:
            self.close()
            raise

    def add_worker(self) -> int:
        """Start one more worker, and return its number."""
        number = len(self._workers)
        port, page = free(2)
        room = ["--cores", str(self._cores), "--memory", self._memory]
        where = ["--host", HOST, "--port", str(port), "--webui-port", str(page)]
        work = ["--work-dir", str(self.folder / "work"), self.url]
        command = [f"{_DEPLOY}.worker.Worker", *where, *room, *work]
        self._workers.append(self._start(f"worker-{number}", command))
        return number

    def kill(self, worker: int) -> None:
        """Kill a worker and its executors, as when a machine loses power."""
        self._workers[worker].signal_group(signal.SIGKILL)
        self._workers[worker].end(self._clock, _END_WITHIN)

    def workers(self) -> list[str]:
        """The addresses of the workers that have registered with the master."""
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self._page}/json/", timeout=5) as page:
                state: dict[str, Any] = json.load(page)
        except (OSError, json.JSONDecodeError):
            return []  # a master that is still starting answers with HTML
        alive = [worker for worker in state["workers"] if worker["state"] == "ALIVE"]
        return [f"{worker['host']}:{worker['port']}" for worker in alive]

    def close(self) -> None:
        processes = [*self._workers, self._master]
        for process in processes:
            process.signal(signal.SIGTERM)
        for process in processes:
            process.end(self._clock, _END_WITHIN)
            process.signal_group(signal.SIGKILL)

    def _start(self, name: str, words: list[str]) -> Process:
        home = Path(pyspark.__file__).parent
        environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": self._python,
        }
        if (found := java_home()) is not None:
            environment["JAVA_HOME"] = str(found)
        command = [str(home / "bin" / "spark-class"), *words]
        return start(command, self.folder / f"{name}.log", environment)

    def _wait(self) -> None:
        until = self._clock.monotonic() + _READY_WITHIN
        while len(self.workers()) < len(self._workers):
            ended = [one for one in (self._master, *self._workers) if not one.alive()]
            if ended or self._clock.monotonic() > until:
                raise ServerError(
                    "Spark's master and workers did not start",
                    hint=f"Their logs are in {self.folder}",
                )
            self._clock.sleep(_POLL)
