"""The cost of checkpoints, and of a failure, in the model of barriers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from headrace.studio.learn.models.barriers import Job, Moment, run

INTERVALS = range(2, 21)


def replayed(before: Sequence[Moment], failures: Sequence[int]) -> tuple[int, int]:
    """Events that the last operator takes in again, and ticks until it is where it was."""
    events = ticks = 0
    for failed in failures:
        if failed + 1 < len(before):
            reached = len(before[failed].states["join"])
            events += reached - len(before[failed + 1].states["join"])
            later = (each for each in before[failed + 1 :] if not each.down)
            caught_up = next(
                (each.tick for each in later if len(each.states["join"]) >= reached),
                before[-1].tick,
            )
            ticks += caught_up - before[failed].tick
    return events, ticks


def at_stake(before: Sequence[Moment]) -> float:
    """Events that a failure would bring again, on average over all ticks."""
    lost = [
        len(each.states["join"])
        - len(each.checkpoints[-1].states["join"] if each.checkpoints else ())
        for each in before
    ]
    return round(sum(lost) / len(lost), 2)


@lru_cache(maxsize=32)
def trade_off(calm: Job) -> tuple[tuple[int, int, float], ...]:
    """For each interval: stalled ticks, and events that a failure brings again on average."""
    found = []
    for interval in INTERVALS:
        before = run(replace(calm, interval=interval))
        found.append((interval, before[-1].stalled, at_stake(before)))
    return tuple(found)


def sunk(now: Moment, idempotent: bool) -> int:
    """The rows of the sink. An idempotent one keeps one row of each event."""
    return len(set(now.sink)) if idempotent else len(now.sink)
