"""The kinds of log that the suite runs on, each behind the same few calls.

A new kind of log joins by adding its `Backend` to `BACKENDS`; the tests stay as they are. What it
cannot do it leaves out of its `capabilities`, and the tests then ask for the refusal instead.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar, Self

import pytest

from headrace.clock import Clock, VirtualClock, to_micros
from headrace.log import Consumer, Log, Time
from headrace.log.file.log import FileLog
from tests.conformance.limited import LimitedLog

START = datetime(2026, 1, 1, tzinfo=UTC)
"""When every test begins, on a log that lives on the clock it is given."""


class Backend(ABC):
    """One log for one test, empty at first."""

    name: ClassVar[str]
    patience: ClassVar[timedelta] = timedelta(0)
    """How long a poll has to wait before an empty answer means that there is nothing."""

    @classmethod
    def begin(cls, request: pytest.FixtureRequest, folder: Path) -> Self:
        """The backend for one test; a server that it needs is a fixture."""
        return cls(folder)

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

    def time(self, span: timedelta) -> Time:
        """The time so long after the test's beginning, of which `later` has told."""
        return Time(to_micros(START + span))

    def waited(self, seconds: float, span: timedelta) -> bool:
        """Whether so many seconds are what has passed in a span."""
        return seconds == span.total_seconds()

    def miss(self, consumers: tuple[Consumer, ...], session: timedelta) -> None:
        """Have these be silent until their sessions are over."""
        self.later(session + timedelta(seconds=1))

    def rounds(self) -> Iterator[int]:
        """Rounds in which the members of a group are polled before it counts as never settling."""
        yield from range(20)

    def settled(self, log: Log, consumers: tuple[Consumer, ...]) -> bool:
        """Whether members that look as if they had settled have done so."""
        return True

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
"""Those that need no server; `tests.conformance.on_kafka` has the one that does."""
