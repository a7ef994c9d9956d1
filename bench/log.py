"""The embedded log against plain pyarrow and an SQLite table.

`append` and `scan`: whole Arrow batches, against writing and reading the same batches as plain
Arrow streams. `append_by_key`: the same when the log sorts the rows into partitions by key, which
the plain writer does not. `send`: record by record, synced, against inserting rows one by one in
synced SQLite transactions of 1,000. `open`: opening a log and seeking to a time, a large log
against a small one. `scan_memory`: the peak memory of a process that scans, also large to small.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench.baselines import plain_arrow, sqlite_rows
from bench.measure import Progress, Result, best_of, cost, rate, report, seconds
from headrace.log import Log, Time, open_log

PARTITIONS = 2
KEY_BYTES, VALUE_BYTES = 13, 87


def run(*, quick: bool = False, progress: Progress = lambda _: None) -> dict[str, Any]:
    """Run the benchmark; `quick` takes a tenth of the data, as a smoke test."""
    scale = 10 if quick else 1
    rounds = 3 if quick else 12
    settings = {
        "partitions": PARTITIONS,
        "record_bytes": KEY_BYTES + VALUE_BYTES,
        "batch_rows": 100_000 // scale,
        "records": 2_000_000 // scale,
        "sent_records": 500_000 // scale,
        "small_log": 100_000 // scale,
        "large_log": 10_000_000 // scale,
        "rounds": rounds,
    }
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        home = Path(folder)
        results = [
            *_batches(home, settings, progress),
            _send(home, settings, progress),
            *_size(home, settings, progress),
        ]
    return report("log", settings, results)


def _batches(home: Path, settings: dict[str, int], progress: Progress) -> list[Result]:
    progress("append and scan")
    batches = _make_batches(settings["records"], settings["batch_rows"])
    rows = sum(batch.num_rows for batch in batches)
    plain = home / "plain"
    logs: list[Log] = []

    def write_plain() -> float:
        shutil.rmtree(plain, ignore_errors=True)
        return seconds(lambda: plain_arrow.write(plain, batches, PARTITIONS))

    def append(*, by_key: bool) -> float:
        for old in logs:
            old.close()
        logs[:] = [_fresh_log(home / "log")]

        def work() -> None:
            with logs[0].producer(acks="written") as producer:
                for index, batch in enumerate(batches):
                    target = None if by_key else index % PARTITIONS
                    producer.append("events", batch, partition=target)

        return seconds(work)

    def scan() -> float:
        found = []
        spent = seconds(lambda: found.append(sum(len(b) for b in logs[0].read("events"))))
        assert found == [rows], f"the log has {found} rows instead of {rows}"
        return spent

    plainly, keyed, ours, read_plain, read_ours = best_of(
        settings["rounds"],
        write_plain,
        lambda: append(by_key=True),
        lambda: append(by_key=False),
        lambda: seconds(lambda: plain_arrow.read(plain)),
        scan,
    )
    for log in logs:
        log.close()
    unit = "records/s"
    return [
        rate("append", unit, rows, ours, "plain pyarrow IPC", plainly),
        rate("append_by_key", unit, rows, keyed, "plain pyarrow IPC, not sorted by key", plainly),
        rate("scan", unit, rows, read_ours, "plain pyarrow IPC, no checksums", read_plain),
    ]


def _send(home: Path, settings: dict[str, int], progress: Progress) -> Result:
    progress("send")
    count = settings["sent_records"]
    data = np.random.default_rng(1).bytes(count * VALUE_BYTES)
    records = [
        (b"user-%08d" % (i % 1000), data[i * VALUE_BYTES : (i + 1) * VALUE_BYTES])
        for i in range(count)
    ]

    def send() -> float:
        with _fresh_log(home / "log") as log:

            def work() -> None:
                with log.producer(acks="synced", linger=timedelta(milliseconds=100)) as producer:
                    put = producer.send
                    for key, value in records:
                        put("events", value, key)

            spent = seconds(work)
            assert log.topic("events").records == count
            return spent

    def insert() -> float:
        for path in home.glob("rows.db*"):
            path.unlink()
        return seconds(lambda: sqlite_rows.insert(home / "rows.db", records, PARTITIONS))

    theirs, ours = best_of(max(2, settings["rounds"] // 3), insert, send)
    return rate("send", "records/s", count, ours, "SQLite rows, transactions of 1,000", theirs)


def _size(home: Path, settings: dict[str, int], progress: Progress) -> list[Result]:
    folders = []
    for name in ("small_log", "large_log"):
        records = settings[name]
        progress(f"open: a log of {records:,} records")
        folders.append(home / name)
        with _fresh_log(folders[-1]) as log, log.producer(acks="written") as producer:
            for index, batch in enumerate(_make_batches(records, 1_000)):
                producer.append("events", batch, partition=index % PARTITIONS)

    def open_and_seek(folder: Path) -> float:
        with open_log(f"file:{folder}") as log:
            middle = log.commit_time(max(1, log.head() // 2))

        def work() -> None:
            with open_log(f"file:{folder}", create=False) as log:
                for partition in range(PARTITIONS):
                    offset = log.offset_at("events", partition, Time(middle))
                    start = log.topic("events").partitions[partition].first + offset
                    assert start > 0 or settings["small_log"] <= 1_000

        return seconds(work)

    progress("open: opening")
    small, large = best_of(
        settings["rounds"] * 2, *(lambda f=folder: open_and_seek(f) for folder in folders)
    )
    progress("scan memory")
    memory_small, memory_large = (_scan_memory(folder) for folder in folders)
    much, little = f"{settings['large_log']:,}", f"{settings['small_log']:,}"
    return [
        cost("open", f"ms for {much} records", large * 1e3, f"{little} records", small * 1e3),
        cost(
            "scan_memory",
            f"MiB of process for {much} records",
            memory_large,
            f"{little} records",
            memory_small,
        ),
    ]


_SCAN = """
import sys
from headrace.log import open_log
rows = sum(len(batch) for batch in open_log(sys.argv[1], create=False).read("events"))
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(int(peak.split()[1]) / 1024)
"""


def _scan_memory(folder: Path) -> float:
    """The peak memory of a process that scans a log, in MiB."""
    answer = subprocess.run(
        [sys.executable, "-c", _SCAN, f"file:{folder}"], capture_output=True, text=True, check=True
    )
    return float(answer.stdout)


def _fresh_log(folder: Path) -> Log:
    shutil.rmtree(folder, ignore_errors=True)
    log = open_log(f"file:{folder}")
    log.create_topic("events", partitions=PARTITIONS)
    return log


def _make_batches(records: int, rows: int) -> list[pa.RecordBatch]:
    """Batches of raw records: the same ten repeated, to save memory."""
    random = np.random.default_rng(1)
    different = []
    for _ in range(min(10, records // rows)):
        keys = pa.array([b"user-%08d" % n for n in random.integers(0, 100_000, rows)], pa.binary())
        data = random.bytes(rows * VALUE_BYTES)
        values = pa.array([data[i : i + VALUE_BYTES] for i in range(0, len(data), VALUE_BYTES)])
        headers = pa.nulls(
            rows, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        )
        different.append(
            pa.record_batch([keys, values, headers], names=["key", "value", "headers"])
        )
    return [different[i % len(different)] for i in range(records // rows)]
