"""Upkeep prunes old commits from the catalog without changing any answer."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import apsw
import pytest

from headrace.clock import VirtualClock, micros, to_datetime
from headrace.log import LATEST, Time
from headrace.log.file.log import FileLog

DAY = timedelta(days=1)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(1_700_000_000_000_000)


@pytest.fixture
def log(tmp_path: Path, clock: VirtualClock) -> FileLog:
    log = FileLog(tmp_path / "log", clock=clock)
    log.create_topic("events", schema="at timestamp", event_time="at")
    return log


def beat(log: FileLog, clock: VirtualClock, times: int) -> None:
    for _ in range(times):
        clock.advance(DAY / 10)
        log.advance("events", to_datetime(clock.now()))


def write(log: FileLog, clock: VirtualClock) -> None:
    with log.producer(id="writer") as producer:
        producer.send("events", {"at": to_datetime(clock.now())}).wait()


def count(log: FileLog, table: str) -> int:
    catalog = apsw.Connection(str(log.folder / "catalog.db"))
    found = int(catalog.execute(f"SELECT count(*) FROM {table}").get)
    catalog.close()
    return found


def test_heartbeats_of_an_idle_topic_do_not_pile_up(log: FileLog, clock: VirtualClock) -> None:
    beat(log, clock, 300)
    frontier, head, now = log.frontier("events"), log.head(), clock.now()
    log.upkeep()
    assert count(log, "commits") < 80, "those of the last week are there, and one before"
    clock.advance(8 * DAY)
    log.upkeep()
    assert count(log, "topic_commit") == count(log, "commits") == 1
    assert log.frontier("events") == frontier
    assert log.frontier("events", head) == frontier
    assert log.commit_time(head) == now


def test_heartbeats_between_rows_become_one_and_a_replay_finds_the_same(
    log: FileLog, clock: VirtualClock
) -> None:
    for _ in range(3):
        write(log, clock)
        beat(log, clock, 40)
    before = log.commits("events", 0, 10_000)
    rows = [commit for commit in before if commit.rows]
    ago = clock.now() - micros(7 * DAY)
    young = [commit for commit in before if log.commit_time(commit.number) >= ago]
    log.upkeep()
    after = log.commits("events", 0, 10_000)
    assert len(after) == len(rows) - 1 + 2 + len(young) < len(before) == 123
    assert after[-len(young) :] == young
    assert [commit for commit in after if commit.rows] == rows
    assert [c.before for c in after[1:]] == [c.after for c in after[:-1]]
    for commit in rows:
        assert log.frontier("events", commit.number) == commit.after
        assert log.frontier("events", commit.number - 1) == commit.before
        moment = Time(log.commit_time(commit.number))
        assert log.offset_at("events", 0, moment) == rows.index(commit)


def test_a_topic_that_lost_all_its_rows_keeps_its_last_commit_only(
    log: FileLog, clock: VirtualClock
) -> None:
    log.alter_topic("events", settings={"retention": "1d"})
    for _ in range(5):
        write(log, clock)
    frontier = log.frontier("events")
    clock.advance(9 * DAY)
    log.upkeep()
    assert count(log, "topic_commit") == 1
    assert log.frontier("events") == frontier


def test_an_old_topic_does_not_keep_the_commits_of_others(
    log: FileLog, clock: VirtualClock
) -> None:
    log.create_topic("busy", settings={"retention": "1d"})
    write(log, clock)  # the first commit of the log belongs to a topic that keeps everything
    with log.producer() as producer:
        for _ in range(20):
            producer.send("busy", "x").wait()
    clock.advance(9 * DAY)
    log.upkeep()
    assert count(log, "commits") < 5
    assert log.offset_at("events", 0, LATEST) == 1


@pytest.mark.parametrize("id", ["anonymous-mine", "mine"])
def test_a_producer_with_an_id_is_remembered_whatever_its_name(
    log: FileLog, clock: VirtualClock, id: str
) -> None:
    with log.producer(id=id) as producer:
        producer.send("events", {"at": to_datetime(clock.now())}).wait()
    clock.advance(30 * DAY)
    log.upkeep()
    with log.producer(id=id) as producer:
        assert producer.next_sequence == 1


def test_a_producer_without_an_id_is_forgotten_after_a_week(
    log: FileLog, clock: VirtualClock
) -> None:
    with log.producer() as producer:
        producer.send("events", {"at": to_datetime(clock.now())}).wait()
    clock.advance(6 * DAY)
    log.upkeep()
    assert count(log, "producer") == 1
    clock.advance(2 * DAY)
    log.upkeep()
    assert count(log, "producer") == 0


def test_the_last_commit_has_a_time_even_if_its_topic_is_gone(
    log: FileLog, clock: VirtualClock
) -> None:
    beat(log, clock, 2)
    log.create_topic("gone")
    with log.producer() as producer:
        producer.send("gone", "x").wait()
    log.delete_topic("gone")
    now = clock.now()
    clock.advance(8 * DAY)
    log.upkeep()
    assert count(log, "topic_commit") == 1, "there was something to forget"
    assert log.commit_time(log.head()) == now
