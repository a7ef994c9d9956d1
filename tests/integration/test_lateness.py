"""The boundary between on time and late, to the microsecond, in every kind of step."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import headrace as hr
from headrace.clock import to_micros
from headrace.testing import scripted_log
from tests.property.distinct import check_distinct
from tests.property.joining import check_join
from tests.property.judging import check_dead, check_late, check_law, check_view
from tests.spark import shuffling

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
TICK = timedelta(microseconds=1)
HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("column", "event_time", "given"),
    [("timestamp", "at", lambda moment: moment), ("bigint", "timestamp_micros(at)", to_micros)],
)
def test_a_row_at_the_watermark_is_late_and_one_just_after_it_is_not(
    column: str, event_time: str, given: Callable[[datetime], Any]
) -> None:
    app = hr.App("edges")
    events = app.topic("events", schema=f"k string, n int, at {column}", event_time=event_time)
    others = app.topic("others", schema=f"k string, at {column}", event_time=event_time)
    kind: dict[str, Any] = {"by": "k", "window": hr.tumbling(10 * SECOND), "rows": hr.count()}
    lateness = hr.Lateness(2 * SECOND, 3 * SECOND)
    counts = {
        "plain": hr.aggregate(events, lateness=lateness, **kind),
        "some": hr.aggregate(hr.filter(events, "n > 0"), lateness=lateness, **kind),
    }
    for name, step in counts.items():
        app.view(name, step)
        app.publish(f"{name}.late", step.late)
    once = hr.deduplicate(events, by=["k", "n"], ttl=SECOND, keep="first", delay=5 * SECOND)
    pairs = hr.join(
        events, others, on="k", after=20 * SECOND, how="left", delay=5 * SECOND, prefix="o_"
    )
    app.publish("once", once)
    app.publish("once.late", once.late)
    app.publish("pairs", pairs)
    app.publish("pairs.late", pairs.late)

    # A frontier at 15 s closes the window of the first ten seconds, and no earlier one does.
    script: list[list[timedelta]] = [
        [15 * SECOND - TICK],
        [9 * SECOND, 10 * SECOND - TICK, 10 * SECOND],
        [15 * SECOND],
        [9 * SECOND, 10 * SECOND - TICK, 10 * SECOND, 10 * SECOND + TICK],
        [40 * SECOND],
        [35 * SECOND - TICK, 35 * SECOND, 35 * SECOND + TICK],
        [HOUR, HOUR + TICK],  # as far ahead of the clock as allowed, and further
        [90 * 60 * SECOND],
    ]
    with scripted_log(start=NOON) as log:
        log.log.ensure_topic(app.topics["others"])
        for number, commit in enumerate(script):
            rows = [{"k": "a", "n": number, "at": given(NOON + moment)} for moment in commit]
            log.write(events, *rows)
            log.write(others, {"k": "a", "at": given(NOON + commit[0])})
        results = log.run(app, spark=shuffling(2), max_commits=6)
        late = {}
        for name, step in counts.items():
            check_view(name, step, results)
            check_law(name, step, results)
            check_late(f"{name}.late", step, results)
            check_dead(app.name, name, step, results)
            late[name] = len(results.topic(f"{name}.late"))
        late["once"] = len(check_distinct("once", once, results, late="once.late").late)
        late["pairs"] = len(check_join("pairs", pairs, results, late="pairs.late").late)
    assert late == {"plain": 2, "some": 2, "once": 7, "pairs": 10}
