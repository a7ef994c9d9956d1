"""The stage of a simulation: a real log in a temporary folder, on a virtual clock."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from headrace.clock import SECOND, VirtualClock, to_micros
from headrace.log import Log, open_log
from headrace.log.sample import newest
from headrace.oracle.events import Event
from headrace.oracle.excerpt import excerpt_of
from headrace.pipeline.stream import Source

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
"""The beginning of every simulation."""
_NOON = to_micros(NOON)


@dataclass(frozen=True)
class Arrival:
    """Rows that arrive in one commit, so many seconds after the beginning."""

    at: float
    source: Source
    rows: tuple[Mapping[str, Any], ...]


@contextlib.contextmanager
def stage() -> Iterator[tuple[Log, VirtualClock]]:
    """A new log, and the clock that it reads."""
    clock = VirtualClock(NOON)
    with (
        tempfile.TemporaryDirectory(prefix="headrace-") as folder,
        open_log(f"file:{folder}", clock=clock) as log,
    ):
        yield log, clock


def recorded(arrivals: Sequence[Arrival]) -> tuple[tuple[Event, ...], ...]:
    """The events of each arrival, in order, as a log keeps them: with commit and frontier.

    The log decides both, as it does for a pipeline.
    """
    sources = {arrival.source.topic.name: arrival.source for arrival in arrivals}
    with stage() as (log, clock):
        commits = write(log, clock, arrivals)
        found = excerpt_of(newest(log, name) for name in sources)
    by_commit: dict[int, list[Event]] = {commit: [] for commit in commits}
    for event in found.events:
        by_commit[event.commit].append(event)
    return tuple(tuple(by_commit[commit]) for commit in commits)


def write(log: Log, clock: VirtualClock, arrivals: Sequence[Arrival]) -> list[int]:
    """Write arrivals, each at its time; return the number of the commit of each."""
    for source in {arrival.source.topic.name: arrival.source for arrival in arrivals}.values():
        log.ensure_topic(source.topic)
    commits = []
    for arrival in arrivals:
        clock.sleep(to_micros(moment(arrival.at)) - clock.now())
        with log.producer(acks="written") as producer, producer.transaction() as transaction:
            for row in arrival.rows:
                transaction.send(arrival.source.topic.name, dict(row))
        commits.append(log.head())
    return commits


def moment(seconds: float) -> datetime:
    """So many seconds after the beginning."""
    return NOON + timedelta(seconds=seconds)


def seconds(micros: int) -> float:
    """Seconds from the beginning to a moment."""
    return round((micros - _NOON) / SECOND, 3)


def clock_text(at: float) -> str:
    """A moment as `12:00:07`."""
    return f"{moment(at):%H:%M:%S}"
