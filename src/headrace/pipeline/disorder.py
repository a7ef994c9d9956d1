"""Measured lateness of a topic's rows, and the rows that a given delay would make late."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.clock import micros
from headrace.errors import InvalidSetting
from headrace.log import DEFAULT_LOG, Batch, Commit, Log, Topic, TopicCommit, open_log
from headrace.log.event_time import time_inputs, times_of
from headrace.pipeline.time import Lateness

_PAGE = 10_000
_ROUND = [timedelta(seconds=n) for n in (0, 1, 5, 10, 30, 60, 300, 900, 3600, 21600, 86400)]

Micros = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Choice:
    """A delay, and the rows that would be late with it and no grace."""

    delay: timedelta
    late: int
    share: float


@dataclass(frozen=True)
class Disorder:
    """Lags of rows behind the highest event time before their commit.

    `behind` has the positive lags, sorted, in microseconds; `arrival` is the median time from event
    to append. `dead` rows have no plausible event time.
    """

    topic: str
    rows: int
    dead: int
    behind: Micros
    arrival: timedelta | None

    def late(self, delay: timedelta) -> int:
        """The number of rows behind a watermark with that delay.

        These can be late. A row whose window is still open is in time nevertheless.
        """
        return len(self.behind) - int(np.searchsorted(self.behind, micros(delay), side="right"))

    @property
    def most(self) -> timedelta:
        """The largest lag."""
        return timedelta(microseconds=int(self.behind[-1])) if len(self.behind) else timedelta(0)

    def choices(self) -> list[Choice]:
        """Round delays up to the first with which no row would be late."""
        found = []
        for delay in [*_ROUND, _rounded_up(self.most)]:
            late = self.late(delay)
            found.append(Choice(delay, late, late / self.rows if self.rows else 0.0))
            if not late:
                break
        return found

    def suggestion(self, tolerated: float = 0.001) -> Lateness:
        """A delay with which few rows would be late, and a grace that still counts those."""
        if not 0 <= tolerated < 1:
            raise InvalidSetting(f"tolerated cannot be {tolerated}", hint="Use a share: 0.001")
        delay = next(c.delay for c in self.choices() if c.share <= tolerated)
        return Lateness(delay, max(_rounded_up(self.most) - delay, timedelta(0)))


def suggest_lateness(topic: str, log: Log | str = DEFAULT_LOG) -> Disorder:
    """Measure how late the rows of a topic were. Its `suggestion()` is a start for `Lateness`."""
    if isinstance(log, str):
        with open_log(log, create=False) as opened:
            return _measured(opened, topic)
    return _measured(log, topic)


def _measured(log: Log, name: str) -> Disorder:
    topic = log.topic(name).topic
    if topic.event_time is None:
        raise InvalidSetting(
            f"Topic {name!r} has no event time", hint="Name its column when you create the topic"
        )
    rows = dead = 0
    behind: list[Micros] = []
    arrival: list[Micros] = []
    for batch, commit in _batches(log, topic):
        times, bad = _times(batch, topic, commit)
        rows, dead = rows + len(times), dead + bad
        arrival.append(batch.timestamp - times)
        if commit.before is not None:
            late = commit.before - times
            behind.append(late[late > 0])
    every = np.concatenate(arrival) if arrival else np.empty(0, np.int64)
    return Disorder(
        name,
        rows,
        dead,
        np.sort(np.concatenate(behind)) if behind else np.empty(0, np.int64),
        timedelta(microseconds=int(np.median(every))) if len(every) else None,
    )


def _times(batch: Batch, topic: Topic, commit: TopicCommit) -> tuple[Micros, int]:
    """The plausible event times, and the number of rows without one."""
    column = times_of(topic, batch.data).cast(pa.int64())
    good = pc.is_valid(column)
    if commit.bound is not None:
        good = pc.and_(good, pc.fill_null(pc.less_equal(column, commit.bound), False))
    times: Micros = column.filter(good).to_numpy()
    deleted = 0 if batch.tombstones is None else int(batch.tombstones.sum())
    return times, len(batch) - len(times) - deleted


def _batches(log: Log, topic: Topic) -> Iterator[tuple[Batch, TopicCommit]]:
    """The batches of a topic, each with its commit."""
    after, columns = 0, time_inputs(topic)
    while page := log.commits(topic.name, after, _PAGE):
        known = {commit.number: commit for commit in page}
        upto = page[-1].number
        for batch in log.read(topic.name, start=Commit(after), stop=Commit(upto), columns=columns):
            assert batch.commit is not None
            yield batch, known[batch.commit]
        after = upto


def _rounded_up(span: timedelta) -> timedelta:
    """The next whole second."""
    return timedelta(seconds=-(-span // timedelta(seconds=1)) if span else 0)
