"""The timing of a batch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """One batch: its rows, how many more were waiting at its end, and its parts in milliseconds.

    `results` counts its panes or rows. `files` is the time for Spark's offset and commit files,
    `state` for updating and saving Spark's state, `stored` for views, outputs and the position. The
    rest of `total` is reading and computing.
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
        """The time to save the batch."""
        return self.files + self.state + self.stored
