"""The search for duplicates: in log order, each row opens a group or joins one.

A row joins a group of its key that was opened less than the time to live before or after it. So the
groups of a key are at least that far apart, and only the nearest on either side can match.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace.plan.lateness import Mask, Moments
from headrace.schema.keys import Codes, first_of_each

_WAVES = 8
"""Passes over all keys at once. The rows left after them are handled one by one."""


@dataclass(frozen=True)
class Repeats:
    """The index of the row that opened the group, for each row."""

    opener: Codes

    @property
    def opens(self) -> Mask:
        """True for rows that opened their group."""
        mask: Mask = self.opener == np.arange(len(self.opener))
        return mask

    def last_of_each(self) -> tuple[Codes, Codes]:
        """The opener and the last row of each group."""
        last = np.full(len(self.opener), -1)
        np.maximum.at(last, self.opener, np.arange(len(self.opener)))
        openers = np.flatnonzero(self.opens)
        return openers, last[openers]


def repeats(keys: Codes, times: Moments, held: int, ttl: int) -> Repeats:
    """The groups of rows in log order. The first `held` rows are open groups."""
    order = np.lexsort([times, keys])
    rows = _Sorted(keys[order], times[order], order, ttl)
    opens = order < held
    left = np.flatnonzero(~(opens | rows.near(opens)))
    for _ in range(_WAVES):
        if not len(left):
            break
        left = rows.open_first(opens, left)
    if len(left):
        rows.open_one_by_one(opens, left)
    opener = np.empty(len(order), np.int64)
    opener[order] = order[rows.groups(opens)]
    return Repeats(opener)


@dataclass(frozen=True)
class _Sorted:
    """Rows sorted by key and time, with their rank in the log."""

    keys: Codes
    times: Moments
    rank: Codes
    ttl: int

    def near(self, opens: Mask) -> Mask:
        """True for rows that are in an open group."""
        before, after = self._neighbours(opens)
        return self._within(before) | self._within(after)

    def open_first(self, opens: Mask, left: Codes) -> Codes:
        """Let the first row of each key open a group; return the rows that are left."""
        starts = first_of_each(self.keys[left])
        ends = np.append(starts[1:], len(left))
        least = np.repeat(np.minimum.reduceat(self.rank[left], starts), ends - starts)
        first = left[self.rank[left] == least]
        opens[first] = True
        far = np.abs(self.times[left] - np.repeat(self.times[first], ends - starts)) >= self.ttl
        still: Codes = left[far]
        return still

    def open_one_by_one(self, opens: Mask, left: Codes) -> None:
        """Let rows open groups in log order, key by key."""
        starts = first_of_each(self.keys[left])
        for some in np.split(left, starts[1:]):
            times = self.times[some]
            low = np.searchsorted(times, times - self.ttl, "right").tolist()
            high = np.searchsorted(times, times + self.ttl, "left").tolist()
            alone = bytearray(b"\1") * len(some)
            for place in np.argsort(self.rank[some]).tolist():
                if alone[place]:
                    opens[some[place]] = True
                    alone[low[place] : high[place]] = bytes(high[place] - low[place])

    def groups(self, opens: Mask) -> Codes:
        """The opener of each row's group: before the row if it was open by then, else after it."""
        here = np.arange(len(self.keys))
        before, after = self._neighbours(opens)
        known = self._within(before) & (self.rank[before] <= self.rank)
        return np.where(opens, here, np.where(known, before, after))

    def _neighbours(self, opens: Mask) -> tuple[Codes, Codes]:
        """The nearest open groups before and after each row; the row itself if there is none."""
        here = np.arange(len(opens))
        before = np.maximum.accumulate(np.where(opens, here, -1))
        after = np.minimum.accumulate(np.where(opens, here, len(opens))[::-1])[::-1]
        return np.where(before < 0, here, before), np.where(after == len(opens), here, after)

    def _within(self, other: Codes) -> Mask:
        """True where the other row has the same key and is less than `ttl` apart."""
        far = np.abs(self.times - self.times[other])
        apart = other != np.arange(len(other))
        mask: Mask = apart & (self.keys == self.keys[other]) & (far < self.ttl)
        return mask
