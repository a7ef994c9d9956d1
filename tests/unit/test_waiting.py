"""Rows become ready at the same commits, whatever commits the log has pruned."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import numpy as np
import pytest

from headrace.clock import to_datetime
from headrace.log import Log
from headrace.plan.waiting import NEVER, Ready, Waiting, frontier_after
from headrace.testing import ScriptedLog, scripted_log

HOUR = timedelta(hours=1)
SHORT = {"segment_age": "1m", "retention": "1h"}


@pytest.fixture
def log() -> Iterator[ScriptedLog]:
    with scripted_log() as log:
        for topic in ("table", "rows"):
            settings = SHORT if topic == "table" else None
            log.log.create_topic(topic, schema="at timestamp", event_time="at", settings=settings)
        yield log


def write(log: ScriptedLog, topic: str, moment: int) -> int:
    return log.write(topic, {"at": to_datetime(moment)})


def waiting(log: Log, low: int, after: int, **frontiers: int) -> Waiting:
    return Waiting("table", ("rows",), 1_000, low, after, log.head(), frontiers)


def test_what_was_ready_is_not_ready_again_when_the_table_has_lost_its_rows(
    log: ScriptedLog,
) -> None:
    write(log, "table", 10)
    reached = write(log, "rows", 5)
    first = Ready(log.log, waiting(log.log, 0, 0, table=-NEVER, rows=-NEVER))
    times = np.array([5, 10, 11])
    assert first.at(reached, times).tolist() == [reached, reached, NEVER]
    assert first.frontiers == {"table": 10, "rows": 5}
    log.pass_time(2 * HOUR)
    last = write(log, "table", 20)
    log.log.upkeep("table")
    assert log.log.frontier("table", reached) is None, "the log has forgotten"
    ready = Ready(log.log, waiting(log.log, 0, reached, **first.frontiers))
    assert ready.at(reached, times).tolist() == [reached, reached, last]
    assert ready.now(reached, times).tolist() == [False, False, True]


def test_rows_are_ready_with_the_same_commits_wherever_it_is_begun(log: ScriptedLog) -> None:
    for moment in range(10, 100, 10):
        write(log, "table", moment)
        write(log, "rows", moment + 15)
    times = np.arange(0, 130, 5)
    whole = Ready(log.log, waiting(log.log, 0, 0, table=-NEVER, rows=-NEVER))
    assert whole.first_waiting(log.log) == 15, "the row of 95 is in commit 16, and waits for 95"
    for after in range(1, log.log.head()):
        known = {topic: frontier_after(log.log, topic, after) for topic in ("table", "rows")}
        part = Ready(log.log, waiting(log.log, 0, after, **known))
        assert part.frontiers == whole.frontiers
        expected = np.maximum(whole.at(1, times), after)
        assert part.at(1, times).tolist() == expected.tolist()


def test_of_a_forgotten_commit_the_next_one_tells_how_far_the_topic_had_come(
    log: ScriptedLog,
) -> None:
    reached = write(log, "table", 10)
    assert frontier_after(log.log, "table", reached) == 10
    log.pass_time(2 * HOUR)
    write(log, "table", 20)
    log.log.upkeep("table")
    assert log.log.frontier("table", reached) is None
    assert frontier_after(log.log, "table", reached) == 10
    assert frontier_after(log.log, "table", log.log.head()) == 20
    assert frontier_after(log.log, "table", 0) < 0
