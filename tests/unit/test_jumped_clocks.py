"""A clock that is set back or forward changes neither sessions nor retention."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import apsw
import pytest

from headrace.clock import VirtualClock, micros, to_datetime
from headrace.errors import InvalidPosition
from headrace.log import EARLIEST, LATEST, Time
from headrace.log.file.clock_watch import made_at
from headrace.log.file.disk import Disk
from headrace.log.file.log import FileLog

HOUR = timedelta(hours=1)
YEARS = timedelta(days=3652)
SESSION = timedelta(seconds=10)

Opens = Callable[..., FileLog]


class Shifted(VirtualClock):
    """The clock of another process of the same boot, set independently."""

    def __init__(self, other: VirtualClock) -> None:
        super().__init__(other.now())
        self._other = other

    def monotonic(self) -> int:
        return self._other.monotonic()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(1_700_000_000_000_000)


@pytest.fixture
def log(tmp_path: Path, clock: VirtualClock) -> FileLog:
    log = FileLog(tmp_path / "log", clock=clock)
    log.create_topic("t", partitions=2)
    return log


def test_a_dead_member_does_not_hold_its_partitions_for_as_long_as_the_clock_was_set_back(
    log: FileLog, clock: VirtualClock
) -> None:
    dead = log.consumer("t", group="g", session=SESSION)
    assert len(dead.assignment) == 2
    clock.set(-HOUR)
    clock.sleep(11_000_000)
    heir = log.consumer("t", group="g", session=SESSION)
    assert len(heir.assignment) == 2
    assert len(log.group("g").members) == 1


def test_a_clock_set_forward_expires_nobody(log: FileLog, clock: VirtualClock) -> None:
    living = log.consumer("t", group="g", session=SESSION)
    clock.set(HOUR)
    assert len(log.group("g").members) == 1
    second = log.consumer("t", group="g", session=SESSION)
    living.poll()
    second.poll()
    assert len(living.assignment) == len(second.assignment) == 1


def test_a_process_whose_clock_is_an_hour_ahead_expires_nobody_of_another(
    log: FileLog, clock: VirtualClock
) -> None:
    living = log.consumer("t", group="g", session=SESSION)
    ahead = Shifted(clock)
    ahead.set(HOUR)
    with FileLog(log.folder, clock=ahead) as other:
        second = other.consumer("t", group="g", session=SESSION)
        living.poll()
        second.poll()
        assert len(living.assignment) == len(second.assignment) == 1


class NextBoot(Disk):
    def __init__(self, word: str) -> None:
        super().__init__()
        self._word = word

    def boot(self) -> str:
        return self._word


@pytest.mark.parametrize(("word", "up"), [("the next", 10**12), ("", 5)])
def test_members_end_with_the_boot_of_their_machine(
    tmp_path: Path, clock: VirtualClock, word: str, up: int
) -> None:
    clock.sleep(10**12)  # the machine has been up for long
    before = FileLog(tmp_path / "log", clock=clock, disk=NextBoot(word and "this"))
    before.create_topic("t")
    before.consumer("t", group="g", session=SESSION)
    after = VirtualClock(clock.now())
    after.sleep(up)
    with FileLog(tmp_path / "log", clock=after, disk=NextBoot(word)) as log:
        assert log.group("g").members == ()
        heir = log.consumer("t", group="g", session=SESSION)
        assert len(heir.assignment) == 1


def write(log: FileLog, clock: VirtualClock, event: timedelta = timedelta(0)) -> int | None:
    """Commit one event at an offset from now; returns the frontier after it."""
    at = to_datetime(clock.now()) + event
    with log.producer() as producer:
        producer.send("events", {"at": at}).wait()
    return log.frontier("events")


@pytest.fixture
def ahead_once(log: FileLog, clock: VirtualClock) -> FileLog:
    """A log with three commits, the second by a process whose clock was ten years ahead."""
    log.create_topic(
        "events",
        schema="at timestamp",
        event_time="at",
        settings={"retention": "1h", "skew": "1m", "segment_age": "10000d"},
    )
    write(log, clock)
    ahead = Shifted(clock)
    ahead.set(YEARS)
    with FileLog(log.folder, clock=ahead) as other, other.producer() as producer:
        producer.send("events", {"at": to_datetime(clock.now())}).wait()
    clock.sleep(2_000_000)
    write(log, clock)
    return log


def test_one_commit_by_a_clock_far_ahead_does_not_stop_retention(
    ahead_once: FileLog, clock: VirtualClock
) -> None:
    log = ahead_once
    log.upkeep()
    assert log.offset_at("events", 0, EARLIEST) == 0, "nothing is old yet"
    clock.advance(2 * HOUR)
    log.upkeep()
    assert log.offset_at("events", 0, EARLIEST) == log.offset_at("events", 0, LATEST) == 3


def test_one_commit_by_a_clock_far_ahead_does_not_let_events_through_that_are_ahead(
    ahead_once: FileLog, clock: VirtualClock
) -> None:
    before = ahead_once.frontier("events")
    assert write(ahead_once, clock, timedelta(days=4 * 365)) == before
    with pytest.raises(InvalidPosition, match="ahead of the clock"):
        ahead_once.advance("events", to_datetime(clock.now()) + HOUR)


def test_there_is_still_an_order_by_time(ahead_once: FileLog, clock: VirtualClock) -> None:
    times = [ahead_once.commit_time(number) for number in (1, 2, 3)]
    assert times == sorted(times)
    then = Time.at(to_datetime(clock.now()) + HOUR)
    assert ahead_once.offset_at("events", 0, then) == 1


def test_a_clock_set_back_by_years_lets_nothing_go_early(log: FileLog, clock: VirtualClock) -> None:
    log.create_topic(
        "events",
        schema="at timestamp",
        event_time="at",
        settings={"retention": "1h", "segment_age": "1s"},
    )
    write(log, clock)
    clock.set(-YEARS)
    write(log, clock)
    log.upkeep()
    clock.set(YEARS)
    clock.sleep(2_000_000)
    write(log, clock)
    log.upkeep()
    assert log.offset_at("events", 0, EARLIEST) == 0


def test_a_commit_is_no_older_than_one_before_it_whose_time_has_come() -> None:
    db = apsw.Connection(":memory:")
    db.execute("CREATE TABLE commits (number, time, clock)")
    db.execute("INSERT INTO commits VALUES (2, 100, 10), (3, 200, 50)")
    assert made_at(db, 3, 150) == 150
    db.execute("INSERT INTO commits VALUES (4, 200, 120)")
    assert made_at(db, 3, 150) == 120


def test_a_clock_set_back_by_an_hour_makes_no_event_one_that_is_ahead(
    log: FileLog, clock: VirtualClock
) -> None:
    log.create_topic("events", schema="at timestamp", event_time="at", settings={"skew": "1m"})
    write(log, clock)
    clock.set(-HOUR)
    clock.sleep(1_000_000)
    assert write(log, clock, HOUR) == clock.now() + micros(HOUR)


def test_a_clock_that_was_set_is_told_of_once(
    ahead_once: FileLog, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    with FileLog(ahead_once.folder, clock=clock) as log:
        for jump in (timedelta(0), HOUR, timedelta(0), -HOUR):
            clock.set(jump)
            write(log, clock)
    assert caplog.text.count("the last commit has the time 2033") == 1
    assert caplog.text.count("was set forward by 3600 s") == 1
    assert caplog.text.count("was set back by 3600 s") == 1


def test_tombstones_go_in_time_after_a_clock_was_far_ahead(
    log: FileLog, clock: VirtualClock
) -> None:
    log.create_topic("table", settings={"cleanup": "compact", "tombstone_retention": "1h"})
    ahead = Shifted(clock)
    ahead.set(YEARS)
    with FileLog(log.folder, clock=ahead) as other, other.producer() as producer:
        producer.send("table", None, key="k").wait()
    with log.producer() as producer:
        producer.send("table", "v", key="l").wait()
    log.compact("table")
    assert [r.key for b in log.read("table") for r in b.records()] == [b"k", b"l"]
    clock.advance(2 * HOUR)
    log.compact("table")
    assert [r.key for b in log.read("table") for r in b.records()] == [b"l"]
