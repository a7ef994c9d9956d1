"""An application in real time in a separate process, which tests can kill at any moment."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import headrace as hr
from headrace.clock import SECOND, SystemClock, to_datetime, to_micros
from headrace.log import Log, Record
from headrace.operators.alerts.declare import ALERT
from headrace.operators.alerts.meaning import Flagged, Judge, flagged
from headrace.oracle.events import Event
from headrace.pipeline.stream import Source, sources
from tests.waiting import left

Row = dict[str, Any]

APP = """
from datetime import timedelta
import headrace as hr
from tests.property.flagging import RULES

app = hr.App("live")
visits = app.topic(
    "live.visits", schema="page string, tags array<string>, cost decimal(10, 2), at timestamp",
    key="page", event_time="at", partitions=2,
)
tagged = hr.explode(hr.filter(visits, "page <> 'bot'"), "tags", into="tag")
app.publish("live.tagged", hr.select(tagged, "page", "tag", "cost", "at"))

uses = app.topic(
    "live.uses", schema="use string, card string, n bigint, at timestamp", key="card",
    event_time="at", partitions=2,
)
alerts = hr.alerts(
    hr.filter(uses, "card <> 'test'"), by="card", event="use", within=timedelta(seconds=10),
    delay=timedelta(minutes=1), rules=RULES,
)
app.publish("live.alerts", alerts)
app.publish("live.late", alerts.late)

cards = app.topic(
    "live.cards", schema="card string, limit int, since timestamp", key="card", event_time="since",
)
known = hr.enrich(uses, hr.table(cards, key="card"), on={"card": "card"}, mode="latest")
dear = hr.alerts(
    known, by="card", event="use", within=timedelta(seconds=10), delay=timedelta(minutes=1),
    rules={"dear": hr.rule("n > limit")},
)
app.publish("live.dear", dear)
"""
"""Rows that are changed one by one, and alerts, some with a lookup table.

All names begin with `live`.
"""


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

    def __enter__(self) -> Live:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()  # the test has failed meanwhile

    def start(self) -> None:
        """Start it, or resume it."""
        with self._said.open("ab") as said:
            self._process = subprocess.Popen(
                self._words, stdout=subprocess.PIPE, stderr=said, env=self._environment,
                process_group=0,
            )  # fmt: skip

    def kill(self) -> None:
        """Kill it and its Java at once."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def stop(self) -> dict[str, Row]:
        """Stop it, and return its report of each step."""
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        out, _ = self._process.communicate(timeout=left())
        assert self._process.returncode == 130, self._said.read_text()
        return {line["step"]: line for line in map(json.loads, out.splitlines())}

    def refused(self) -> str:
        """Start it where it cannot run, and return its error output."""
        done = subprocess.run(
            self._words, capture_output=True, text=True, env=self._environment, timeout=left(),
            check=False,
        )  # fmt: skip
        assert done.returncode != 0, done.stdout
        return done.stderr

    def until(self, true: Callable[[], bool]) -> None:
        """Wait for a condition that the running application will fulfil."""
        clock, process = SystemClock(), self._process
        assert process is not None
        while not true():
            assert process.poll() is None, self._said.read_text()
            assert left() > 1, self._said.read_text()
            clock.sleep(SECOND // 5)


class Declared(NamedTuple):
    """The parts of the application that tests need."""

    alerts: hr.Alerts
    cards: Source


def declared(file: Path, prefix: str) -> Declared:
    """Write the application to a file, with unique names."""
    file.write_text(APP.replace("live", prefix))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return Declared(module.alerts, module.cards)


def uses(number: int, seed: int) -> list[Row]:
    """Uses of a few cards, some of them out of order and some too late."""
    some = random.Random(seed)
    now = to_datetime(SystemClock().now())
    return [
        {
            "use": f"{seed}-{i}",
            "card": some.choice(["a", "b", "c", "test"]),
            "n": some.choice([None, 0, 1, 2, 3]),
            "at": now - timedelta(seconds=some.choice([0, 1, 2, 5, 9, 120])),
        }
        for i in range(number)
    ]


def records_in(log: Log, topic: str) -> list[Record]:
    """All records of a topic, or none if it does not exist."""
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
    """The oracle's rows of a topic, where each record is a commit and meets its own append time."""
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
