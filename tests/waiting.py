"""Waits that last until the test's timeout, and processes that end with the test.

The only deadline is the test's own timeout: on a busy machine any shorter one fails now and then.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import signal
import subprocess
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from headrace.clock import SECOND, SystemClock

_MARGIN = 15
"""Seconds of the test's time reserved for the error message and the clean-up."""

_clock = SystemClock()
_end = float("inf")
_started: list[subprocess.Popen[Any]] = []

P = TypeVar("P", bound=subprocess.Popen[Any])


def begin(item: pytest.Item) -> None:
    """Start the clock of a test."""
    global _end
    marker = item.get_closest_marker("timeout")
    given = item.config.getoption("timeout") or item.config.getini("timeout") or 0
    seconds = float(marker.args[0] if marker is not None else given) or float("inf")
    _end = _clock.monotonic() + max(seconds - _MARGIN, seconds / 2) * SECOND


def left() -> float:
    """Seconds that the test may still wait."""
    return min(max((_end - _clock.monotonic()) / SECOND, 0.1), 1e6)


def wait_until(condition: Callable[[], Any]) -> None:
    """Wait until the condition holds. If it never does, the error quotes the caller's line."""
    while not condition():
        if left() <= 0.1:
            (line,) = inspect.stack()[1].code_context or ["?"]
            raise TimeoutError(f"this did not happen while the test had time: {line.strip()}")
        _clock.sleep(SECOND // 200)


def started(process: P) -> P:
    """Register a process that leads a group (`process_group=0`), to kill both with the test."""
    _started.append(process)
    return process


def end() -> None:
    """Kill the registered processes that still run."""
    while _started:
        process = _started.pop()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
