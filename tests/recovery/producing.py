"""Producer processes to kill, and the checks of the log afterwards."""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pyarrow as pa

from headrace.log import Log
from headrace.log.file.log import FileLog
from headrace.log.roles import Acks
from tests.recovery.crashing import CrashingDisk, KillAt, StepFile

PARTITIONS = 3
ROWS = 5
TOPICS = ("left", "right")
SETTINGS = {"segment_bytes": "8KiB"}


def make_log(folder: Path) -> None:
    with FileLog(folder) as log:
        for topic in TOPICS:
            log.create_topic(topic, partitions=PARTITIONS, settings=SETTINGS)


def batch_of(producer: str, number: int) -> pa.Table:
    """The rows of a producer's nth batch, the same every time."""
    rows = [(f"{producer}/{n}", json.dumps([producer, number, n]) + "x" * n) for n in range(ROWS)]
    return pa.table(
        {
            "key": pa.array([key.encode() for key, _ in rows], pa.binary()),
            "value": pa.array([value.encode() for _, value in rows], pa.binary()),
        }
    )


def produce(folder: Path, producer: str, mode: str, acks: Acks, kill_at: KillAt | None) -> None:
    """The child: continue where the last one was killed, and note each acknowledged batch."""
    disk = CrashingDisk(StepFile(folder / f"{producer}.step"), kill_at)
    acked = os.open(folder / f"{producer}.acked", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    log = FileLog(folder, disk=disk)
    # With a long linger, the records between two flushes are one commit and one sequence number.
    made = log.producer(id=producer, acks=acks, linger=timedelta(minutes=1))
    number = made.next_sequence
    while True:
        batch = batch_of(producer, number)
        if mode == "append":
            made.append("left", batch, sequence=number)
        elif mode == "send":
            for row in batch.to_pylist():
                made.send("left", row["value"], row["key"])
            made.flush()
        else:
            with made.transaction() as transaction:
                for topic in TOPICS:
                    transaction.append(topic, batch)
        os.write(acked, b"%d\n" % number)
        number += 1


@dataclass
class Found:
    """The counts of a check."""

    records: int = 0
    batches: int = 0
    acked: int = 0


def check(folder: Path, producers: dict[str, str]) -> Found:
    """Read everything, and compare it with the acknowledged batches."""
    found = Found()
    with FileLog(folder) as log:
        seen = {topic: _read(log, topic, found) for topic in TOPICS}
        for producer, mode in producers.items():
            path = folder / f"{producer}.acked"
            acked = [int(line) for line in path.read_text().split()] if path.exists() else []
            found.acked += len(acked)
            topics = TOPICS if mode == "transaction" else TOPICS[:1]
            for topic in topics:
                counts = seen[topic][producer]
                assert set(acked) <= set(counts), f"{producer}: acked and not in the log"
                assert sorted(counts) == list(range(len(counts))), f"{producer}: a batch is missing"
                wrong = {number: n for number, n in counts.items() if n != ROWS}
                assert not wrong, f"{producer}: batches torn or doubled in {topic}: {wrong}"
                found.batches += len(counts)
            if mode == "transaction":
                assert seen["left"][producer] == seen["right"][producer], "half a transaction"
    return found


def _read(log: Log, topic: str, found: Found) -> dict[str, Counter[int]]:
    """The rows of each batch by producer; checks offsets, order per key and every row's bytes."""
    batches: dict[str, Counter[int]] = defaultdict(Counter)
    last: dict[bytes, int] = {}
    ends = [0] * PARTITIONS
    for batch in log.read(topic):
        for record in batch.records():
            assert record.offset == ends[batch.partition], "offsets are not dense"
            ends[batch.partition] += 1
            producer, number, row = json.loads(record.value.rstrip(b"x"))
            expected = json.dumps([producer, number, row]) + "x" * row
            assert record.value == expected.encode(), "a torn record"
            assert record.key == f"{producer}/{row}".encode()
            assert last.get(record.key, -1) < number, f"key {record.key!r} is out of order"
            last[record.key] = number
            batches[producer][number] += 1
            found.records += 1
    return batches
