"""Rows that wait for a table, and the commit with which each becomes ready.

A row waits until the frontier of the table reaches the row's event time, or until the frontier of
the row's own topic is so far ahead that waiting is given up. The log knows both for each commit, so
the commit does not depend on batches, and rows wait in the log itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.log import Log
from headrace.plan.lateness import Mask, Moments

NEVER = 1 << 61
_LONG_AGO = -(1 << 61)
_PAGE = 10_000


@dataclass(frozen=True)
class Waiting:
    """The rows that become ready after a commit, up to another, and the table they wait for.

    `low` is a commit before all of these rows. `patience` is in microseconds. `frontiers` has that
    of each topic at the commit `after`: the log forgets it with its rows.
    """

    table: str
    topics: tuple[str, ...]
    patience: int
    low: int
    after: int
    upto: int
    frontiers: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Waiting:
        return Waiting(**{**data, "topics": tuple(data["topics"])})


class Ready:
    """Finds the commit with which rows become ready; `after` if they were ready before."""

    def __init__(self, log: Log, waiting: Waiting) -> None:
        self.waiting = waiting
        numbers = {
            topic: commits_of(log, topic, waiting.after, waiting.upto)
            for topic in (waiting.table, *waiting.topics)
        }
        every = np.unique(
            np.concatenate([[waiting.after], *(found[0] for found in numbers.values())])
        )
        far = {
            topic: _frontiers(waiting.frontiers[topic], every, *numbers[topic]) for topic in numbers
        }
        self.frontiers = {topic: int(found[-1]) for topic, found in far.items()}
        """The frontier of each topic after the last of the commits."""
        slowest = np.minimum.reduce([far[topic] for topic in waiting.topics])
        own = [c.number for topic in waiting.topics for c in log.commits(topic, waiting.low, 1)]
        self.earliest = max(waiting.after + 1, min(own, default=0))
        """The first commit with which a row can become ready: none does before its own."""
        self._commits = np.append(every, NEVER)
        self._moments = np.maximum(far[waiting.table], slowest - waiting.patience)

    def at(self, commit: int, times: Moments) -> Moments:
        """The commit with which rows of a commit become ready, `NEVER` if there is none yet."""
        found = self._commits[np.searchsorted(self._moments, times, "left")]
        ready: Moments = np.maximum(found, commit)
        return ready

    def now(self, commit: int, times: Moments) -> Mask:
        """True for rows of a commit that become ready in the range of commits."""
        ready = self.at(commit, times)
        mask: Mask = (ready > self.waiting.after) & (ready <= self.waiting.upto)
        return mask

    def column(self, rows: Iterable[tuple[int, Moments]]) -> pa.Array:
        """The commits with which rows become ready, given their commits and event times."""
        return pa.array(np.concatenate([self.at(commit, times) for commit, times in rows]))

    def first_waiting(self, log: Log) -> int:
        """A commit before all rows that still wait."""
        last = int(self._moments[-1])
        low = self.waiting.upto
        for topic in self.waiting.topics:
            numbers, after = commits_of(log, topic, self.waiting.low, self.waiting.upto)
            ahead = np.flatnonzero(after > last)
            if len(ahead):
                low = min(low, int(numbers[ahead[0]]) - 1)
        return low


def commits_of(log: Log, topic: str, after: int, upto: int) -> tuple[Moments, Moments]:
    """The numbers of a topic's commits, and the frontier after each."""
    numbers: list[int] = []
    frontiers: list[int] = []
    while page := log.commits(topic, after, _PAGE):
        some = [commit for commit in page if commit.number <= upto]
        numbers += [commit.number for commit in some]
        frontiers += [_LONG_AGO if commit.after is None else commit.after for commit in some]
        if len(some) < len(page) or len(page) < _PAGE:
            break
        after = page[-1].number
    return np.array(numbers, np.int64), np.array(frontiers, np.int64)


def frontier_after(log: Log, topic: str, commit: int) -> int:
    """The frontier of a topic after a commit, if the log still knows it."""
    found = log.frontier(topic, commit) if commit else None
    if found is None and commit:
        # Its commits up to then are gone, but the next one knows the frontier before it.
        found = next((later.before for later in log.commits(topic, commit, 1)), None)
    return _LONG_AGO if found is None else found


def _frontiers(before: int, every: Moments, numbers: Moments, after: Moments) -> Moments:
    """The frontier of a topic at each commit of all topics."""
    known = np.concatenate([[before], after])
    far: Moments = np.maximum.accumulate(known)[np.searchsorted(numbers, every, "right")]
    return far
