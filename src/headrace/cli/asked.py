"""Signals that ask a command to stop."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType


class Asked:
    """The signal, SIGINT or SIGTERM, that asked this process to stop."""

    def __init__(self) -> None:
        self.signal = 0

    @property
    def code(self) -> int:
        """The exit code: 0 without a signal."""
        return 128 + self.signal if self.signal else 0

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Record the first signal; a second one interrupts."""
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = [signal.signal(number, self._hear) for number in numbers]
        try:
            yield
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.signal:
            raise KeyboardInterrupt
        self.signal = number
