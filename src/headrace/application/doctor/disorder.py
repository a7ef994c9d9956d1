"""Out-of-order results: rows arrive later than the delay allows for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.application.doctor.finding import Finding, code, percent, span
from headrace.clock import micros
from headrace.log.event_time import times_of
from headrace.log.sample import Sample
from headrace.operators.contract import Panes
from headrace.pipeline.disorder import Disorder
from headrace.pipeline.time import Lateness

_SHARE = 0.01
_ENOUGH = 10
_TOLERATED = 0.001


@dataclass(frozen=True)
class OutOfOrder(Finding):
    """Rows that arrived after their window had fired (`amending`) or closed (`late`)."""

    name = "out-of-order results"
    topic: str
    rows: int
    amending: int
    late: int
    most: timedelta
    delay: timedelta
    suggestion: Lateness
    looked_at: str

    @property
    def what(self) -> str:
        return (
            f"results change after they fired, or miss rows, because rows arrive up to "
            f"{span(micros(self.most))} late and the delay is {span(micros(self.delay))}"
        )

    @property
    def evidence(self) -> tuple[str, ...]:
        share = percent((self.amending + self.late) / self.rows)
        return (
            f"{self.amending + self.late:,} rows ({share} of {self.looked_at} of {self.topic}) "
            f"arrived after their window had fired: {self.amending:,} changed it, "
            f"{self.late:,} were too late",
        )

    @property
    def remedy(self) -> str:
        found = self.suggestion
        return (
            f"Lateness(delay={code(found.delay)}, grace={code(found.grace)}) gets "
            f"{percent(1 - _TOLERATED)} right the first time; headrace topics lateness "
            f"{self.topic} shows other delays"
        )


def out_of_order(step: str, panes: Panes, samples: Sequence[Sample]) -> OutOfOrder | None:
    """Find the first topic whose rows arrive after their windows have fired."""
    found = (_judged(step, panes, sample) for sample in samples)
    return next(filter(None, found), None)


def _judged(step: str, panes: Panes, sample: Sample) -> OutOfOrder | None:
    if sample.topic.event_time is None:
        return None
    known = {commit.number: commit for commit in sample.commits}
    rows = fired = late = 0
    behind = [np.empty(0, np.int64)]
    for batch in sample.batches:
        commit = known[batch.commit or 0]
        column = times_of(sample.topic, batch.data).cast(pa.int64())
        good = pc.is_valid(column)
        if commit.bound is not None:
            good = pc.and_(good, pc.fill_null(pc.less_equal(column, commit.bound), False))
        times = column.filter(good).to_numpy()
        rows += len(times)
        if commit.before is not None:
            fired += int((times < panes.fires.all_open_from(commit.before)).sum())
            late += int((times < panes.closes.all_open_from(commit.before)).sum())
            behind.append(commit.before - times[times < commit.before])
    if rows < _ENOUGH or fired < _SHARE * rows:
        return None
    found = Disorder(sample.topic.name, rows, 0, np.sort(np.concatenate(behind)), None)
    return OutOfOrder(
        step,
        sample.topic.name,
        rows,
        fired - late,
        late,
        found.most,
        panes.delay,
        found.suggestion(_TOLERATED),
        sample.text,
    )
