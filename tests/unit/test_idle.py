"""Event time advances with the clock in an idle topic, and not before it is idle."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headrace.clock import SECOND, VirtualClock, to_micros
from headrace.errors import UnknownTopic
from headrace.log import Log, open_log
from headrace.log.idle import IdleHeartbeat

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(NOON)


@pytest.fixture
def log(tmp_path: Path, clock: VirtualClock) -> Iterator[Log]:
    with open_log(f"file:{tmp_path}", clock=clock) as log:
        for topic, idle in (("quiet", "30s"), ("asleep", "none")):
            log.create_topic(topic, schema="at timestamp", event_time="at", settings={"idle": idle})
        yield log


def send(log: Log, topic: str, second: int) -> None:
    with log.producer() as producer:
        producer.send(topic, {"at": NOON + timedelta(seconds=second)})


def seconds(log: Log, topic: str) -> float | None:
    frontier = log.frontier(topic)
    return None if frontier is None else (frontier - to_micros(NOON)) / SECOND


def test_a_quiet_topic_goes_on_and_others_do_not(log: Log, clock: VirtualClock) -> None:
    heart = IdleHeartbeat(log, ["quiet", "asleep"], clock)
    heart.beat()
    assert log.head() == 0, "nothing is known of time in a topic without rows"
    send(log, "quiet", -5)
    send(log, "asleep", -5)
    found = []
    for _ in range(7):
        heart.beat()
        found.append(seconds(log, "quiet"))
        clock.sleep(10 * SECOND)
    assert found == [-5, -5, -5, 25, 25, 25, 55]
    assert seconds(log, "asleep") == -5
    assert [commit.rows for commit in log.commits("quiet", 0, 10)] == [1, 0, 0]


def test_a_row_starts_it_over(log: Log, clock: VirtualClock) -> None:
    heart = IdleHeartbeat(log, ["quiet"], clock)
    send(log, "quiet", 0)
    clock.sleep(40 * SECOND)
    heart.beat()
    assert seconds(log, "quiet") == 40
    clock.sleep(20 * SECOND)
    send(log, "quiet", 58)
    heart.beat()
    assert seconds(log, "quiet") == 58
    clock.sleep(30 * SECOND)
    heart.beat()
    assert seconds(log, "quiet") == 88


def test_what_ends_it_is_told(log: Log, clock: VirtualClock) -> None:
    heart = IdleHeartbeat(log, ["gone"], clock)
    heart._run()
    with pytest.raises(UnknownTopic):
        heart.check()
