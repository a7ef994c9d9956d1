"""Slow checkpoints: batches that take longer to store their results than to compute them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from headrace.application.doctor.finding import Finding, percent
from headrace.plan.batch import Timing

_BATCHES = 20
_ENOUGH = 3
_SHARE = 0.5
_SLOW = 1_000
"""Milliseconds; anything faster is no problem."""
_PER_ROW = 0.2
"""Milliseconds. Storing one pane per row takes less."""
_WIDE = 10
_LARGE = 16 << 20


@dataclass(frozen=True)
class SlowCheckpoints(Finding):
    """Medians of the last batches, in milliseconds, rows and bytes."""

    name = "slow checkpoints"
    batches: int
    total: float
    files: float
    state: float
    stored: float
    rows: float
    results: float
    state_rows: int
    state_bytes: int

    @property
    def saving(self) -> float:
        return self.files + self.state + self.stored

    @property
    def what(self) -> str:
        return (
            f"a batch spends {percent(self.saving / self.total)} of its time on storing results, "
            "and not because it has many rows"
        )

    @property
    def evidence(self) -> tuple[str, ...]:
        return (
            f"of {self.total:,.0f} ms per batch, {self.stored:,.0f} ms went into views and "
            f"outputs, {self.state:,.0f} ms into Spark's state and {self.files:,.0f} ms into its "
            f"offset and commit files (last {self.batches} batches)",
            f"a batch of {self.rows:,.0f} rows changed {self.results:,.0f} results; the state has "
            f"{self.state_rows:,} rows and {self.state_bytes / (1 << 20):,.1f} MiB",
        )

    @property
    def remedy(self) -> str:
        if self.results >= _WIDE * self.rows:
            return (
                "Each row is in many windows: make them shorter, or let them start less often. "
                "Larger batches (headrace run --max-rows) write each window less often"
            )
        if self.stored * 2 >= self.saving and self.state_bytes < _LARGE:
            return (
                "The state is small, so the disk is slow, or another process locks the database "
                "of the views: close SQLite clients that write to it"
            )
        return (
            "Reduce the state: shorter windows, less grace, fewer keys, smaller values. For "
            "large state, headrace run --state rocksdb writes only what has changed"
        )


def slow_checkpoints(step: str, timings: Sequence[Timing]) -> SlowCheckpoints | None:
    """Find batches of a step that spend most of their time on storing results.

    Batches that are slow because they have many rows do not count.
    """
    last = timings[-_BATCHES:]
    if len(last) < _ENOUGH:
        return None
    saving = median(timing.saving for timing in last)
    rows = median(timing.rows for timing in last)
    share = median(timing.saving / max(1, timing.total) for timing in last)
    if saving < _SLOW or share < _SHARE or saving < _PER_ROW * rows:
        return None
    return SlowCheckpoints(
        step,
        len(last),
        median(timing.total for timing in last),
        median(timing.files for timing in last),
        median(timing.state for timing in last),
        median(timing.stored for timing in last),
        rows,
        median(timing.results for timing in last),
        last[-1].state_rows,
        last[-1].state_bytes,
    )
