"""The columnar lateness rule agrees with each window's own, from the year 1 to 9999."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import headrace as hr
from headrace.clock import FIRST_MOMENT, LAST_MOMENT
from headrace.errors import LawBroken
from headrace.log.state import TopicCommit, believed
from headrace.operators.window.lateness import LATE_FIELDS, closing_of, late_pairs
from headrace.operators.window.windows import AnyWindow, Cumulative
from headrace.plan.lateness import Closing
from headrace.plan.law import Law
from headrace.plan.metadata import FRONTIER

TICK = timedelta(microseconds=1)
WINDOWS: list[AnyWindow] = [
    hr.tumbling(10 * TICK),
    hr.tumbling(10 * TICK, offset=3 * TICK),
    hr.hopping(12 * TICK, 4 * TICK),
    hr.hopping(11 * TICK, 4 * TICK, offset=TICK),
    hr.cumulative(12 * TICK, step=4 * TICK),
    hr.cumulative(12 * TICK, step=3 * TICK, offset=5 * TICK),
    hr.sliding(7 * TICK),
    hr.session(5 * TICK),
]
MOMENTS = st.sampled_from([FIRST_MOMENT, -1, 0, 1, 1_767_261_600_000_000, LAST_MOMENT]).flatmap(
    lambda around: st.integers(around - 40, around + 40)
)


def counting(window: AnyWindow, delay: int, grace: int) -> hr.Aggregation:
    events = hr.App("late").topic("events", schema="k string, at timestamp", event_time="at")
    lateness = hr.Lateness(delay * TICK, grace * TICK)
    return hr.aggregate(events, by="k", window=window, lateness=lateness, n=hr.count())


def commit(oldest: int | None, before: int | None) -> TopicCommit:
    return TopicCommit(1, 1, before, before, oldest, 0, None)


@pytest.mark.parametrize("window", WINDOWS)
@given(MOMENTS, st.integers(-60, 60), st.integers(0, 9), st.integers(0, 9))
@example(0, 10, 0, 0)  # the frontier is exactly at the end of a window
def test_a_row_is_late_for_the_windows_that_the_frontier_has_closed(
    window: AnyWindow, moment: int, ahead: int, delay: int, grace: int
) -> None:
    step, frontier = counting(window, delay, grace), moment + ahead
    late = [end for end in window.ends(moment) if end + delay + grace <= frontier]
    closing = closing_of(step.window, step.patience)
    assert (moment < closing.all_open_from(frontier)) == bool(late)
    assert closing.touches(commit(moment, frontier)) == bool(late)
    if not isinstance(window, Cumulative):  # the source drops none of these
        assert (moment < closing.first_open(frontier)) == (len(late) == len(window.ends(moment)))
        assert closing.windows >= len(window.ends(moment))


@pytest.mark.parametrize("window", WINDOWS)
@given(MOMENTS, st.integers(-60, 60), st.integers(0, 9), st.integers(0, 9))
@example(0, 10, 0, 0)  # the frontier is exactly at the end of a window
def test_a_late_row_has_its_windows_and_the_watermark_it_met(
    window: AnyWindow, moment: int, ahead: int, delay: int, grace: int
) -> None:
    step, frontier = counting(window, delay, grace), moment + ahead
    kind = pa.timestamp("us", tz="UTC")
    at = pa.array([moment], pa.int64()).cast(kind)
    rows = pa.table({"k": ["a"], "at": at, FRONTIER: pa.array([frontier])})
    schema = pa.schema([("k", pa.string()), ("at", kind), *LATE_FIELDS])
    found = late_pairs(rows, step, "at", schema)
    late = [end for end in window.ends(moment) if end + delay + grace <= frontier]
    watermark = frontier - delay
    assert sorted(found.column("window_end").cast(pa.int64()).to_pylist()) == late
    starts = sorted(found.column("window_start").cast(pa.int64()).to_pylist())
    assert starts == [window.start_of(end) for end in late]
    assert set(found.column("watermark").cast(pa.int64()).to_pylist()) <= {watermark}
    by = sorted(found.column("late_by").to_pylist())
    assert by == sorted((watermark - grace - end) / 1_000_000.0 for end in late)


@given(MOMENTS, st.integers(-60, 60), st.integers(0, 9))
@example(0, 3, 3)  # the frontier is exactly a delay past the row
def test_a_row_without_windows_is_late_when_the_frontier_is_a_delay_past_it(
    moment: int, ahead: int, delay: int
) -> None:
    late = moment + delay <= moment + ahead
    assert (moment < Closing.after(delay).first_open(moment + ahead)) == late


def test_nothing_is_late_before_there_is_a_frontier_or_a_row() -> None:
    closing = closing_of(WINDOWS[0], 0 * TICK)
    assert not closing.touches(commit(None, 5))
    assert not closing.touches(commit(5, None))
    assert not np.any([closing.touches(commit(0, 0))])


def test_believed_times_end_with_the_bound_or_with_the_calendar() -> None:
    assert believed(None) == (FIRST_MOMENT, LAST_MOMENT)
    assert believed(5) == (FIRST_MOMENT, 5)
    assert believed(LAST_MOMENT + 5) == (FIRST_MOMENT, LAST_MOMENT)


@pytest.mark.parametrize(
    "law",
    [
        Law(rows=2, pairs=2, counted=1),
        Law(rows=2, pairs=1, counted=1),
        Law(rows=1, pairs=1, counted=1, late=1),
        Law(rows=2, pairs=2, counted=2, duplicates=1),
        Law(rows=3, waiting=-1, pairs=3, counted=3),
        Law(rows=1, exploded=1, pairs=1, counted=1),
    ],
)
def test_a_law_that_loses_or_makes_a_row_is_broken(law: Law) -> None:
    with pytest.raises(LawBroken, match="Nothing of this batch was stored"):
        law.check("step")


def test_a_law_holds_where_every_row_is_accounted_for() -> None:
    Law(rows=6, dead=1, filtered=1, tombstones=1, exploded=2, pairs=5, counted=3, late=2).check("s")
    Law(rows=2, pairs=6, counted=5, late=1).check("several windows")
