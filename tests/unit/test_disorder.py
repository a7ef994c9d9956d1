"""Lateness of rows is measured against the frontier that each of them met."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.clock import to_micros
from headrace.errors import InvalidSetting
from headrace.oracle.events import events_of
from headrace.testing import ScriptedLog, scripted_log

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def second(n: float | None) -> dict[str, datetime | None]:
    return {"at": None if n is None else NOON + timedelta(seconds=n)}


def measured(log: ScriptedLog, *commits: Sequence[float | None]) -> hr.Disorder:
    log.log.create_topic("events", schema="at timestamp", event_time="at", partitions=2)
    for commit in commits:
        log.write("events", *map(second, commit))
    return hr.suggest_lateness("events", log.log)


def test_rows_are_compared_with_what_came_before_their_commit() -> None:
    with scripted_log(start=NOON + timedelta(hours=1)) as log:
        found = measured(log, [10, 0], [9, 12], [2, 12], [None])
    assert found.rows == 6
    assert found.dead == 1
    # 9 met 10, and 2 met 12. Rows of one commit are not compared.
    assert list(found.behind) == [1_000_000, 10_000_000]
    assert [found.late(timedelta(seconds=n)) for n in (0, 1, 9.9, 10)] == [2, 1, 1, 0]
    assert [(c.delay.seconds, c.late) for c in found.choices()] == [(0, 2), (1, 1), (5, 1), (10, 0)]
    assert found.arrival == timedelta(hours=1) - timedelta(seconds=9.5)


def test_the_suggestion_lets_few_be_late_and_the_rest_amend() -> None:
    with scripted_log(start=NOON + timedelta(hours=1)) as log:
        found = measured(log, [100], [97, *[100] * 97], [59.5])
    assert found.rows == 100
    second = timedelta(seconds=1)
    assert found.suggestion(0.01) == hr.Lateness(5 * second, 36 * second)
    assert found.suggestion(0) == hr.Lateness(60 * second, 0 * second)
    with pytest.raises(InvalidSetting):
        found.suggestion(1)


def test_an_empty_topic_asks_for_no_delay() -> None:
    with scripted_log() as log:
        found = measured(log)
    assert (found.rows, found.arrival) == (0, None)
    assert found.suggestion() == hr.Lateness(timedelta(0), timedelta(0))


def test_a_topic_without_event_time_cannot_be_judged() -> None:
    with scripted_log() as log:
        log.log.create_topic("raw")
        with pytest.raises(InvalidSetting, match="no event time"):
            hr.suggest_lateness("raw", log.log)


@given(st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=4), max_size=12))
def test_it_is_what_the_oracle_finds_late(commits: list[list[int]]) -> None:
    with scripted_log(start=NOON + timedelta(hours=1)) as log:
        found = measured(log, *commits)
        records = [r for b in log.log.read("events") for r in b.records()]
        events = events_of(log.log.topic("events").topic, records)
    for delay in (0, 1, 7, 50):
        late = [
            e
            for e in events
            if e.frontier is not None and to_micros(e.row["at"]) + delay * 1_000_000 < e.frontier
        ]
        assert found.late(timedelta(seconds=delay)) == len(late)


def test_it_opens_a_log_by_its_address() -> None:
    with scripted_log(start=NOON + timedelta(hours=1)) as log:
        measured(log, [1], [0])
        found = hr.suggest_lateness("events", log.log.url)
    assert len(found.behind) == 1
