"""Consumer processes to kill, and the records that their guarantee still demands."""

from __future__ import annotations

import os
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path

from headrace.log import EARLIEST, LATEST
from headrace.log.file.log import FileLog
from headrace.log.roles import CommitMode
from tests.recovery.crashing import CrashingDisk, KillAt, StepFile

PARTITIONS = 4
POLL = 7
GROUP = "workers"
_WORK = 0.01
SESSION = timedelta(seconds=2)

MODES: dict[str, CommitMode] = {
    "at most once": "before",
    "at least once": "after",
    "exactly once": "manual",
}


def make_log(folder: Path, records: int) -> None:
    with FileLog(folder) as log:
        log.create_topic("in", partitions=PARTITIONS)
        log.create_topic("out", partitions=PARTITIONS)
        with log.producer() as producer:
            for number in range(records):
                producer.send("in", str(number), key=str(number % 50))


def consume(
    folder: Path, name: str, guarantee: str, instance: str | None, kill_at: KillAt | None
) -> None:
    """The child: handle records for ever, and note each one that is handled."""
    disk = CrashingDisk(StepFile(folder / f"{name}.step"), kill_at)
    handled = os.open(folder / f"{name}.handled", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    log = FileLog(folder, disk=disk)
    # Each replacement of a process has its own name.
    producer = log.producer(acks="written", linger=timedelta(minutes=1))
    consumer = log.consumer(
        "in", group=GROUP, commit=MODES[guarantee], instance=instance, session=SESSION
    )
    while True:
        records = consumer.poll(timedelta(milliseconds=20), max_records=POLL)
        time.sleep(_WORK)  # noqa: TID251 - so that kills fall between a poll and its handling
        if guarantee == "exactly once":
            with producer.transaction() as transaction:
                for record in records:
                    transaction.send("out", record.value, record.key)
                transaction.commit_offsets(consumer)
        else:
            for record in records:
                os.write(handled, record.value + b"\n")


def lag(folder: Path) -> int:
    with FileLog(folder) as log:
        state = log.group(GROUP)
        return state.lag if state.lags else 1


def handled(folder: Path, guarantee: str) -> Counter[int]:
    """The number of times that each record was handled, by all processes together."""
    if guarantee == "exactly once":
        with FileLog(folder) as log:
            batches = log.read("out", start=EARLIEST, stop=LATEST)
            return Counter(int(record.value) for batch in batches for record in batch.records())
    return Counter(
        int(line) for path in folder.glob("*.handled") for line in path.read_text().split()
    )
