"""Retention: old segments are deleted whole, and their offsets are never reused."""

from __future__ import annotations

from datetime import timedelta

import pytest

from headrace.errors import OffsetOutOfRange
from headrace.log import EARLIEST, Capability, Log, Offset, Time
from tests.conformance.stage import Stage, needs, offsets, send, values

MINUTE = timedelta(minutes=1)
UPKEEP = Capability.UPKEEP


def minutes(stage: Stage, count: int, *, partition: int | None = None, size: int = 1) -> None:
    """Send one record per minute."""
    for _ in range(count):
        send(stage.log, "clicks", b"x" * size, partition=partition)
        stage.later(MINUTE)


def declare(log: Log, partitions: int = 1, **settings: str) -> None:
    log.create_topic("clicks", partitions=partitions, settings={"segment_age": "1m", **settings})


def held(log: Log, partition: int = 0) -> tuple[int, int]:
    state = log.topic("clicks").partitions[partition]
    return state.first, state.end


def test_what_is_older_than_the_retention_goes(stage: Stage) -> None:
    declare(stage.log)
    minutes(stage, 6)
    stage.reopen()  # so that no deferred upkeep of a commit runs before the test's own
    stage.log.alter_topic("clicks", settings={"retention": "3m"})
    with needs(stage.log, UPKEEP):
        (report,) = stage.log.upkeep("clicks")
        # It is 12:06. The record of 12:02 is older than 3 minutes, the one of 12:03 is not.
        assert held(stage.log) == (3, 6)
        assert offsets(stage.log, "clicks") == [3, 4, 5]
        assert (report.topic, report.segments_deleted, report.records_removed) == ("clicks", 3, 3)
        assert report.bytes_freed > 0
        (again,) = stage.log.upkeep("clicks")
        assert again.segments_deleted == 0


def test_an_open_segment_goes_too_when_all_in_it_is_old(stage: Stage) -> None:
    stage.log.create_topic("clicks", settings={"retention": "3m"})
    minutes(stage, 2)
    with needs(stage.log, UPKEEP):
        stage.log.upkeep()
        assert held(stage.log) == (0, 2)
        stage.later(timedelta(minutes=10))
        stage.log.upkeep()
        assert held(stage.log) == (2, 2)
        assert values(stage.log, "clicks") == []


def test_a_partition_is_cut_to_its_size_from_the_oldest_on(stage: Stage) -> None:
    declare(stage.log)
    minutes(stage, 10, size=8_000)
    stage.reopen()
    stage.log.alter_topic("clicks", settings={"retention_bytes": "20KiB"})
    with needs(stage.log, UPKEEP):
        (report,) = stage.log.upkeep("clicks")
        first, end = held(stage.log)
        # Segments are deleted only while the remaining ones are at least as large as the limit.
        assert (first, end) == (7, 10)
        assert report.segments_deleted == 7
        assert (stage.log.topic("clicks").bytes or 0) >= 20 << 10


def test_the_newest_segment_stays_however_large(stage: Stage) -> None:
    declare(stage.log, retention_bytes="1KiB")
    minutes(stage, 1, size=50_000)
    with needs(stage.log, UPKEEP):
        stage.log.upkeep()
        assert held(stage.log) == (0, 1)


def test_partitions_and_topics_are_kept_in_bounds_each_for_itself(stage: Stage) -> None:
    declare(stage.log, partitions=2)
    stage.log.create_topic("other", settings={"segment_age": "1m"})
    send(stage.log, "other", b"x")
    minutes(stage, 5, partition=0)
    minutes(stage, 1, partition=1)
    stage.reopen()
    stage.log.alter_topic("clicks", settings={"retention": "3m"})
    with needs(stage.log, UPKEEP):
        reports = stage.log.upkeep()
        assert [(r.topic, r.records_removed) for r in reports] == [("clicks", 3), ("other", 0)]
        assert [held(stage.log, p) for p in (0, 1)] == [(3, 5), (0, 1)]
        assert values(stage.log, "other") == [b"x"]


def test_without_limits_everything_is_kept(stage: Stage) -> None:
    declare(stage.log)
    minutes(stage, 3)
    with needs(stage.log, UPKEEP):
        stage.later(timedelta(days=3650))
        stage.log.upkeep()
        assert held(stage.log) == (0, 3)


def test_a_compacted_topic_is_not_cut_unless_it_says_so(stage: Stage) -> None:
    with needs(stage.log, UPKEEP):
        for cleanup, left in (("compact", ["a", "b"]), ("compact,delete", ["b"])):
            stage.log.create_topic(
                "clicks", settings={"segment_age": "1m", "retention": "3m", "cleanup": cleanup}
            )
            send(stage.log, "clicks", b"a", key=b"a")
            stage.later(timedelta(minutes=5))
            send(stage.log, "clicks", b"b", key=b"b")
            stage.later(MINUTE)
            stage.log.upkeep()
            assert values(stage.log, "clicks") == [name.encode() for name in left]
            stage.log.delete_topic("clicks")


def test_an_offset_that_is_gone_is_answered_with_the_range(stage: Stage) -> None:
    declare(stage.log, retention="3m")
    minutes(stage, 6)
    with needs(stage.log, UPKEEP):
        stage.log.upkeep()
        with pytest.raises(OffsetOutOfRange, match=r"from 3 up to 6") as caught:
            stage.log.read("clicks", start=Offset(2))
        assert (caught.value.details["first"], caught.value.details["end"]) == (3, 6)
        assert offsets(stage.log, "clicks", start=EARLIEST) == [3, 4, 5]
        assert offsets(stage.log, "clicks", start=Time(0)) == [3, 4, 5]


def test_a_group_that_was_overtaken_hears_of_each_partition_and_may_seek(stage: Stage) -> None:
    declare(stage.log, partitions=3)
    for _ in range(6):
        for partition in (0, 1):
            send(stage.log, "clicks", b"x", partition=partition)
        stage.later(MINUTE)
    send(stage.log, "clicks", b"y", partition=2)
    stage.log.reset_group("readers", "clicks", EARLIEST)
    stage.log.alter_topic("clicks", settings={"retention": "3m"})
    with needs(stage.log, UPKEEP):
        stage.log.upkeep()
        overtaken = {}
        found = []
        with stage.log.consumer("clicks", group="readers") as consumer:
            for _ in range(6):
                try:
                    found += [(r.partition, r.offset) for r in consumer.poll()]
                except OffsetOutOfRange as error:
                    overtaken[error.details["partition"]] = error.details["first"]
            assert found == [(2, 0)], "the other partitions go on"
            assert overtaken == {0: 3, 1: 3}
            consumer.seek(EARLIEST)
            found = [(r.partition, r.offset) for r in stage.drain(consumer)]
        assert sorted(found) == [(0, 3), (0, 4), (0, 5), (1, 3), (1, 4), (1, 5), (2, 0)]
        assert stage.log.group("readers").lag == 0


def test_a_scan_that_is_overtaken_does_not_skip_in_silence(stage: Stage) -> None:
    declare(stage.log, partitions=2)
    minutes(stage, 3, partition=0)
    minutes(stage, 3, partition=1)
    with needs(stage.log, UPKEEP):
        scan = stage.log.read("clicks")
        next(scan)
        stage.log.alter_topic("clicks", settings={"retention": "3m"})
        stage.later(timedelta(hours=1))
        stage.log.upkeep()
        with pytest.raises(OffsetOutOfRange):
            list(scan)


def test_retention_is_applied_by_itself_when_a_segment_is_full(stage: Stage) -> None:
    with needs(stage.log, UPKEEP):
        stage.log.require(UPKEEP)
        declare(stage.log, retention="3m")
        minutes(stage, 30)
        first, end = held(stage.reopen())
        assert end == 30
        assert end - first <= 5


def test_offsets_are_never_given_again(stage: Stage) -> None:
    declare(stage.log, retention="1m")
    minutes(stage, 3)
    with needs(stage.log, UPKEEP):
        stage.later(timedelta(hours=1))
        stage.log.upkeep()
        assert held(stage.log) == (3, 3)
        assert send(stage.log, "clicks", b"new").acks[0].first == 3
        assert offsets(stage.reopen(), "clicks") == [3]
