"""Published facts about windows hold for headrace, in the oracle and on Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import headrace as hr
from headrace.clock import to_micros
from headrace.errors import InvalidWindow
from headrace.log import Topic
from headrace.operators.window.meaning import meaning
from headrace.oracle.events import Event
from headrace.testing import Results, scripted_log
from tests.reference.published import FACTS, OVER, OVER_RESULTS, OVER_ROWS, Span, ms
from tests.spark import shared

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TOMORROW = EPOCH + timedelta(days=1)
SCHEMA = "fact string, k string, n bigint, at timestamp"
NEVER_LATE = hr.Lateness(timedelta(days=1), timedelta(0))
AnyWindow = hr.Window | hr.Sliding | hr.Session


def row(fact: str, moment: int, key: str = "", n: int | None = None) -> dict[str, Any]:
    at = EPOCH + ms(moment)
    return {"fact": fact, "k": key, "n": moment if n is None else n, "at": at}


def declare(app: hr.App, window: AnyWindow) -> hr.Aggregation:
    source = app.topic("facts", schema=SCHEMA, event_time="at")
    return hr.aggregate(
        source,
        by=["fact", "k"],
        window=window,
        lateness=NEVER_LATE,
        rows=hr.count(),
        total=hr.sum("n"),
        low=hr.min("n"),
        high=hr.max("n"),
    )


def summary(windows: dict[Span, set[int]]) -> dict[Span, tuple[int, int]]:
    """The number of moments in each window, and their sum."""
    return {span: (len(held), sum(held)) for span, held in windows.items()}


def events_of(topic: Topic, rows: list[dict[str, Any]]) -> list[Event]:
    """Rows that arrive one after the other, a commit each."""
    found: list[Event] = []
    reached: int | None = None
    for number, one in enumerate(rows, start=1):
        found.append(Event(topic, number, 0, number, to_micros(TOMORROW), reached, one))
        moment = to_micros(one["at"])
        reached = moment if reached is None else max(reached, moment)
    return found


@pytest.mark.parametrize("name", FACTS)
def test_the_oracle_agrees(name: str) -> None:
    fact = FACTS[name]
    app = hr.App("facts")
    step = declare(app, fact.window)
    rows = [row(name, moment) for moment in fact.moments]
    found = meaning(step, events_of(app.topics["facts"], rows))
    panes = {
        (pane.start // 1000, pane.end // 1000): {int(one.row["n"]) for one in pane.rows}
        for pane in found.panes.values()
    }
    assert panes == fact.windows, fact.source


WINDOWS = list(dict.fromkeys([*(fact.window for fact in FACTS.values()), hr.sliding(ms(4000))]))
AT_ONCE = 7
"""Each window is a query of Spark."""


@pytest.mark.parametrize("first", range(0, len(WINDOWS), AT_ONCE))
def test_spark_agrees(first: int) -> None:
    app = hr.App("facts")
    windows = {f"view-{n}": window for n, window in enumerate(WINDOWS[first : first + AT_ONCE])}
    for view, window in windows.items():
        app.view(view, declare(app, window))
    with scripted_log(start=TOMORROW) as log:
        log.write(app.topic("facts", schema=SCHEMA, event_time="at"), *everything())
        results = log.run(app, spark=shared())
        for view, window in windows.items():
            for name, fact in FACTS.items():
                if fact.window == window:
                    assert shown(results, view, name) == summary(fact.windows), fact.source
            if window == hr.sliding(ms(4000)):
                assert over(results, view) == OVER_RESULTS, OVER


def everything() -> list[dict[str, Any]]:
    rows = [row(name, moment) for name, fact in FACTS.items() for moment in fact.moments]
    return rows + [row("over", at, key, n) for at, key, n in OVER_ROWS]


def shown(results: Results, view: str, fact: str) -> dict[Span, tuple[int, int]]:
    return {
        (moment(one["window_start"]), moment(one["window_end"])): (one["rows"], one["total"])
        for one in results.view(view)
        if one["fact"] == fact
    }


def over(results: Results, view: str) -> dict[tuple[int, str], tuple[int, int]]:
    return {
        (moment(one["window_end"]), one["k"]): (one["low"], one["high"])
        for one in results.view(view)
        if one["fact"] == "over"
    }


def moment(text: str) -> int:
    return to_micros(datetime.fromisoformat(text).replace(tzinfo=UTC)) // 1000


def clock(micros: int) -> str:
    return f"{EPOCH + timedelta(microseconds=micros):%H:%M}"


def test_windows_with_gaps_are_refused_which_beam_allows() -> None:
    # apache/beam: SlidingWindowsTest.java testElidings drops rows between its windows.
    with pytest.raises(InvalidWindow):
        hr.hopping(ms(3), ms(10))


def test_the_first_window_fires_when_the_watermark_has_passed_its_end() -> None:
    """Counts by url and minute at second 1025, from a published exercise in stream processing."""
    app = hr.App("drill")
    source = app.topic("clicks", schema="url string, at timestamp", event_time="at")
    step = hr.aggregate(
        source,
        by="url",
        window=hr.tumbling(timedelta(minutes=1)),
        lateness=hr.Lateness(timedelta(0), timedelta(0)),
        emit="final",
        clicks=hr.count(),
    )
    clicks = [("a", 1000), ("a", 1010), ("b", 1005), ("a", 1025)]
    rows = [{"url": url, "at": EPOCH + timedelta(seconds=second)} for url, second in clicks]
    found = meaning(step, events_of(app.topics["clicks"], rows))
    final = found.final(step, 1025 * 1_000_000)
    assert {(key[0], pane.start // 1_000_000, len(pane.rows)) for key, pane in final.items()} == {
        ("a", 960, 2),
        ("b", 960, 1),
    }
    assert len(found.panes) == 3


def test_the_watermark_is_the_latest_event_less_the_lateness_expected() -> None:
    """10:00, 10:01, 10:03, 09:59, 10:04, 10:05 with two minutes: the watermark is then 10:03."""
    app = hr.App("minutes")
    source = app.topic("events", schema="k string, at timestamp", event_time="at")
    ten = EPOCH + timedelta(hours=10)

    def late_with(grace: int) -> list[tuple[str, str]]:
        step = hr.aggregate(
            source,
            by="k",
            window=hr.tumbling(timedelta(minutes=1)),
            lateness=hr.Lateness(timedelta(minutes=2), timedelta(minutes=grace)),
            n=hr.count(),
        )
        minutes = [0, 1, 3, -1, 4, 5, -1]
        rows = [{"k": "x", "at": ten + timedelta(minutes=minute)} for minute in minutes]
        found = meaning(step, events_of(app.topics["events"], rows))
        return [
            (clock(step.window.start_of(end)), clock(watermark))
            for _, _, end, watermark in found.late
        ]

    # The first 09:59 meets the watermark 10:01, and its window, up to 10:00, has fired.
    assert late_with(0) == [("09:59", "10:01"), ("09:59", "10:03")]
    # With two minutes of grace it corrects the window. The second one is too late even for that.
    assert late_with(2) == [("09:59", "10:03")]
    assert late_with(4) == []
