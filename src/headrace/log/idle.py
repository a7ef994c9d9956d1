"""A heartbeat for idle topics: it advances their frontier, so that their last windows close.

The topic setting `idle` says how long a topic has to be without rows. Then its frontier follows the
clock, through commits without rows. These are in the log, so a replay sees the same frontiers.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass

from headrace.clock import SECOND, Clock, micros, to_datetime
from headrace.errors import Retryable
from headrace.log.interface import Log

_LOOK = SECOND


@dataclass
class _Quiet:
    """An idle topic: its last append, since when, its frontier then, and the last heartbeat."""

    last: int
    since: int
    frontier: int
    moved: int


class IdleHeartbeat:
    """The heartbeat of some topics."""

    def __init__(self, log: Log, topics: Iterable[str], clock: Clock) -> None:
        self._log = log
        self._topics = tuple(topics)
        self._clock = clock
        self._quiet: dict[str, _Quiet] = {}
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def start(self) -> None:
        """Start the heartbeat in the background."""
        self._thread = threading.Thread(target=self._run, name="headrace-heart", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def check(self) -> None:
        """Raise the error that ended it, if any."""
        if self._error is not None:
            raise self._error

    def beat(self) -> None:
        """Advance the frontier of each topic that is idle."""
        now = self._clock.now()
        for name in self._topics:
            state = self._log.topic(name)
            idle = state.topic.settings.idle
            last = max((p.last_append for p in state.partitions if p.last_append), default=None)
            if idle is None or last is None or state.frontier is None:
                continue
            quiet = self._quiet.get(name)
            if quiet is None or quiet.last != last:
                # A clock that was ahead may have put the last row in the future.
                since = min(last, now)
                quiet = self._quiet[name] = _Quiet(last, since, state.frontier, since)
            if now - quiet.moved >= micros(idle):
                self._log.advance(name, to_datetime(quiet.frontier + now - quiet.since))
                quiet.moved = now

    def _run(self) -> None:
        while not self._stopped.wait(_LOOK / SECOND):
            try:
                self.beat()
            except Retryable:
                continue
            except Exception as error:  # `check` raises it
                self._error = error
                return
