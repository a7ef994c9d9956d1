"""A step as a background task that is restarted when a Spark worker dies, and its progress."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from headrace.clock import SECOND, Clock, micros
from headrace.errors import HeadraceError, LawBroken, PipelineError, PipelineFailed
from headrace.plan.law import Law

_RESTARTS = 3
"""Restarts in a row without any progress in between."""


@dataclass(frozen=True)
class StepProgress:
    """The progress of a step. Times are microseconds."""

    step: str
    law: Law
    frontier: int | None
    lag: int
    """Rows in the log whose results are not stored yet."""
    lags: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The same by topic and partition, if known."""
    delay: timedelta = timedelta(0)
    """The delay of its watermark behind the frontier."""

    @property
    def watermark(self) -> int | None:
        """The highest event time minus the delay."""
        return None if self.frontier is None else self.frontier - micros(self.delay)


def died(failure: PipelineError) -> bool:
    """True if a step failed because a Spark worker died."""
    return bool(failure.details.get("by_chance"))


def wait_for(
    tasks: Sequence[Task],
    clock: Clock,
    seconds: float | None,
    check: Callable[[], None] = lambda: None,
) -> bool:
    """True if all tasks end by themselves within so many seconds. A failure is raised.

    `check` raises what ends all of them. If a task fails by it first, `check` still says why.
    """
    until = None if seconds is None else clock.monotonic() + int(seconds * SECOND)
    try:
        # Poll every task, or the failure of a later one would wait for the first to end.
        while [task for task in tasks if not task.poll(clock)]:
            check()
            if until is not None and clock.monotonic() >= until:
                return False
    except HeadraceError:
        check()
        raise
    return True


@dataclass
class Task:
    """A background task: how to start it, to wait for its end, and to tell how far it is."""

    start: Callable[[], None]
    wait: Callable[[float], bool]
    place: Callable[[], object]
    after: tuple[Task, ...] = ()
    """Tasks that have to end before this one starts."""
    by_chance: Callable[[PipelineError], bool] = died
    """True if a restart may get past a failure."""
    started: bool = False
    ended: bool = False
    _restarts: int = field(default=0, repr=False)
    _failed_at: object = field(default=None, repr=False)

    def begin(self) -> None:
        """Start it, unless a task before it has not ended."""
        if not self.started and all(other.ended for other in self.after):
            self.start()
            self.started = True

    def poll(self, clock: Clock) -> bool:
        """True if it has ended by itself, after a short wait. A failure is raised."""
        if self.ended:
            return True
        try:
            self.begin()
            self.ended = self.started and self.wait(0.1)
        except (PipelineFailed, LawBroken) as failure:
            self.started = False
            if failure.details.get("learned"):
                return False  # it starts again with what it has learned
            place = self.place()
            self._restarts = self._restarts + 1 if place == self._failed_at else 1
            self._failed_at = place
            if self._restarts > _RESTARTS or not self.by_chance(failure):
                raise
            clock.sleep(SECOND // 2)
        return self.ended
