"""Any system call may fail: nothing is lost or duplicated, and the failure is reported."""

from __future__ import annotations

import errno
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pytest

from headrace.clock import VirtualClock
from headrace.errors import HeadraceError, LogError
from headrace.log import EARLIEST
from headrace.log.file.log import FileLog
from tests.recovery.faulty import Faults, FaultyDisk

# SQLite ignores failures in a checkpoint, and apsw then has no caller to raise them to.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

ERRORS = [errno.EIO, errno.EMFILE, errno.EACCES, errno.ENOSPC]
T = TypeVar("T")


class Script:
    """A workload whose steps are retried after the fault is mended."""

    def __init__(self, folder: Path, at: int, number: int) -> None:
        self.folder = folder
        self.disk = FaultyDisk(Faults(at, number))
        self.clock = VirtualClock(10**15)
        self.errors: list[HeadraceError] = []
        self.sent: dict[str, list[bytes]] = {"t": [], "table": []}

    def step(self, action: Callable[[], T]) -> T:
        try:
            return action()
        except LogError as error:
            self.errors.append(error)
            assert self.disk.faults.failed, error
            assert error.hint, f"{error} does not say what to do"
        finally:
            if self.disk.faults.failed:
                self.disk.faults.mend()
        return action()

    def run(self) -> None:
        log = self.step(
            lambda: FileLog(self.folder, disk=self.disk, clock=self.clock, patience=0.1)
        )
        try:
            self._run(log)
        finally:
            log.close()

    def _run(self, log: FileLog) -> None:
        def topic(name: str, **settings: str) -> None:
            if name not in {t.name for t in log.topics()}:  # maybe only the answer was lost
                log.create_topic(name, settings=settings)

        self.step(lambda: topic("t", segment_bytes="2KiB"))
        self.step(lambda: topic("table", segment_bytes="1KiB", cleanup="compact"))
        written = self.step(lambda: log.producer(id="w", acks="written"))
        synced = self.step(lambda: log.producer(id="s", acks="synced"))
        consumer = self.step(lambda: log.consumer("t", group="g", commit="manual"))
        for number in range(6):
            producer = synced if number % 3 == 2 else written
            for name in self.sent:
                value = b"%s %d " % (name.encode(), number) + b"x" * 400
                rows = pa.table({"key": [b"%d" % (number % 2)], "value": [value]})
                sequence = producer.next_sequence
                self.step(lambda: producer.append(name, rows, sequence=sequence))  # noqa: B023
                self.sent[name].append(value)
            self.check(log)
        handled: list[bytes] = []
        while len(handled) < 3:  # a poll returns what it has, and the next one raises
            # A consumer that failed after it had joined stays a member until its session expires.
            self.clock.advance(timedelta(seconds=11))
            records = self.step(lambda: consumer.poll(max_records=3 - len(handled)))
            handled.extend(record.value for record in records)
        assert handled == self.sent["t"][:3]
        self.step(consumer.commit)
        self.step(lambda: log.compact("table"))
        self.step(log.upkeep)
        self.check(log)

    def check(self, log: FileLog) -> None:
        found = self.step(lambda: [r.value for b in log.read("t") for r in b.records()])
        assert found == self.sent["t"]
        last = {b"%d" % (number % 2): value for number, value in enumerate(self.sent["table"])}
        table = self.step(lambda: {r.key: r.value for b in log.read("table") for r in b.records()})
        assert table == last

    def check_after(self) -> None:
        """Check the log as another process finds it."""
        with FileLog(self.folder, clock=self.clock) as log:
            self.check(log)
            assert log.group("g").lags[0].committed == 3
            with log.producer() as producer:
                producer.send("t", b"more").wait()
            log.upkeep()
            assert log.offset_at("t", 0, EARLIEST) == 0


def calls(home: Path) -> int:
    """The number of calls of the script without a fault."""
    script = Script(home / "whole", 1 << 40, errno.EIO)
    with script.disk.fails():
        script.run()
    script.check_after()
    return script.disk.faults.calls


def fail_at(home: Path, at: int, number: int) -> list[HeadraceError]:
    script = Script(home / f"{at}-{number}", at, number)
    with script.disk.fails():
        script.run()
    script.check_after()
    return script.errors


def _try(home: Path, every: int) -> None:
    """Let every nth call fail, with each error in turn."""
    total = calls(home)
    tried = range(0, total, every)
    reported = sum(
        len(fail_at(home, at, ERRORS[number % len(ERRORS)])) for number, at in enumerate(tried)
    )
    print(
        f"\n{len(tried)} of {total} calls failed, one at a time; {reported} times an error said so"
    )
    assert reported > len(tried) / 2


def test_whichever_call_fails_nothing_is_lost_or_there_twice(tmp_path: Path) -> None:
    _try(tmp_path, 29)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_whichever_of_all_calls_fails_nothing_is_lost_or_there_twice(tmp_path: Path) -> None:
    _try(tmp_path, 1)
