"""Queue workers to kill, and what became of the messages."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from headrace.log.file.log import FileLog
from headrace.queue import (
    Message,
    NewMessage,
    QueueSettings,
    Send,
    Worker,
    create_queue,
    open_queue,
)
from tests.recovery.crashing import CrashingDisk, KillAt, StepFile

KEYS = 20
_SETTINGS = QueueSettings(lease=timedelta(seconds=1), max_deliveries=None, ordered=True)


def make_log(folder: Path) -> None:
    with FileLog(folder) as log:
        log.create_topic("results", partitions=2)
        create_queue(log, "work", partitions=3, settings=_SETTINGS)


def put(folder: Path, numbers: range) -> None:
    with FileLog(folder) as log:
        open_queue(log, "work").put_many(NewMessage(str(n), key=str(n % KEYS)) for n in numbers)


def handle(message: Message) -> Send:
    time.sleep(0.001)  # noqa: TID251 - so that kills fall between taking and accepting
    return Send("results", message.value, message.key)


def run_worker(folder: Path, name: str, kill_at: KillAt | None) -> None:
    """The child: work until it is killed."""
    disk = CrashingDisk(StepFile(folder / f"{name}.step"), kill_at)
    log = FileLog(folder, disk=disk)
    (folder / f"{name}.ready").touch()
    Worker(open_queue(log, "work", worker=name), handle, concurrency=3, prefetch=20).run()


def unfinished(folder: Path) -> int:
    with FileLog(folder) as log:
        return open_queue(log, "work").state().unfinished


@dataclass
class Found:
    """What the topics say: how often each message was accepted and has a result, and keys whose
    results are out of order."""

    accepted: Counter[tuple[int, int]]
    results: Counter[int]
    disordered: list[bytes]


def found(folder: Path) -> Found:
    accepted: Counter[tuple[int, int]] = Counter()
    by_key: dict[bytes, list[int]] = {}
    results: Counter[int] = Counter()
    with FileLog(folder) as log:
        for batch in log.read("work.journal"):
            accepted.update(
                (row["partition"], row["offset"])
                for row in batch.data.to_pylist()
                if row["outcome"] == "accepted"
            )
        for batch in log.read("results"):
            for record in batch.records():
                results[int(record.value)] += 1
                by_key.setdefault(record.key, []).append(int(record.value))
    disordered = [key for key, numbers in by_key.items() if numbers != sorted(numbers)]
    return Found(accepted, results, disordered)
