"""Growing lag: more rows arrive than a step processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from headrace.application.doctor.finding import Finding, percent, printable
from headrace.log.sample import Sample, hashable
from headrace.plan.batch import Timing
from headrace.plan.position import Position
from headrace.schema.python_rows import to_rows

_BATCHES = 30
_ENOUGH = 6
_MOST = 0.5
"""The share of rows that makes a key or partition hot."""


@dataclass(frozen=True)
class Skew:
    """A hot key or partition."""

    what: str
    value: str
    share: float


@dataclass(frozen=True)
class GrowingLag(Finding):
    """The lag after each of the last batches. Rates are rows per batch."""

    name = "lag grows"
    lags: tuple[int, ...]
    came: float
    taken: float
    seconds: float
    """The duration of a batch."""
    skew: Skew | None

    @property
    def what(self) -> str:
        return f"more rows arrive than it processes: lag is {self.lags[-1]:,} rows and grows"

    @property
    def evidence(self) -> tuple[str, ...]:
        rates = (
            f"per batch of {self.seconds:.1f} s, {self.came:,.0f} rows arrived and "
            f"{self.taken:,.0f} were processed"
        )
        grown = (
            f"lag went from {self.lags[0]:,} to {self.lags[-1]:,} rows in the last "
            f"{len(self.lags)} batches"
        )
        skew = self.skew
        if skew is None:
            return grown, rates, "there is no hot key or partition"
        return grown, rates, f"hot {skew.what} {skew.value} has {percent(skew.share)} of the rows"

    @property
    def remedy(self) -> str:
        if self.skew is not None:
            return (
                f"One core computes a hot {self.skew.what}: aggregate by a finer key first, "
                "publish that, and aggregate it again in a second step"
            )
        return (
            "Use larger batches (headrace run --max-rows) or more cores (--cores), or filter out "
            "rows that are not needed before they are counted"
        )


def growing_lag(step: str, timings: Sequence[Timing], skew: Skew | None) -> GrowingLag | None:
    """Detect a lag that grew over the last batches of a step. A shrinking lag does not count.

    The median lag has to rise from the first third of the batches to the second and to the last, by
    a batch or more in total, and must not fall within the last third.
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
    """The hot key of the rows, or else the hot partition of the waiting rows.

    `by` has the columns that rows are grouped by; those that the topic lacks are ignored.
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
