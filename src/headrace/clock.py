"""The clock: the only place that reads time, so that a test can control it.

Times are whole microseconds since the Unix epoch, in UTC: the unit of the log and of Spark.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from datetime import UTC, datetime, timedelta

MILLISECOND = 1_000
SECOND = 1_000_000

FIRST_MOMENT = -62_135_596_800_000_000
LAST_MOMENT = 253_402_300_799_999_999
"""The first and last microsecond of the years 1 to 9999, the range of Spark and Python."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock(ABC):
    """A source of time that can also wait."""

    @abstractmethod
    def now(self) -> int:
        """Microseconds since the epoch."""

    @abstractmethod
    def monotonic(self) -> int:
        """Microseconds from an arbitrary start that never go back, for timeouts.

        All processes on a machine see the same value until it reboots.
        """

    @abstractmethod
    def sleep(self, micros: int) -> None:
        """Return when `micros` have passed on this clock."""


class SystemClock(Clock):
    """The machine's clock."""

    def now(self) -> int:
        return time.time_ns() // 1_000

    def monotonic(self) -> int:
        return time.monotonic_ns() // 1_000

    def sleep(self, micros: int) -> None:
        time.sleep(micros / SECOND)


class VirtualClock(Clock):
    """A clock that moves only when `advance`, `set` or `sleep` is called.

    >>> clock = VirtualClock(datetime(2026, 1, 1, tzinfo=UTC))
    >>> clock.advance(timedelta(minutes=5))
    >>> to_datetime(clock.now()).isoformat()
    '2026-01-01T00:05:00+00:00'
    """

    def __init__(self, start: datetime | int = 0) -> None:
        self._now = start if isinstance(start, int) else to_micros(start)
        self._passed = 0
        self._lock = threading.Lock()

    def now(self) -> int:
        with self._lock:
            return self._now

    def monotonic(self) -> int:
        with self._lock:
            return self._passed

    def sleep(self, micros: int) -> None:
        with self._lock:
            self._now += micros
            self._passed += max(0, micros)

    def advance(self, by: timedelta) -> None:
        """Move forward, or backward if `by` is negative."""
        self.sleep(micros(by))

    def set(self, by: timedelta) -> None:
        """Change the wall clock; `monotonic` stays the same."""
        with self._lock:
            self._now += micros(by)


def to_micros(moment: datetime) -> int:
    """Microseconds since the epoch; a datetime without a time zone counts as UTC."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return micros(moment - _EPOCH)


def to_datetime(moment: int) -> datetime:
    """The UTC datetime of microseconds since the epoch, or the nearest that Python can represent.

    A watermark can be before the year 1, and a window can end after 9999.
    """
    return _EPOCH + timedelta(microseconds=min(max(moment, FIRST_MOMENT), LAST_MOMENT))


def to_text(moment: int) -> str:
    """A readable timestamp: UTC, to the second, with a four-digit year."""
    return to_datetime(moment).replace(tzinfo=None).isoformat(" ", "seconds") + "Z"


def micros(span: timedelta) -> int:
    """A duration in whole microseconds."""
    return span // timedelta(microseconds=1)
