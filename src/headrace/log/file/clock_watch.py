"""Clock jumps: warnings about them, and the age of commits in spite of them.

A commit's `time` never goes back, so commits are ordered by time. After one commit by a clock that
was ten years ahead, all commits of the next ten years have that time. So each of them also records
the `clock`, and ages and bounds use that.
"""

from __future__ import annotations

import logging

import apsw

from headrace.clock import SECOND, Clock, to_datetime
from headrace.log.file.catalog import one

log = logging.getLogger(__name__)

_JUMP = 60 * SECOND
"""A well-kept clock is never set by more than this."""
_FAR = 24 * 3600 * SECOND
"""If the last commit is ahead of the clock by less than this, its time is trusted, not the clock.
That is safer: after a clock is set back by an hour, events do not seem to be in the future."""


class ClockWatch:
    """Warns, once, when a process finds that its clock was set."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._drift = clock.now() - clock.monotonic()
        self._warned = False

    def look(self, now: int, last: int) -> None:
        """Compare the clock with the monotonic clock, and with the time of the last commit."""
        drift = now - self._clock.monotonic()
        if abs(drift - self._drift) > _JUMP:
            log.warning(
                "the clock of this machine was set %s by %.0f s, to %s",
                "forward" if drift > self._drift else "back",
                abs(drift - self._drift) / SECOND,
                _shown(now),
            )
            self._drift = drift
        if last - now > _JUMP and not self._warned:
            self._warned = True
            log.warning(
                "the last commit has the time %s, but the clock says %s. Commits keep that time "
                "until the clock reaches it; retention and skew use the clock. If the clock is "
                "wrong, set it",
                _shown(last),
                _shown(now),
            )


def _shown(moment: int) -> str:
    return to_datetime(moment).isoformat(timespec="seconds")


def trusted_now(now: int, last: int) -> int:
    """The present moment for bounds and ages, after a commit at `last`."""
    return now if last - now > _FAR else max(now, last)


def made_at(db: apsw.Connection, number: int, now: int) -> int:
    """A moment no earlier than the commit, if the clock is right now.

    That is the commit's time. If this is in the future, it is what the clock said at the first
    commit from this one on that does not contradict earlier ones; or else now.
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
