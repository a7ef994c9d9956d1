"""The lag of groups over time, as far as somebody looked."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque

from starlette.requests import Request

from headrace.clock import SECOND, Clock, SystemClock
from headrace.log import GroupState, Lag

_SAMPLES = 600
_GROUPS = 100
"""Groups whose history is kept: those that somebody looked at last."""

Sample = tuple[float, dict[str, int]]


class Histories:
    """The lag of groups over time, sampled once a second while somebody looks."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._samples: OrderedDict[str, deque[Sample]] = OrderedDict()

    def look(self, state: GroupState) -> list[Sample]:
        """The samples of a group, with a new one if the last is a second old."""
        now = self._clock.now() / SECOND
        with self._lock:
            samples = self._samples.setdefault(state.name, deque(maxlen=_SAMPLES))
            self._samples.move_to_end(state.name)
            if len(self._samples) > _GROUPS:
                self._samples.popitem(last=False)
            if not samples or now - samples[-1][0] >= 0.9:
                samples.append((now, {place_of(lag): lag.records for lag in state.lags}))
            return list(samples)


def histories_of(request: Request) -> Histories:
    """The histories of a studio."""
    state = request.app.state
    if not hasattr(state, "lag_histories"):
        state.lag_histories = Histories()
    found = state.lag_histories
    assert isinstance(found, Histories)
    return found


def place_of(lag: Lag) -> str:
    """The name of a partition."""
    return f"{lag.topic}/{lag.partition}"
