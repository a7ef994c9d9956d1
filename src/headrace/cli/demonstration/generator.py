"""Simulated page views: most on time, some late, a few broken."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.clock import SECOND, Clock, SystemClock
from headrace.log import Topic, open_log

SEED = 20260131

_MINUTE, _HOUR = 60 * SECOND, 3600 * SECOND

_SITE = ("/", "/search", "/cart", "/login", "/help", "/account", "/news", "/checkout")
_URLS = (*_SITE, *(f"/products/{number}" for number in range(1, 53)))
_STEEPNESS = 1.1
_PEOPLE = 2_000

# Shares of page views with a fault; the rest arrive within seconds.
_TIMELESS = 0.002
_AHEAD = 0.001
_TOO_LATE = 0.015
_WITHIN_GRACE = 0.08

_PAST = 24 * _HOUR
"""Event time starts this far in the past, since it runs faster than the clock."""

_ONCE_SECONDS, _ONCE_SPAN = 20, 30 * _MINUTE
_SLOWEST = 2_000
_LIVE_RATE, _LIVE_MINUTES_PER_SECOND = 5_000, 1
_COMMITS_PER_SECOND = 20


@dataclass(frozen=True)
class Plan:
    """A plan for writing: `chunk` page views per commit, `rate` per second.

    Event time starts at `start` and advances by `step` microseconds per page view.
    """

    events: int
    rate: float
    chunk: int
    start: int
    step: int
    seed: int = SEED


def plan_once(events: int, now: int, frontier: int | None) -> Plan:
    """Half an hour of page views, in seconds."""
    rate = max(events / _ONCE_SECONDS, _SLOWEST)
    chunk = max(1, min(round(rate / _COMMITS_PER_SECOND), events // 100))
    return Plan(events, rate, chunk, start_after(now, frontier), max(1, _ONCE_SPAN // events))


def plan_live(events: int, now: int, frontier: int | None) -> Plan:
    """A minute of page views in every second."""
    chunk = _LIVE_RATE // _COMMITS_PER_SECOND
    step = _LIVE_MINUTES_PER_SECOND * _MINUTE // _LIVE_RATE
    return Plan(events, _LIVE_RATE, chunk, start_after(now, frontier), step)


def start_after(now: int, frontier: int | None) -> int:
    """The first minute, after the events of an earlier demo in the log."""
    return max(now - _PAST, frontier or 0) // _MINUTE * _MINUTE + _MINUTE


def page_views(plan: Plan, clock: Clock) -> Iterator[pa.Table]:
    """One table per commit. Except for the clock, they are the same each time."""
    dice = np.random.default_rng(plan.seed)
    weights = 1 / np.arange(1, len(_URLS) + 1) ** _STEEPNESS
    weights /= weights.sum()
    urls = pa.array(_URLS)
    for first in range(0, plan.events, plan.chunk):
        count = min(plan.chunk, plan.events - first)
        moments = plan.start + plan.step * np.arange(first, first + count)
        at, known = _event_times(dice, moments, clock.now())
        people = dice.integers(_PEOPLE, size=count)
        yield pa.table(
            {
                "url": urls.take(pa.array(dice.choice(len(_URLS), size=count, p=weights))),
                "user": pa.array([f"user-{number}" for number in people.tolist()]),
                "at": pa.array(at, pa.timestamp("us", tz="UTC"), mask=~known),
            }
        )


def _event_times(
    dice: np.random.Generator, moments: np.ndarray[Any, np.dtype[np.int64]], now: int
) -> tuple[np.ndarray[Any, np.dtype[np.int64]], np.ndarray[Any, np.dtype[np.bool_]]]:
    """The event times of page views, and a mask of those that have one."""
    count = len(moments)
    fate = dice.random(count)
    behind = dice.exponential(3 * SECOND, count)
    edges = np.cumsum([_TIMELESS, _AHEAD, _TOO_LATE, _WITHIN_GRACE])
    kind = np.searchsorted(edges, fate, side="right")
    behind = np.where(kind == 2, dice.uniform(10 * _MINUTE, 60 * _MINUTE, count), behind)
    behind = np.where(kind == 3, dice.uniform(20 * SECOND, 4 * _MINUTE, count), behind)
    at = moments - behind.astype(np.int64)
    ahead = now + dice.integers(2 * _HOUR, 48 * _HOUR, count)
    return np.where(kind == 1, ahead, at), kind != 0


Rows = Callable[[Plan, Clock], Iterator[pa.Table]]
"""The rows to write, one table per commit."""


class Generator:
    """A thread that writes rows, by default page views, at a plan's pace."""

    def __init__(
        self,
        url: str,
        topic: Topic,
        plan: Plan,
        clock: Clock | None = None,
        rows: Rows = page_views,
    ) -> None:
        self.plan = plan
        self.written = 0
        self._url = url
        self._topic = topic
        self._clock = clock or SystemClock()
        self._rows = rows
        self._stop = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="generator", daemon=True)

    def __enter__(self) -> Generator:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()
        self._thread.join()

    def stop(self) -> None:
        """Stop after the current commit."""
        self._stop.set()

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    def check(self) -> None:
        """Raise if it has failed."""
        if self._error is not None:
            raise self._error

    @property
    def event_time(self) -> int:
        """The current event time."""
        return self.plan.start + self.plan.step * self.written

    def _run(self) -> None:
        try:
            with open_log(self._url) as log, log.producer() as producer:
                due = self._clock.monotonic()
                for rows in self._rows(self.plan, self._clock):
                    producer.append(self._topic.name, rows)
                    self.written += rows.num_rows
                    due += int(rows.num_rows / self.plan.rate * SECOND)
                    # Sleeping on the event, so that stopping need not wait.
                    if self._stop.wait(max(0, due - self._clock.monotonic()) / SECOND):
                        return
        except Exception as error:
            self._error = error
