"""Patience with rows that are on their way."""

from __future__ import annotations

from headrace.clock import SECOND, Clock

_PATIENCE = 3 * SECOND
_LONGEST = 60 * SECOND
"""The times to compare rows on their way again: while nothing moves, and at most."""
_LOOK = SECOND // 5


class Patience:
    """Waits for rows that are on their way, for as long as anything moves."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._mark: object = None
        self._until = 0
        self._end = clock.monotonic() + _LONGEST

    def goes_on(self, mark: object) -> bool:
        """Sleep a little; False if nothing has moved for some time."""
        now = self._clock.monotonic()
        if mark != self._mark:
            self._mark, self._until = mark, now + _PATIENCE
        if now >= min(self._until, self._end):
            return False
        self._clock.sleep(_LOOK)
        return True
