"""Compaction: the last value of each key stays, at its offset and in order."""

from __future__ import annotations

from datetime import timedelta

import pytest

from headrace.errors import InvalidSetting, NullKey
from headrace.log import Capability, Log, Offset, Time
from tests.conformance.stage import LONG, Stage, delete, needs, offsets, pairs, read, send

UPKEEP = Capability.UPKEEP
MINUTE = timedelta(minutes=1)


def declare(log: Log, partitions: int = 1, **settings: str) -> None:
    log.create_topic("users", partitions=partitions, settings={"cleanup": "compact", **settings})


def write(log: Log, letters: str) -> None:
    """Send a record per letter: the letter is the key, its count in this call the value."""
    with log.producer(linger=LONG) as producer:
        pairs(
            producer, "users", *((k, f"{k}{letters[:n].count(k)}") for n, k in enumerate(letters))
        )


def content(log: Log) -> list[tuple[int, bytes]]:
    return [(record.offset, record.value) for record in read(log, "users")]


def test_only_the_last_value_of_each_key_stays_in_place(log: Log) -> None:
    declare(log)
    write(log, "abac")
    write(log, "cbd")
    with needs(log, UPKEEP):
        report = log.compact("users")
        assert content(log) == [(2, b"a1"), (4, b"c0"), (5, b"b0"), (6, b"d0")]
        assert (report.records_removed, report.topic) == (3, "users")
        state = log.topic("users").partitions[0]
        assert (state.first, state.end) == (0, 7)


def test_compacting_again_changes_nothing(log: Log) -> None:
    declare(log)
    write(log, "abacabad")
    with needs(log, UPKEEP):
        log.compact("users")
        before = read(log, "users")
        report = log.compact("users")
        assert (report.segments_compacted, report.records_removed) == (0, 0)
        assert read(log, "users") == before


def test_records_keep_their_time_commit_and_headers(log: Log) -> None:
    declare(log)
    for value in ("old", "new"):
        send(log, "users", value, key=b"a", headers=[("trace", value.encode())])
    expected = read(log, "users")[1:]
    with needs(log, UPKEEP):
        log.compact("users")
        assert read(log, "users") == expected


def test_compaction_over_several_rounds_is_as_compaction_at_once(log: Log) -> None:
    declare(log)
    with needs(log, UPKEEP):
        for letters in ("abc", "bcd", "cde", "aaa"):
            write(log, letters)
            log.compact("users")
        assert content(log) == [(3, b"b0"), (6, b"c0"), (7, b"d0"), (8, b"e0"), (11, b"a2")]


def test_each_partition_is_compacted_for_itself(log: Log) -> None:
    declare(log, partitions=2)
    for partition in (0, 1):
        for value in ("1", "2"):
            send(log, "users", value, key=b"same", partition=partition)
    with needs(log, UPKEEP):
        log.compact("users")
        assert [(r.partition, r.value) for r in read(log, "users")] == [(0, b"2"), (1, b"2")]


def test_typed_topics_are_compacted_by_their_key_column(log: Log) -> None:
    with needs(log, UPKEEP, Capability.TYPED_TOPICS):
        log.create_topic(
            "users", schema="name string, id bigint", key="id", settings={"cleanup": "compact"}
        )
        for name, id in (("Ann", 1), ("Bob", 2), ("Anna", 1)):
            send(log, "users", {"name": name, "id": id})
        delete(log, "users", 2)
        log.compact("users")
        assert [(r.offset, r.key, r.value) for r in read(log, "users")] == [
            (2, 1, {"name": "Anna", "id": 1}),
            (3, 2, None),
        ]


def test_a_tombstone_is_kept_for_its_time_and_then_goes_too(stage: Stage) -> None:
    log = stage.log
    declare(log, tombstone_retention="1h")
    write(log, "ab")
    delete(log, "users", "a")
    with needs(log, UPKEEP):
        log.compact("users")
        assert content(log) == [(1, b"b0"), (2, None)]
        stage.later(timedelta(minutes=59))
        log.compact("users")
        assert content(log) == [(1, b"b0"), (2, None)], "readers have an hour to see it"
        stage.later(timedelta(minutes=2))
        log.compact("users")
        assert content(log) == [(1, b"b0")]
        assert log.topic("users").partitions[0].end == 3
        assert send(log, "users", b"a again", key=b"a").acks[0].first == 3


def test_a_value_after_its_tombstone_stays(stage: Stage) -> None:
    log = stage.log
    declare(log, tombstone_retention="1s")
    write(log, "a")
    delete(log, "users", "a")
    write(log, "a")
    with needs(log, UPKEEP):
        stage.later(timedelta(hours=1))
        log.compact("users")
        assert content(log) == [(2, b"a0")]


def test_upkeep_compacts_closed_segments_and_drops_tombstones_in_time(stage: Stage) -> None:
    log = stage.log
    declare(log, segment_age="1m", tombstone_retention="1h")
    write(log, "a")
    delete(log, "users", "a")
    stage.later(MINUTE)
    write(log, "b")
    with needs(log, UPKEEP):
        log.upkeep("users")
        assert content(log) == [(1, None), (2, b"b0")]
        stage.later(timedelta(hours=2))
        log.upkeep("users")
        assert content(log) == [(2, b"b0")]


def test_reading_crosses_the_gaps_from_any_offset(log: Log) -> None:
    declare(log)
    for letters in ("aaab", "cccc", "aaaa", "dddb"):
        write(log, letters)
    with needs(log, UPKEEP):
        log.compact("users")
        left = [7, 11, 14, 15]
        assert offsets(log, "users") == left
        for start in range(17):
            assert offsets(log, "users", start=Offset(start)) == [o for o in left if o >= start]
            assert offsets(log, "users", stop=Offset(start)) == [o for o in left if o < start]
            consumer = log.consumer("users", start=Offset(start))
            found = [r.offset for _ in range(5) for r in consumer.poll(max_records=1)]
            assert found == [o for o in left if o >= start]


def test_times_still_lead_to_the_first_record_at_or_after_them(stage: Stage) -> None:
    log = stage.log
    declare(log)
    times = []
    for letters in ("aa", "bb", "ab", "cc"):
        times.append(stage.backend.clock.now())
        write(log, letters)
        stage.later(MINUTE)
    with needs(log, UPKEEP):
        log.compact("users")
        found = [offsets(log, "users", start=Time(moment)) for moment in times]
        assert found == [[4, 5, 7], [4, 5, 7], [4, 5, 7], [7]]


def test_a_consumer_goes_on_across_a_compaction(stage: Stage) -> None:
    log = stage.log
    declare(log)
    for letters in ("abcd", "abcd", "abcd"):
        write(log, letters)
    consumer = log.consumer("users", group="readers")
    assert [r.offset for r in consumer.poll(max_records=2)] == [0, 1]
    with needs(log, UPKEEP):
        stage.elsewhere().compact("users")
        rest = [r.offset for r in stage.drain(consumer)]
        assert rest[-4:] == [8, 9, 10, 11], "the last of each key is never skipped"
        assert rest == sorted(set(rest))
        assert consumer.position("users", 0) == 12
        consumer.close()
        assert log.group("readers").lag == 0


def test_a_scan_in_the_middle_of_a_compaction_sees_the_last_of_each_key(stage: Stage) -> None:
    log = stage.log
    declare(log, segment_age="1m")
    for letters in ("abcd", "abcd", "abcd"):
        write(log, letters)
        stage.later(MINUTE)
    scan = log.read("users")
    first = next(scan)
    with needs(log, UPKEEP):
        stage.elsewhere().compact("users")
        found = [r.offset for r in first.records()]
        found += [r.offset for batch in scan for r in batch.records()]
        assert found[-4:] == [8, 9, 10, 11]
        assert found == sorted(set(found))


def test_a_group_that_has_read_everything_has_no_lag_after_compaction(stage: Stage) -> None:
    log = stage.log
    declare(log, tombstone_retention="1s")
    write(log, "ab")
    delete(log, "users", "b")
    with needs(log, UPKEEP):
        stage.later(timedelta(hours=1))
        log.compact("users")
        assert content(log) == [(0, b"a0")]
        with log.consumer("users", group="readers") as consumer:
            assert [r.offset for r in stage.drain(consumer)] == [0]
        assert log.group("readers").lag == 0, "there is nothing left in the offsets 1 and 2"


def test_lag_in_seconds_is_that_of_the_next_record_there_is(stage: Stage) -> None:
    log = stage.log
    declare(log)
    for letters in ("x", "a", "a"):
        write(log, letters)
        stage.later(MINUTE)
    with log.consumer("users", group="readers") as consumer:
        consumer.poll(max_records=1)
    assert stage.waited(log.group("readers").lags[0].seconds, 2 * MINUTE)
    with needs(log, UPKEEP):
        log.compact("users")
        assert stage.waited(log.group("readers").lags[0].seconds, MINUTE)


def test_only_topics_that_say_so_are_compacted(log: Log) -> None:
    log.create_topic("plain")
    with needs(log, UPKEEP), pytest.raises(InvalidSetting, match="plain"):
        log.compact("plain")


def test_a_compacted_topic_takes_no_record_without_a_key(log: Log) -> None:
    declare(log)
    with log.producer() as producer, pytest.raises(NullKey, match="users"):
        producer.send("users", b"x")
    assert content(log) == []


def test_records_without_a_key_from_before_stay(log: Log) -> None:
    log.create_topic("users")
    send(log, "users", b"1", b"2")
    log.alter_topic("users", settings={"cleanup": "compact"})
    send(log, "users", b"3", b"4", key=b"a")
    with needs(log, UPKEEP):
        log.compact("users")
        assert content(log) == [(0, b"1"), (1, b"2"), (3, b"4")]
