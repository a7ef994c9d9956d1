"""Work in the background that is begun again when a worker of Spark's has died."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from headrace.clock import SECOND, Clock
from headrace.errors import LawBroken, PipelineError, PipelineFailed

_RESTARTS = 3
"""How often in a row it is started again after a worker died, without getting any further."""


def died(failure: PipelineError) -> bool:
    """Whether it failed because a worker of Spark's is gone."""
    return bool(failure.details.get("by_chance"))


@dataclass
class Task:
    """One such work: how to start it, to wait for its end, and how far it has got."""

    start: Callable[[], None]
    wait: Callable[[float], bool]
    place: Callable[[], object]
    after: tuple[Task, ...] = ()
    """What has to have ended before it starts."""
    by_chance: Callable[[PipelineError], bool] = died
    """Whether a failure may not happen again."""
    started: bool = False
    ended: bool = False
    _restarts: int = field(default=0, repr=False)
    _failed_at: object = field(default=None, repr=False)

    def begin(self) -> None:
        """Start it, unless it has to wait for something else."""
        if not self.started and all(other.ended for other in self.after):
            self.start()
            self.started = True

    def look(self, clock: Clock) -> bool:
        """Whether it has ended by itself, after a moment of waiting. A failure is raised."""
        if self.ended:
            return True
        try:
            self.begin()
            self.ended = self.started and self.wait(0.1)
        except (PipelineFailed, LawBroken) as failure:
            self.started = False
            place = self.place()
            self._restarts = self._restarts + 1 if place == self._failed_at else 1
            self._failed_at = place
            if self._restarts > _RESTARTS or not self.by_chance(failure):
                raise
            clock.sleep(SECOND // 2)
        return self.ended
