"""The kinds of log that the suite runs on, each behind the same few calls.

A new kind of log joins by adding its `Backend` to `BACKENDS`; the tests stay as they are. What it
cannot do it leaves out of its `capabilities`, and the tests then ask for the refusal instead.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar

from headrace.clock import Clock, VirtualClock
from headrace.log import Log
from headrace.log.file.log import FileLog
from tests.conformance.limited import LimitedLog

START = datetime(2026, 1, 1, tzinfo=UTC)
"""When every test begins, on a log that lives on the clock it is given."""


class Backend(ABC):
    """One log for one test, empty at first."""

    name: ClassVar[str]
    patience: ClassVar[timedelta] = timedelta(0)
    """How long a poll has to wait before an empty answer means that there is nothing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = VirtualClock(START)
        self._opened: list[Log] = []

    @abstractmethod
    def make(self, clock: Clock | None) -> Log:
        """Open this test's log; without a clock, on the machine's own."""

    def open(self, clock: Clock | None = None) -> Log:
        """This test's log once more, as another process would open it."""
        log = self.make(clock or self.clock)
        self._opened.append(log)
        return log

    def open_on_system_clock(self) -> Log:
        """This test's log in real time, for what threads do by themselves."""
        log = self.make(None)
        self._opened.append(log)
        return log

    def reopen(self, log: Log) -> Log:
        """Close the log and open it again, as after a restart."""
        log.close()
        return self.open()

    def later(self, span: timedelta) -> None:
        """Let time pass. A backend that cannot be told the time really waits."""
        self.clock.advance(span)

    def close(self) -> None:
        for log in self._opened:
            log.close()


class FileBackend(Backend):
    """The embedded log."""

    name = "file"

    def make(self, clock: Clock | None) -> Log:
        return FileLog(self.folder / "log", clock=clock)


class LimitedBackend(Backend):
    """The embedded log with everything taken away that a log may lack.

    It shows that the suite holds a log to its refusals, before there is a log that needs them.
    """

    name = "limited"

    def make(self, clock: Clock | None) -> Log:
        return LimitedLog(self.folder / "log", clock=clock)


BACKENDS: tuple[type[Backend], ...] = (FileBackend, LimitedBackend)
