"""Commit numbers of appends over the whole log, and frontiers per commit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from headrace.clock import to_micros
from headrace.errors import InvalidPosition, InvalidSetting
from headrace.log import Capability, Commit, Log
from tests.conformance.backends import START
from tests.conformance.stage import LONG, Stage, needs, read, send

COMMITS = Capability.NUMBERED_APPENDS
FRONTIERS = (Capability.TYPED_TOPICS, Capability.FRONTIERS, Capability.NUMBERED_APPENDS)


def numbers(log: Log, topic: str, after: int, limit: int) -> list[int]:
    return [commit.number for commit in log.commits(topic, after, limit)]


def test_commits_are_numbered_by_one_over_the_whole_log(log: Log) -> None:
    log.create_topic("a", partitions=2)
    log.create_topic("b")
    with needs(log, COMMITS):
        assert log.head() == 0
        for number, topic in enumerate("abba", 1):
            assert send(log, topic, b"x").commit == number
            assert log.head() == number
        assert numbers(log, "a", 0, 100) == [1, 4]
        assert numbers(log, "b", 0, 100) == [2, 3]
        assert numbers(log, "b", 2, 100) == [3]
        assert numbers(log, "a", 0, 1) == [1]
        assert numbers(log, "a", 4, 100) == []


def test_what_adds_no_records_is_no_commit(stage: Stage) -> None:
    log = stage.log
    log.create_topic("a")
    send(log, "a", b"x")
    with needs(log, COMMITS):
        log.alter_topic("a", partitions=2)
        log.create_topic("b")
        with log.consumer("a", group="readers") as consumer:
            consumer.poll()
        log.reset_group("readers", "a", Commit(0))
        log.delete_topic("b")
        assert log.head() == 1
        assert stage.reopen().head() == 1


def test_writers_that_take_turns_share_one_numbering(stage: Stage) -> None:
    with needs(stage.log, COMMITS):
        assert stage.log.head() == 0
        stage.log.create_topic("a")
        other = stage.elsewhere()
        numbers = [send(log, "a", b"x").commit for log in (stage.log, other) * 3]
        assert numbers == [1, 2, 3, 4, 5, 6]
        assert [r.commit for r in read(other, "a")] == numbers


def test_a_commit_knows_when_it_was_made(stage: Stage) -> None:
    with needs(stage.log, COMMITS):
        stage.log.create_topic("a")
        for number in (1, 2, 3):
            receipt = send(stage.log, "a", b"x")
            assert stage.log.commit_time(number) == receipt.timestamp
            stage.later(timedelta(seconds=1))
        assert stage.log.commit_time(3) - stage.log.commit_time(1) == 2_000_000
        for missing in (0, 4, -1):
            with pytest.raises(InvalidPosition, match=str(missing)):
                stage.log.commit_time(missing)


def test_a_commit_is_a_consistent_cut_through_partitions_and_topics(log: Log) -> None:
    log.create_topic("a", partitions=2)
    log.create_topic("b", partitions=2)
    with needs(log, COMMITS, Capability.ATOMIC_VISIBILITY):
        places = [(topic, partition) for topic in "ab" for partition in (0, 1)]
        with log.producer(linger=LONG) as producer:
            for number in range(1, 13):
                touched = places[number % 4 :] if number % 3 else places
                with producer.transaction() as transaction:
                    for topic, partition in touched:
                        transaction.send(topic, b"%d" % number, partition=partition)
        for low in range(13):
            for high in range(low, 13):
                seen: dict[int, int] = {}
                for topic in "ab":
                    for record in read(log, topic, start=Commit(low), stop=Commit(high)):
                        assert record.commit == int(record.value)
                        seen[record.commit] = seen.get(record.commit, 0) + 1
                whole = {
                    n: len(places[n % 4 :] if n % 3 else places) for n in range(low + 1, high + 1)
                }
                assert seen == whole


def test_reading_commit_by_commit_gives_each_record_once(log: Log) -> None:
    log.create_topic("a", partitions=3)
    with needs(log, COMMITS):
        with log.producer(linger=LONG, batch_bytes=20) as producer:
            for number in range(50):
                producer.send("a", b"%d" % number)
        position, found = 0, []
        while some := numbers(log, "a", position, 3):
            found += read(log, "a", start=Commit(position), stop=Commit(some[-1]))
            position = some[-1]
        assert position == log.head()
        assert sorted(int(r.value) for r in found) == list(range(50))


def at(minute: float) -> datetime:
    return START + timedelta(minutes=minute)


def events(log: Log, *minutes: float | None) -> int:
    """Commit rows with these event times, and return the commit number."""
    log.require(Capability.NUMBERED_APPENDS)
    rows = [{"at": None if minute is None else at(minute)} for minute in minutes]
    commit = send(log, "events", *rows).commit
    assert commit is not None
    return commit


def test_the_frontier_is_the_highest_event_time_up_to_each_commit(stage: Stage) -> None:
    with needs(stage.log, *FRONTIERS):
        stage.log.create_topic("events", partitions=2, schema="at timestamp", event_time="at")
        assert stage.log.frontier("events") is None
        expected: list[tuple[int, float | None]] = []
        for minutes, frontier in (
            ((None,), None),
            ((-5,), -5),
            ((-9, -7), -5),
            ((-1, -3), -1),
            ((None, -2), -1),
            ((0.5,), 0.5),
        ):
            expected.append((events(stage.log, *minutes), frontier))
        for again in (False, True):
            log = stage.reopen() if again else stage.log
            for commit, frontier in expected:
                moment = None if frontier is None else to_micros(at(frontier))
                assert log.frontier("events", commit) == moment
            assert log.frontier("events") == log.topic("events").frontier == to_micros(at(0.5))
            assert log.frontier("events", 0) is None


def test_a_commit_tells_how_its_rows_stand_in_time(stage: Stage) -> None:
    with needs(stage.log, *FRONTIERS, COMMITS):
        stage.log.create_topic(
            "events", partitions=2, schema="at timestamp", event_time="at", settings={"skew": "10m"}
        )
        events(stage.log, 3, -7, 5)
        events(stage.log, None, 1, 99)
        events(stage.log, None)
        bound = to_micros(at(10))
        found = [
            (c.rows, c.before, c.after, c.oldest, c.misplaced, c.bound)
            for c in stage.log.commits("events", 0, 10)
        ]
        five, one, minus = to_micros(at(5)), to_micros(at(1)), to_micros(at(-7))
        assert found == [
            (3, None, five, minus, 0, bound),
            (3, five, five, one, 2, bound),
            (1, five, five, None, 1, bound),
        ]


def test_each_topic_has_a_frontier_of_its_own(log: Log) -> None:
    with needs(log, *FRONTIERS):
        log.create_topic("events", schema="at timestamp", event_time="at")
        log.create_topic("other", schema="at timestamp", event_time="at")
        first = events(log, -5)
        second = send(log, "other", {"at": at(-1)}).commit
        assert log.frontier("events", second) == to_micros(at(-5))
        assert log.frontier("other", first) is None


def test_an_event_time_ahead_of_the_clock_never_moves_the_frontier(stage: Stage) -> None:
    with needs(stage.log, *FRONTIERS):
        stage.log.create_topic(
            "events", schema="at timestamp", event_time="at", settings={"skew": "10m"}
        )
        events(stage.log, 10.001)
        assert stage.log.frontier("events") is None
        events(stage.log, 99, 3, 50)
        assert stage.log.frontier("events") == to_micros(at(3)), "the believable one of them"
        events(stage.log, 10)
        assert stage.log.frontier("events") == to_micros(at(10)), "just within the skew"
        stage.later(timedelta(minutes=1))
        events(stage.log, 11)
        assert stage.log.frontier("events") == to_micros(at(11)), "judged by the append time"
        assert len(read(stage.log, "events")) == 6, "such rows are kept all the same"


def test_without_a_skew_every_event_time_counts(log: Log) -> None:
    with needs(log, *FRONTIERS):
        log.create_topic(
            "events", schema="at timestamp", event_time="at", settings={"skew": "none"}
        )
        events(log, 1_000_000)
        assert log.frontier("events") == to_micros(at(1_000_000))


def test_a_topic_without_event_time_has_no_frontier(log: Log) -> None:
    log.create_topic("raw")
    send(log, "raw", b"x")
    with needs(log, *FRONTIERS):
        assert log.frontier("raw") is None
        log.create_topic("typed", schema="at timestamp")
        send(log, "typed", {"at": datetime(2026, 1, 1, tzinfo=UTC)})
        assert log.frontier("typed") is None


def test_the_frontier_outlives_the_records_it_came_from(stage: Stage) -> None:
    with needs(stage.log, *FRONTIERS, Capability.UPKEEP):
        stage.log.create_topic(
            "events",
            schema="at timestamp",
            event_time="at",
            settings={"retention": "1m", "segment_age": "1m"},
        )
        events(stage.log, 0)
        stage.later(timedelta(minutes=5))
        events(stage.log, -9)
        stage.later(timedelta(hours=1))
        stage.log.upkeep()
        assert read(stage.log, "events") == []
        assert stage.log.frontier("events") == to_micros(at(0))
        events(stage.log, -3)
        assert stage.log.frontier("events") == to_micros(at(0))


def test_a_frontier_moves_on_without_a_row(stage: Stage) -> None:
    log = stage.log
    with needs(log, *FRONTIERS):
        log.create_topic("a", schema="at timestamp", event_time="at")
        assert log.advance("a", at(5)) == 1
        assert log.frontier("a") == to_micros(at(5))
        with log.producer() as producer:
            producer.send("a", {"at": at(9)})
        assert log.advance("a", at(9)) is None
        assert log.advance("a", at(7)) is None
        assert log.advance("a", at(20)) == 3
        found = [(c.number, c.rows, c.before, c.after) for c in log.commits("a", 0, 10)]
        five, nine, twenty = (to_micros(at(n)) for n in (5, 9, 20))
        assert found == [(1, 0, None, five), (2, 1, five, nine), (3, 0, nine, twenty)]
        log = stage.reopen()
        assert (log.head(), log.frontier("a"), log.frontier("a", 2)) == (3, twenty, nine)
        assert [record.value["at"] for record in read(log, "a")] == [at(9)]


def test_a_frontier_does_not_go_ahead_of_the_clock(log: Log) -> None:
    with needs(log, *FRONTIERS):
        log.create_topic("a", schema="at timestamp", event_time="at", settings={"skew": "1m"})
        with pytest.raises(InvalidPosition, match="ahead of the clock"):
            log.advance("a", datetime(2999, 1, 1, tzinfo=UTC))
        assert log.head() == 0


def test_a_topic_without_event_time_has_no_frontier_to_move(log: Log) -> None:
    log.create_topic("raw")
    with needs(log, *FRONTIERS), pytest.raises(InvalidSetting, match="no event time"):
        log.advance("raw", at(1))


def test_a_frontier_goes_ahead_of_the_clock_if_that_is_meant(log: Log) -> None:
    with needs(log, *FRONTIERS):
        log.create_topic("a", schema="at timestamp", event_time="at", settings={"skew": "1m"})
        moment = datetime(2999, 1, 1, tzinfo=UTC)
        assert log.advance("a", moment, ahead=True) == 1
        assert log.frontier("a") == to_micros(moment)


def test_time_by_punctuation_goes_on_only_when_the_source_says_so(log: Log) -> None:
    with needs(log, *FRONTIERS):
        settings = {"frontier": "punctuation"}
        log.create_topic("events", schema="at timestamp", event_time="at", settings=settings)
        events(log, -5, -1)
        assert log.frontier("events") is None
        log.advance("events", at(-3))
        events(log, 0, -9)
        assert log.frontier("events") == to_micros(at(-3))


def test_time_by_arrival_is_that_of_the_last_commit(stage: Stage) -> None:
    with needs(stage.log, *FRONTIERS):
        settings = {"frontier": "arrival"}
        stage.log.create_topic("events", schema="at timestamp", event_time="at", settings=settings)
        events(stage.log, -50, None)
        assert stage.log.frontier("events") == to_micros(at(0))
        stage.later(timedelta(minutes=4))
        events(stage.log, 30)
        assert stage.log.frontier("events") == to_micros(at(4))


def test_a_topic_goes_by_the_time_it_is_altered_to_and_never_back(stage: Stage) -> None:
    with needs(stage.log, *FRONTIERS):
        stage.log.create_topic("events", schema="at timestamp", event_time="at")
        events(stage.log, 10)
        stage.log.alter_topic("events", settings={"frontier": "arrival"})
        stage.later(timedelta(minutes=4))
        events(stage.log, 3)
        assert stage.log.frontier("events") == to_micros(at(10))
        stage.later(timedelta(minutes=8))
        events(stage.log, 3)
        assert stage.log.frontier("events") == to_micros(at(12))


def test_a_row_without_a_time_gets_that_of_its_arrival_if_the_topic_says_so(stage: Stage) -> None:
    log = stage.log
    with needs(log, *FRONTIERS):
        log.require(Capability.NUMBERED_APPENDS)
        settings = {"missing_time": "arrival"}
        log.create_topic(
            "events", schema="k string, at timestamp", key="k", event_time="at", settings=settings
        )
        stage.later(timedelta(minutes=2))
        send(log, "events", {"k": "a"}, {"k": "b", "at": at(-1)}, {"k": "c", "at": None})
        with log.producer() as producer:
            producer.send("events", None, key="gone")
        found = [record.value and record.value["at"] for record in read(log, "events")]
        assert found == [at(2), at(-1), at(2), None], "a tombstone is no row"
        assert log.frontier("events") == to_micros(at(2))
        assert [commit.misplaced for commit in log.commits("events", 0, 9)] == [0, 1]


def test_there_are_three_ways_for_time_to_go(log: Log) -> None:
    with needs(log, Capability.TYPED_TOPICS), pytest.raises(InvalidSetting, match="'perfect'"):
        log.create_topic("a", schema="at timestamp", settings={"frontier": "perfect"})
