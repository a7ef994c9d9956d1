"""Lag that grows: more comes in than a step takes, batch after batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from headrace.application.doctor.finding import Finding
from headrace.application.doctor.sample import Sample, hashable
from headrace.application.doctor.words import percent, printable
from headrace.plan.position import Position
from headrace.plan.timing import Timing
from headrace.schema.python_rows import to_rows

_BATCHES = 30
_ENOUGH = 6
_MOST = 0.5
"""The share of the rows from which on one key or partition has them to itself."""


@dataclass(frozen=True)
class Skew:
    """One key or partition that takes most of what comes."""

    what: str
    value: str
    share: float


@dataclass(frozen=True)
class GrowingLag(Finding):
    """So many rows waited after each of the last batches. Rates are rows in a batch."""

    name = "lag grows"
    lags: tuple[int, ...]
    came: float
    taken: float
    seconds: float
    """How long a batch takes."""
    skew: Skew | None

    @property
    def what(self) -> str:
        return f"more comes in than it takes: {self.lags[-1]:,} rows wait, and they become more"

    @property
    def evidence(self) -> tuple[str, ...]:
        rates = (
            f"in the time of a batch, {self.seconds:.1f} s, {self.came:,.0f} rows came in and "
            f"{self.taken:,.0f} were taken"
        )
        grown = (
            f"the lag went from {self.lags[0]:,} to {self.lags[-1]:,} rows in its last "
            f"{len(self.lags)} batches"
        )
        skew = self.skew
        if skew is None:
            return grown, rates, "the work is spread over keys and partitions"
        return grown, rates, f"{skew.what} {skew.value} has {percent(skew.share)} of the rows"

    @property
    def remedy(self) -> str:
        if self.skew is not None:
            return (
                f"One {self.skew.what} is computed by one core: count by something finer first, "
                "publish that, and add it up in a second step"
            )
        return (
            "Let a batch take more (headrace run --max-rows), give Spark more cores (--cores), or "
            "filter what is not needed before it is counted"
        )


def growing_lag(step: str, timings: Sequence[Timing], skew: Skew | None) -> GrowingLag | None:
    """Whether the lag of a step has grown over its last batches. A large one that shrinks is none.

    The middle of the lags has to rise from the first third of the batches to the second and to the
    last, by a batch or more altogether, and not to fall within the last.
    """
    last = timings[-_BATCHES:]
    lags = [timing.lag for timing in last]
    if len(lags) < _ENOUGH:
        return None
    third = len(lags) // 3
    first, middle, end = (
        median(part) for part in (lags[:third], lags[third:-third], lags[-third:])
    )
    batch = median(timing.rows for timing in last)
    if not first < middle < end or end - first < batch or lags[-1] < lags[-third]:
        return None
    taken = sum(timing.rows for timing in last[1:]) / (len(last) - 1)
    came = taken + (lags[-1] - lags[0]) / (len(last) - 1)
    seconds = median(timing.total for timing in last) / 1_000
    return GrowingLag(step, tuple(lags), came, taken, seconds, skew)


def skew_of(sample: Sample, by: Sequence[str], reached: Position, now: Position) -> Skew | None:
    """The key that most of the rows have, or else the partition that most of those waiting are in.

    `by` has the columns that rows are counted by, as far as they are columns of the topic.
    """
    table = sample.table()
    columns = [name for name in by if name in table.column_names]
    if columns and table.num_rows:
        groups = hashable(table.select(columns)).group_by(columns).aggregate([([], "count_all")])
        most = to_rows(groups.sort_by([("count_all", "descending")]).slice(0, 1))[0]
        share = most["count_all"] / table.num_rows
        if share >= _MOST and groups.num_rows > 1:
            return Skew("key", ", ".join(printable(str(most[name])) for name in columns), share)
    waiting = [end - start for start, end in reached.ranges(now)]
    if len(waiting) > 1 and sum(waiting) > 0:
        share = max(waiting) / sum(waiting)
        if share >= max(_MOST, 1.5 / len(waiting)):
            return Skew("partition", str(waiting.index(max(waiting))), share)
    return None
