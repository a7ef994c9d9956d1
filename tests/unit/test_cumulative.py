"""Cumulative windows have the same start, and each is one step longer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.clock import micros, to_micros
from headrace.errors import InvalidWindow
from headrace.operators.window.lateness import closing_of

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
MOMENTS = st.integers(to_micros(datetime(1, 1, 3, tzinfo=UTC)), 253_402_000_000_000_000)


def test_a_row_is_in_every_window_of_its_day_that_ends_after_it() -> None:
    window = hr.cumulative(DAY, step=6 * HOUR)
    noon = to_micros(datetime(2026, 1, 31, 12, tzinfo=UTC))
    ends = [noon + micros(6 * HOUR), noon + micros(12 * HOUR)]
    assert window.ends(noon) == ends, "a row at the end of a window is in the next"
    assert window.ends(noon - 1) == [noon, *ends]
    assert {window.start_of(end) for end in ends} == {noon - micros(12 * HOUR)}


@given(MOMENTS, st.integers(1, 12), st.integers(1, 5), st.integers(0, 59))
def test_windows_of_one_beginning_hold_all_rows_from_it_on(
    moment: int, steps: int, step: int, offset: int
) -> None:
    size = steps * step
    tick = timedelta(microseconds=1)
    window = hr.cumulative(size * tick, step=step * tick, offset=offset % size * tick)
    ends = window.ends(moment)
    starts = {window.start_of(end) for end in ends}
    assert len(starts) == 1
    (start,) = starts
    assert (start - offset % size) % size == 0
    assert start <= moment < ends[0] <= moment + step
    assert ends == list(range(ends[0], start + size + 1, step))


def test_a_row_may_be_late_exactly_if_the_shortest_of_its_windows_is_closed() -> None:
    tick = timedelta(microseconds=1)
    window = hr.cumulative(12 * tick, step=3 * tick, offset=5 * tick)
    source = hr.App("a").topic("t", schema="k string, at timestamp", event_time="at")
    lateness = hr.Lateness(tick, tick)
    step = hr.aggregate(source, by="k", window=window, lateness=lateness, n=hr.count())
    closing = closing_of(step.window, step.patience)
    for moment in range(-15, 15):
        first, *_ = window.ends(moment)
        for frontier in range(-40, 40):
            assert (moment < closing.all_open_from(frontier)) == (first + 2 <= frontier)


@pytest.mark.parametrize(
    "made",
    [
        lambda: hr.cumulative(DAY, step=5 * HOUR),
        lambda: hr.cumulative(HOUR, step=DAY),
        lambda: hr.cumulative(DAY, step=timedelta(0)),
        lambda: hr.cumulative(DAY, step=HOUR, offset=DAY),
    ],
)
def test_a_size_that_is_no_multiple_of_the_step_is_refused(made: object) -> None:
    assert callable(made)
    with pytest.raises(InvalidWindow, match=r"multiple of the step|up to, not including, the size"):
        made()


def declared() -> hr.App:
    app = hr.App("shop")
    orders = app.topic("orders", schema="item string, at timestamp", event_time="at")
    today = hr.aggregate(
        orders,
        by="item",
        window=hr.cumulative(DAY, step=HOUR),
        lateness=hr.Lateness(HOUR, HOUR),
        sold=hr.count(),
    )
    app.view("today", today)
    return app


def test_a_view_of_it_is_kept_by_both_ends_of_its_windows() -> None:
    app = declared()
    assert app.views["today"].key == ("item", "window_start", "window_end")
    assert app.explain()["today"]["window"] == "cumulative, up to 1d by 1h"


def test_sql_has_the_size_first_and_then_the_step() -> None:
    app = hr.App("shop")
    orders = app.topic("orders", schema="item string, at timestamp", event_time="at")
    query = """
        SELECT item, window_start, window_end, count(*) AS sold FROM orders
        GROUP BY item, CUMULATE(at, INTERVAL 1 DAY, INTERVAL 1 HOUR)
    """
    made = hr.sql(query, orders=orders, lateness=hr.Lateness(HOUR, HOUR))
    assert isinstance(made, hr.Aggregation)
    assert made.window == hr.cumulative(DAY, step=HOUR)
