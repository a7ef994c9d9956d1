"""Which rows are too late, in whole columns: the same rule as the oracle's, for NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.clock import micros
from headrace.log import TopicCommit

if TYPE_CHECKING:  # Spark's workers read columns, and have no need of declarations.
    from headrace.streams.stream import Aggregation

Moments = np.ndarray[Any, np.dtype[np.int64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True)
class Closing:
    """Windows, and the patience after which the frontier closes them. All in microseconds."""

    size: int
    every: int
    offset: int
    patience: int

    @staticmethod
    def of(step: Aggregation) -> Closing:
        window, lateness = step.window, step.lateness
        return Closing(
            micros(window.size),
            micros(window.every),
            micros(window.offset),
            micros(lateness.delay) + micros(lateness.grace),
        )

    @property
    def windows(self) -> int:
        """In how many windows a row is at most."""
        return -(-self.size // self.every)

    def first_open(self, frontier: int) -> int:
        """The start of the first window that the frontier has not closed."""
        closed = frontier - self.size - self.patience
        return (closed - self.offset) // self.every * self.every + self.offset + self.every

    def all_open_from(self, frontier: int) -> int:
        """The moment from which on a row is in open windows only."""
        return self.first_open(frontier) - self.every + self.size

    def first_start(self, times: Moments) -> Moments:
        """The start of the first of the windows that each moment is in."""
        last = (times - self.offset) // self.every * self.every + self.offset
        first: Moments = last - self.every * (-(-(self.size - (times - last)) // self.every) - 1)
        return first

    def closed(self, starts: Moments, frontiers: Moments) -> Mask:
        """Whether frontiers have closed the windows that begin then."""
        mask: Mask = starts + self.size + self.patience <= frontiers
        return mask

    def touches(self, commit: TopicCommit) -> bool:
        """Whether a commit may hold a row that is too late for one of its windows."""
        if commit.oldest is None or commit.before is None:
            return False
        return commit.oldest < self.all_open_from(commit.before)
