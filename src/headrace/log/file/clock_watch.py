"""Clocks that are set: noticed and said, and how old a commit is in spite of them.

A commit's `time` never goes back, so that there is an order by time. After one commit by a clock
that was ten years ahead, that is the time of all commits for ten years. So each of those also has
what the `clock` said, and ages and bounds are judged by that.
"""

from __future__ import annotations

import logging

import apsw

from headrace.clock import SECOND, Clock, to_datetime
from headrace.log.file.catalog import one

log = logging.getLogger(__name__)

_JUMP = 60 * SECOND
"""Clocks that are kept well are never set by more."""
_FAR = 24 * 3600 * SECOND
"""By how much the last commit may be ahead of the clock and still be believed. It is the safer of
the two: events are not called ahead of a clock that was set back by an hour."""


class ClockWatch:
    """Says so, once, when a process finds its clock set."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._drift = clock.now() - clock.monotonic()
        self._told = False

    def look(self, now: int, last: int) -> None:
        """Compare the clock with waiting time, and with the time of the last commit."""
        drift = now - self._clock.monotonic()
        if abs(drift - self._drift) > _JUMP:
            log.warning(
                "the clock of this machine was set %s by %.0f s, to %s",
                "forward" if drift > self._drift else "back",
                abs(drift - self._drift) / SECOND,
                _shown(now),
            )
            self._drift = drift
        if last - now > _JUMP and not self._told:
            self._told = True
            log.warning(
                "the last commit was made by a clock that said %s, and now it is %s. Commits keep "
                "the later time until then; the retention and the skew of topics go by the clock. "
                "If the clock is wrong now, set it",
                _shown(last),
                _shown(now),
            )


def _shown(moment: int) -> str:
    return to_datetime(moment).isoformat(timespec="seconds")


def trusted_now(now: int, last: int) -> int:
    """The moment by which bounds and ages are judged, after a commit at `last`."""
    return now if last - now > _FAR else max(now, last)


def made_at(db: apsw.Connection, number: int, now: int) -> int:
    """A moment before which a commit was surely made, if the clock is right now.

    That is its time. If that is still to come, it is what the clock said at this commit or the
    next, whichever is the first that does not contradict those before it; or else now.
    """
    found = one(db, "SELECT time FROM commits WHERE number = ?", number)
    if found is not None and found[0] <= now:
        return int(found[0])
    said = "iif(time <= ?2, time, coalesce(clock, time))"
    first = one(
        db,
        f"SELECT {said} FROM commits WHERE number >= ?1 AND {said} <= ?2 AND {said} >= coalesce("
        f"(SELECT max({said}) FROM commits WHERE number < ?1 AND {said} <= ?2), 0) "
        "ORDER BY number LIMIT 1",
        number,
        now,
    )
    return now if first is None else int(first[0])
