"""How long a batch took, and what for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """One batch: its rows, how many more were waiting at its end, and its parts in milliseconds.

    `results` counts the panes or rows that it came to.
    `files` went into Spark's own notes of what a batch reads and that it is done, `state` into
    changing Spark's state and writing it down, and `stored` into the results: views, outputs and
    the place in the log. What is left of `total` was reading and computing.
    """

    batch: int
    rows: int
    lag: int
    results: int
    total: int
    files: int
    state: int
    stored: int
    state_rows: int
    state_bytes: int

    @property
    def saving(self) -> int:
        """What it took to keep what was computed."""
        return self.files + self.state + self.stored
