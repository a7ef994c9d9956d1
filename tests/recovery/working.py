"""Queue workers to kill, and what became of the messages."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import apsw

from headrace.log.file.catalog import one
from headrace.log.file.log import FileLog
from headrace.log.file.queue.parts import Settling, _Row
from headrace.log.file.queue.rows import PLACE, change_held
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
from tests.waiting import wait_until

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


def run_worker(
    folder: Path, name: str, kill_at: KillAt | None, lacks: str = "", prefetch: int = 20
) -> None:
    """The child: work until it is killed. Without the fence that it `lacks`, results are wrong."""
    disk = CrashingDisk(StepFile(folder / f"{name}.step"), kill_at)
    log = FileLog(folder, disk=disk)
    producer = log.producer(acks="synced")

    def write_and_accept(message: Message) -> None:
        send = handle(message)
        producer.send(send.topic, send.value, send.key).wait()

    handler = write_and_accept if lacks == "atomic accept" else handle
    (folder / f"{name}.ready").touch()
    Worker(open_queue(log, "work", worker=name), handler, concurrency=3, prefetch=prefetch).run()


def run_slow_worker(folder: Path, lacks: str = "") -> None:
    """A child that works on its first message until it is told to go on, after its lease."""
    if lacks == "lease token":
        Settling.check = _check_no_token  # type: ignore[assignment, method-assign]

    def handle_late(message: Message) -> Send:
        (folder / "slow.begun").touch()
        wait_until((folder / "slow.go").exists)
        return handle(message)

    queue = open_queue(FileLog(folder), "work", worker="slow")
    Worker(queue, handle_late, prefetch=1, longest=timedelta(0)).run(until_empty=True)


def _check_no_token(settling: Settling, db: apsw.Connection) -> None:
    queue = settling._queue.id
    for each in settling._settled:
        place = (each.partition, each.offset)
        sql = f"SELECT number, rank, key, deliveries FROM message WHERE {PLACE}"
        found = one(db, sql, queue, *place)
        if found is None:
            change_held(db, queue, 1)
        settling._rows[place] = _Row(*(found or (0, 0, None, 1)))


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
