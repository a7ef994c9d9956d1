"""Declarations: refusals, and the lines that errors point to."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import InvalidPipeline, InvalidWindow
from headrace.operators.window.aggregates import count, distinct, sum
from headrace.operators.window.declare import aggregate
from headrace.operators.window.windows import hopping, tumbling
from headrace.pipeline.app import App
from headrace.pipeline.row_steps import derive, explode, filter, merge, select, split
from headrace.pipeline.stream import Source, sources
from headrace.pipeline.time import Lateness

MINUTE = timedelta(minutes=1)
LATENESS = Lateness(delay=timedelta(seconds=10), grace=MINUTE)


def views(app: App | None = None) -> Source:
    return (app or App("test")).topic(
        "views", schema="url string, user string, ms int, at timestamp", key="url", event_time="at"
    )


spans = st.integers(1, 10**9).map(lambda n: timedelta(microseconds=n))


@given(st.integers(-(10**15), 10**16), spans, st.integers(1, 20))
def test_a_moment_is_in_every_window_that_holds_it_and_in_no_other(
    moment: int, every: timedelta, times: int
) -> None:
    window = hopping(every * times, every)
    step, size = every // timedelta(microseconds=1), times * every // timedelta(microseconds=1)
    starts = [end - size for end in window.ends(moment)]
    assert len(starts) == times
    assert all(start <= moment < start + size for start in starts)
    assert all(start % step == 0 for start in starts)


@given(st.integers(-(10**15), 10**16), spans)
def test_a_moment_is_in_exactly_one_tumbling_window(moment: int, size: timedelta) -> None:
    assert len(tumbling(size).ends(moment)) == 1


@given(st.integers(-(10**15), 10**16), spans, st.data())
def test_windows_that_do_not_divide_evenly_still_hold_their_moments(
    moment: int, every: timedelta, data: st.DataObject
) -> None:
    extra = data.draw(st.integers(0, 5 * (every // timedelta(microseconds=1))))
    size = every + timedelta(microseconds=extra)
    micros = size // timedelta(microseconds=1)
    found = [end - micros for end in hopping(size, every).ends(moment)]
    assert found
    assert all(start <= moment < start + micros for start in found)
    step = every // timedelta(microseconds=1)
    assert not found[0] - step <= moment < found[0] - step + micros
    assert found[-1] + step > moment


def test_a_row_on_a_boundary_belongs_to_the_later_window() -> None:
    assert tumbling(MINUTE).ends(60_000_000) == [120_000_000]


@pytest.mark.parametrize(
    ("size", "every", "says"),
    [(0, 1, "longer than 0s"), (1, 2, "leave gaps"), (-1, 1, "longer than 0s")],
)
def test_windows_with_gaps_or_without_size_are_refused(size: int, every: int, says: str) -> None:
    with pytest.raises(InvalidWindow, match=says):
        hopping(size * MINUTE, every * MINUTE)


def test_lateness_cannot_be_negative() -> None:
    with pytest.raises(InvalidWindow):
        Lateness(delay=-MINUTE, grace=MINUTE)


def test_an_unknown_column_is_refused_at_the_users_own_line() -> None:
    with pytest.raises(InvalidPipeline) as caught:
        filter(views(), "usr is not null")
    error = caught.value
    assert "no column 'usr'" in str(error)
    assert "Did you mean 'user'?" in str(error)
    assert Path(error.details["file"]).name == "test_streams.py"
    assert 'filter(views(), "usr is not null")' in str(error)


@pytest.mark.parametrize(
    "declare",
    [
        lambda: select(views(), "url", slow="msec > 100"),
        lambda: derive(views(), slow="msec > 100"),
        lambda: explode(views(), "split(uri, '/')", into="part"),
        lambda: aggregate(
            views(), by="uri", window=tumbling(MINUTE), lateness=LATENESS, hits=count()
        ),
        lambda: aggregate(
            views(), by="url", window=tumbling(MINUTE), lateness=LATENESS, n=sum("msec")
        ),
    ],
)
def test_every_step_checks_its_columns(declare: object) -> None:
    with pytest.raises(InvalidPipeline, match="There is no column"):
        declare()  # type: ignore[operator]


def test_columns_are_found_inside_functions_lambdas_and_quotes() -> None:
    stream = derive(
        views(),
        a="coalesce(lower(`url`), 'none')",
        b="transform(array(ms), x -> x + ms)",
        c="case when USER like 'a%' then 1 else 0 end",
    )
    assert stream.columns == ("url", "user", "ms", "at", "a", "b", "c")


def test_text_that_is_no_sql_is_refused() -> None:
    with pytest.raises(InvalidPipeline, match="is not Spark SQL"):
        filter(views(), "url ==== (")


def test_only_streams_with_the_same_columns_merge() -> None:
    one = views()
    assert merge(one, one).columns == one.columns
    with pytest.raises(InvalidPipeline, match="different columns"):
        merge(one, select(one, "url"))


def test_a_split_gives_a_stream_for_each_condition() -> None:
    parts = split(views(), slow="ms > 100", fast="ms <= 100")
    assert list(parts) == ["slow", "fast"]


def test_the_late_rows_of_an_aggregation_say_why_they_are_late() -> None:
    made = aggregate(views(), by="url", window=tumbling(MINUTE), lateness=LATENESS, n=count())
    assert made.late.columns == (
        "url", "user", "ms", "at", "window_start", "window_end", "watermark", "late_by",
    )  # fmt: skip


def test_a_view_needs_a_unique_key() -> None:
    app = App("test")
    made = aggregate(views(app), by="url", window=tumbling(MINUTE), lateness=LATENESS, n=count())
    with pytest.raises(InvalidPipeline, match="not unique"):
        app.view("v", made, key=["url"])
    assert app.view("v", made).key == ("url", "window_start")
    with pytest.raises(InvalidPipeline, match="declared twice"):
        app.view("v", made)


def test_a_stream_knows_the_topics_it_comes_from() -> None:
    app = App("test")
    one = views(app)
    other = app.topic(
        "more", schema="url string, user string, ms int, at timestamp", event_time="at"
    )
    made = aggregate(
        filter(merge(one, other), "ms > 1"),
        by=["url", "user"],
        window=hopping(MINUTE * 10, MINUTE),
        lateness=LATENESS,
        people=distinct("user"),
    )
    assert [source.topic.name for source in sources(made.late)] == ["views", "more"]
