"""Followers of stores in the foreground, until they are done or interrupted."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.cli.asked import Asked
from headrace.cli.failures import say
from headrace.cli.stores import news
from headrace.clock import SECOND, SystemClock
from headrace.store.followers import Followers
from headrace.store.status import StoreStatus

_LOOK = SECOND // 20


def until_asked(followers: Followers, *, until_caught_up: bool, built: bool = False) -> int:
    """Wait for a signal, or until all stores have caught up; return the exit code.

    With `built`, each store also has to have a new version.
    """
    clock, asked = SystemClock(), Asked()
    before: Sequence[StoreStatus] = ()
    with asked.listening():
        while not asked.signal:
            now = followers.statuses()
            for line in news(before, now):
                say(line)
            before = now
            if until_caught_up and (not built or all(s.built for s in now)):
                if followers.caught_up():
                    return 0
            elif until_caught_up:
                followers.check()
            clock.sleep(_LOOK)
    return asked.code
