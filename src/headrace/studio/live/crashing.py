"""The crash button: kill a pipeline, start it again, and give a receipt when it has recovered."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

from headrace.application.doctor.checkup import process_of
from headrace.application.doctor.records import Records
from headrace.clock import SECOND, Clock, SystemClock
from headrace.errors import HeadraceError, InvalidSetting
from headrace.log import Capability, Log
from headrace.pipeline.app import App
from headrace.plan.position import position_at
from headrace.plan.steps import steps_of
from headrace.studio.live.handles import Handles
from headrace.studio.live.processes import Processes
from headrace.studio.live.receipt import Receipt, receipt

Ends = dict[str, dict[str, tuple[int, ...]]]
"""The end of each topic that a step reads, by step and topic."""


@dataclass(frozen=True)
class Crash:
    """A crash of an application, from the kill to the receipt."""

    app: str
    killed: int
    restarted: int
    at: int
    """Monotonic time of the kill."""
    ends: Ends
    left: int = 0
    """Rows that were in the log at the kill, and that are not stored yet."""
    seconds: float | None = None
    """Time until it had caught up with the log of that moment."""
    receipt: Receipt | None = None
    failure: str = ""


class Crashes:
    """The last crash of each application."""

    def __init__(self, handles: Handles, processes: Processes, clock: Clock | None = None) -> None:
        self._handles = handles
        self._processes = processes
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._last: dict[str, Crash] = {}

    def crash(self, app: str) -> Crash:
        """Kill an application as a crash would, and start it again."""
        declared = self._handles.settings.declared.get(app)
        running = self._processes.of(app)
        if declared is None or running is None or not running.alive:
            raise InvalidSetting(
                f"The studio does not run {app!r}", hint="It kills only what it has started itself"
            )
        # The receipt needs commits. Nothing is killed where there cannot be one.
        self._handles.log.require(Capability.NUMBERED_APPENDS)
        at = self._clock.monotonic()
        self._processes.kill(app)
        ends = _ends(self._handles.log, declared)
        again = self._processes.start(app)
        made = Crash(app, running.pid, again.pid, at, ends)
        with self._lock:
            self._last[app] = made
        return made

    def now(self, app: str) -> Crash | None:
        """The last crash of an application; with a receipt once it has recovered."""
        with self._lock:
            crash = self._last.get(app)
            if crash is None or crash.receipt is not None or crash.failure:
                return crash
            self._last[app] = crash = self._looked_at(crash)
            return crash

    def _looked_at(self, crash: Crash) -> Crash:
        log, declared = self._handles.log, self._handles.settings.declared[crash.app]
        again = self._processes.of(crash.app)
        if again is not None and again.failed:
            return replace(crash, failure=again.reason)
        left = _left(log, crash)
        runs = process_of(log.home, crash.app) is not None
        if left or not runs:
            return replace(crash, left=left)
        seconds = (self._clock.monotonic() - crash.at) / SECOND
        try:
            return replace(crash, left=0, seconds=seconds, receipt=receipt(declared, log))
        except HeadraceError as error:
            return replace(crash, left=0, seconds=seconds, failure=error.message)


def _ends(log: Log, declared: App) -> Ends:
    there = {topic.name for topic in log.topics()}
    head = log.head()
    return {
        step.name: {
            name: position_at(log, name, head).offsets for name in step.topics if name in there
        }
        for step in steps_of(declared)
    }


def _left(log: Log, crash: Crash) -> int:
    """Rows before the ends of a crash that are not stored yet."""
    left = 0
    with Records(log.home, crash.app) as records:
        for step, ends in crash.ends.items():
            record = records.of(step)
            for topic, offsets in ends.items():
                place = None if record is None else record.reached.get(topic)
                reached = () if place is None else place.offsets
                padded = (*reached, *(0 for _ in offsets[len(reached) :]))
                left += sum(max(0, end - done) for end, done in zip(offsets, padded, strict=False))
    return left
