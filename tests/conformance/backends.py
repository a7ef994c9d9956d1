"""The kinds of log that the suite runs on, behind one interface.

A new kind of log adds its `Backend` to `BACKENDS`; the tests stay as they are. It leaves what it
cannot do out of its `capabilities`, and the tests then expect the refusal instead.
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
"""Start time of every test, on a log with a virtual clock."""


class Backend(ABC):
    """An empty log for one test."""

    name: ClassVar[str]
    patience: ClassVar[timedelta] = timedelta(0)
    """Time that a poll waits before an empty answer means that there are no records."""

    @classmethod
    def begin(cls, request: pytest.FixtureRequest, folder: Path) -> Self:
        """The backend for one test. A server that it needs is a fixture."""
        return cls(folder)

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = VirtualClock(START)
        self._opened: list[Log] = []

    @abstractmethod
    def make(self, clock: Clock | None) -> Log:
        """Open this test's log, on the system clock if no clock is given."""

    def open(self, clock: Clock | None = None) -> Log:
        """Open this test's log again, as another process would."""
        log = self.make(clock or self.clock)
        self._opened.append(log)
        return log

    def open_on_system_clock(self) -> Log:
        """Open this test's log in real time, for tests of background threads."""
        log = self.make(None)
        self._opened.append(log)
        return log

    def reopen(self, log: Log) -> Log:
        """Close the log and open it again, as after a restart."""
        log.close()
        return self.open()

    def later(self, span: timedelta) -> None:
        """Let time pass. A backend without a virtual clock really waits."""
        self.clock.advance(span)

    def time(self, span: timedelta) -> Time:
        """The position at a time since the start of the test, as advanced by `later`."""
        return Time(to_micros(START + span))

    def waited(self, seconds: float, span: timedelta) -> bool:
        """True if the measured seconds are the time of a span on this backend."""
        return seconds == span.total_seconds()

    def miss(self, consumers: tuple[Consumer, ...], session: timedelta) -> None:
        """Keep consumers silent until their sessions expire."""
        self.later(session + timedelta(seconds=1))

    def rounds(self) -> Iterator[int]:
        """Polling rounds before a group counts as never settling."""
        yield from range(20)

    def settled(self, log: Log, consumers: tuple[Consumer, ...]) -> bool:
        """True if members whose assignments look stable have really settled."""
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
    """The embedded log without any optional capability.

    It tests that the suite checks refusals, before there is a log that needs them.
    """

    name = "limited"

    def make(self, clock: Clock | None) -> Log:
        return LimitedLog(self.folder / "log", clock=clock)


BACKENDS: tuple[type[Backend], ...] = (FileBackend, LimitedBackend)
"""Backends without a server; `tests.conformance.on_kafka` has the one with a broker."""
