"""Moves time on in topics that have gone quiet, so that their last windows can fire.

A topic's setting `idle` says after how long without a row that is done. Its frontier then goes on
as the clock does, by commits without rows: what it was is in the log, and a replay finds it there.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass

from headrace.clock import SECOND, Clock, micros, to_datetime
from headrace.errors import Retryable
from headrace.log import Log

_LOOK = SECOND


@dataclass
class _Quiet:
    """Since when a topic is quiet, where its frontier was then, and when it was last moved."""

    last: int
    since: int
    frontier: int
    moved: int


class IdleHeartbeat:
    """Looks after some topics of a log."""

    def __init__(self, log: Log, topics: Iterable[str], clock: Clock) -> None:
        self._log = log
        self._topics = tuple(topics)
        self._clock = clock
        self._quiet: dict[str, _Quiet] = {}
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def start(self) -> None:
        """Look after them from now on, in the background."""
        self._thread = threading.Thread(target=self._go_on, name="headrace-heart", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def check(self) -> None:
        """Raise what has ended it, if anything has."""
        if self._error is not None:
            raise self._error

    def beat(self) -> None:
        """Look at every topic once."""
        now = self._clock.now()
        for name in self._topics:
            state = self._log.topic(name)
            idle = state.topic.settings.idle
            last = max((p.last_append for p in state.partitions if p.last_append), default=None)
            if idle is None or last is None or state.frontier is None:
                continue
            quiet = self._quiet.get(name)
            if quiet is None or quiet.last != last:
                # A clock that was ahead may have dated the last row in the future.
                since = min(last, now)
                quiet = self._quiet[name] = _Quiet(last, since, state.frontier, since)
            if now - quiet.moved >= micros(idle):
                self._log.advance(name, to_datetime(quiet.frontier + now - quiet.since))
                quiet.moved = now

    def _go_on(self) -> None:
        while not self._stopped.wait(_LOOK / SECOND):
            try:
                self.beat()
            except Retryable:
                continue
            except Exception as error:  # it is raised where somebody waits
                self._error = error
                return
