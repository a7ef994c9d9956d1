"""An application in real time, in a process of its own, that can be killed at any moment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from headrace import streams as hr
from headrace.clock import SECOND, SystemClock, to_micros
from headrace.log import Log, Record
from headrace.oracle.alerts import Flagged, Judge, flagged
from headrace.oracle.events import Event
from headrace.streams.alerts import ALERT
from headrace.streams.stream import sources

Row = dict[str, Any]

PATIENCE = 90 * SECOND


class Live:
    """A process that runs an application: FILE.py:app."""

    def __init__(self, reference: str, url: str, folder: Path) -> None:
        self._words = [
            *(sys.executable, "-m", "headrace.cli.main", "run", reference, "--log", url),
            *("--latency", "real-time", "--checkpoint", "5s", "--brief", "--json"),
            *("--shuffle-partitions", "2"),
        ]
        self._environment = {**os.environ, "HEADRACE_STATE": str(folder / "state")}
        self._said = folder / "said"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._said.open("ab") as said:
            self._process = subprocess.Popen(
                self._words, stdout=subprocess.PIPE, stderr=said, env=self._environment,
                process_group=0,
            )  # fmt: skip

    def kill(self) -> None:
        """Kill it and the Java that it has started, at once."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def stop(self) -> dict[str, Row]:
        """Ask it to stop; returns what it says of each step."""
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        out, _ = self._process.communicate(timeout=60)
        assert self._process.returncode == 130, self._said.read_text()
        return {line["step"]: line for line in map(json.loads, out.splitlines())}

    def until(self, true: Callable[[], bool]) -> None:
        """Return when something is so, as it will be while the application runs."""
        clock = SystemClock()
        end = clock.monotonic() + PATIENCE
        while not true():
            assert self._process is not None
            assert self._process.poll() is None, self._said.read_text()
            assert clock.monotonic() < end, self._said.read_text()
            clock.sleep(SECOND // 5)


def records_in(log: Log, topic: str) -> list[Record]:
    """All that is in a topic, which need not be there."""
    if topic not in {there.name for there in log.topics()}:
        return []
    return [record for batch in log.read(topic) for record in batch.records()]


def rows_in(log: Log, topic: str) -> list[Row]:
    """The rows of a topic."""
    return [record.value for record in records_in(log, topic)]


def once(rows: Iterable[Row], by: str = ALERT) -> dict[str, Row]:
    """The first row of each id."""
    found: dict[str, Row] = {}
    for row in rows:
        found.setdefault(row[by], row)
    return found


def expected(log: Log, step: hr.Alerts, judges: Mapping[str, Judge]) -> Flagged:
    """What the oracle says of a topic, where each record is by itself and meets its own append."""
    (source,) = sources(step)
    records = records_in(log, source.topic.name)
    records.sort(key=lambda record: (record.timestamp, record.partition, record.offset))
    events = [
        Event(
            source.topic,
            number,
            record.partition,
            record.offset,
            to_micros(record.timestamp),
            to_micros(record.timestamp),
            record.value,
        )
        for number, record in enumerate(records)
    ]
    return flagged(step, events, judges)
