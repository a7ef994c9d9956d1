"""For any rows in any number of visits, the matches of a pattern are the oracle's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.clock import to_datetime
from headrace.log.state import Topic
from headrace.operators.pattern import matching
from headrace.operators.pattern.meaning import matched
from headrace.operators.stateful.declare import Stateful
from headrace.operators.stateful.meaning import judged
from headrace.oracle.events import Event
from headrace.oracle.rows import watermark_of
from headrace.schema.ddl import parse_schema
from tests.property.folding import counted
from tests.property.test_buckets import SECOND, cuts, logs, visited

COLUMNS = parse_schema("k string, at timestamp, failed boolean, success boolean")
PATTERNS: list[list[tuple[str, str, int]]] = [
    [("failed", "n is null", 3), ("success", "n > 0", 1)],
    [("failed", "n = 1", 1), ("success", "n = 2", 1)],
    [("failed", "n = 1", 2), ("success", "n >= 1", 2)],
]


def declare(steps: Sequence[Any], within: int, *, strict: bool) -> Stateful:
    topic = hr.App("a").topic("events", schema="k string, n int, at timestamp", event_time="at")
    return hr.pattern(
        topic,
        by="k",
        steps=steps,
        within=timedelta(seconds=within),
        delay=timedelta(seconds=20),
        strict=strict,
    )


def check(made: Stateful, commits: list[list[Event]], cut: list[bool]) -> list[Any]:
    """Check that the bucket's matches are the oracle's."""
    events = [event for commit in commits for event in commit]
    times = [event.event_time for event in events if event.event_time is not None]
    now = watermark_of(made, {"events": max(times, default=None)}, made.delay)
    expected = matched(made, judged(made, events), now)
    output, _, _ = visited(made, commits, cut, COLUMNS)
    assert counted(output) == counted(expected)
    return expected


@pytest.mark.parametrize("few", [0, 100])
def test_matches_are_the_oracles(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "_FEW", few)  # with and without the NumPy path
    seen: Counter[str] = Counter()

    @settings(max_examples=150)
    @given(logs(), cuts, st.sampled_from(PATTERNS), st.sampled_from([10, 30, 120]), st.booleans())
    def law(
        commits: list[list[Event]], cut: list[bool], steps: Any, within: int, strict: bool
    ) -> None:
        found = check(declare(steps, within, strict=strict), commits, cut)
        seen["strict" if strict else "relaxed"] += len(found)

    law()
    assert all(seen[kind] for kind in ("strict", "relaxed")), seen


def event(number: int, at: int, n: int | None) -> Event:
    """The nth row, at a second."""
    topic = Topic("events", 1, COLUMNS, None, "at")
    row = {"k": "a", "n": n, "at": to_datetime(at * SECOND)}
    return Event(topic, number, 0, number, at * SECOND, None, row)


@pytest.mark.parametrize(("last", "matches"), [(600, 1), (601, 0)])
def test_rows_that_are_just_within_match(last: int, matches: int) -> None:
    made = declare([("failed", "n = 1", 2), ("success", "n = 2")], 600, strict=False)
    times = [(0, 1), (1, 1), (last, 2), (2_000, 7)]
    commits = [[event(number, at, n)] for number, (at, n) in enumerate(times, 1)]
    for cut in ([True], [False]):
        assert len(check(made, commits, cut)) == matches


def test_of_several_beginnings_the_latest_counts() -> None:
    made = declare([("failed", "n = 1", 3), ("success", "n = 2")], 600, strict=False)
    times = [(0, 1), (500, 1), (590, 1), (600, 1), (650, 2), (2_000, 7)]
    commits = [[event(number, at, n)] for number, (at, n) in enumerate(times, 1)]
    (match,) = check(made, commits, [False])
    assert match["started_at"] == to_datetime(500 * SECOND)
    assert match["failed_last"] == to_datetime(600 * SECOND)
