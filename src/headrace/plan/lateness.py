"""The lateness rule for NumPy columns, the same as the oracle's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.log import TopicCommit

Moments = np.ndarray[Any, np.dtype[np.int64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]


def too_late(ends: Moments, frontiers: Moments, patience: int) -> Mask:
    """True for rows whose end is `patience` or more behind the frontier that each met."""
    late: Mask = ends + patience <= frontiers
    return late


@dataclass(frozen=True)
class Closing:
    """Windows, and the patience after which the frontier closes them. All in microseconds.

    Spark's workers need it, so it knows nothing of declarations, which take long to import.
    """

    size: int
    every: int
    offset: int
    patience: int

    @classmethod
    def after(cls, patience: int) -> Closing:
        """The rule for rows without windows, which are late `patience` after their own time.

        Their windows are one microsecond long, and end one after the row.
        """
        return cls(1, 1, 0, patience - 1)

    @property
    def windows(self) -> int:
        """The maximum number of windows per row."""
        return -(-self.size // self.every)

    def first_open(self, frontier: int) -> int:
        """The start of the first window that the frontier has not closed."""
        closed = frontier - self.size - self.patience
        return (closed - self.offset) // self.every * self.every + self.offset + self.every

    def all_open_from(self, frontier: int) -> int:
        """The moment from which on all windows of a row are open."""
        return self.first_open(frontier) - self.every + self.size

    def touches(self, commit: TopicCommit) -> bool:
        """True if a commit may hold a row that is too late for one of its windows."""
        if commit.behind is not None:
            return commit.behind > self.patience
        if commit.oldest is None or commit.before is None:
            return False
        return commit.oldest < self.all_open_from(commit.before)
