"""Reading a topic between two positions, now or as of an earlier commit."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from headrace.clock import to_micros
from headrace.errors import (
    InvalidPosition,
    OffsetOutOfRange,
    UnknownColumn,
    UnknownPartition,
)
from headrace.log import EARLIEST, LATEST, Capability, Commit, Log, Offset, Position, Time
from tests.conformance.backends import START
from tests.conformance.stage import LONG, Stage, needs, offsets, read, send, values

MINUTE = timedelta(minutes=1)


def minute(number: int) -> Time:
    """The time this many minutes after the test's start."""
    return Time(to_micros(START + number * MINUTE))


@pytest.fixture
def numbers(stage: Stage) -> Log:
    """A topic with the numbers 0 to 9, one per minute."""
    stage.log.create_topic("numbers")
    with stage.log.producer(linger=LONG) as producer:
        for number in range(10):
            producer.send("numbers", b"%d" % number)
            producer.flush()
            stage.later(MINUTE)
    return stage.log


def digits(text: str) -> list[bytes]:
    return [digit.encode() for digit in text]


def test_a_topic_without_records_reads_as_nothing(log: Log) -> None:
    log.create_topic("numbers", partitions=2)
    assert read(log, "numbers") == []


def test_a_record_says_where_and_when_it_was_written(log: Log) -> None:
    log.create_topic("numbers", partitions=3)
    receipt = send(log, "numbers", b"1", key=b"k", partition=2)
    (record,) = read(log, "numbers")
    assert (record.topic, record.partition, record.offset) == ("numbers", 2, 0)
    assert (record.key, record.value, record.headers) == (b"k", b"1", ())
    assert to_micros(record.timestamp) == receipt.timestamp
    assert record.commit == receipt.commit
    assert (record.commit is None) == (Capability.NUMBERED_APPENDS not in log.capabilities)


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [
        (EARLIEST, LATEST, "0123456789"),
        (Offset(3), LATEST, "3456789"),
        (EARLIEST, Offset(3), "012"),
        (Offset(3), Offset(5), "34"),
        (Offset(5), Offset(3), ""),
        (Offset(0), Offset(0), ""),
        (Offset(10), LATEST, ""),
        (LATEST, LATEST, ""),
        (LATEST, EARLIEST, ""),
        (minute(3), LATEST, "3456789"),
        (EARLIEST, minute(3), "012"),
        (minute(3), minute(5), "34"),
        (minute(-5), minute(1), "0"),
        (minute(60), LATEST, ""),
        (EARLIEST, minute(60), "0123456789"),
        (Time(minute(2).micros + 1), Time(minute(4).micros + 1), "34"),
        (minute(2), Offset(4), "23"),
    ],
)
def test_reading_is_from_a_position_up_to_another(
    stage: Stage, numbers: Log, start: Position, stop: Position, expected: str
) -> None:
    start, stop = stage.place(start), stage.place(stop)
    assert values(numbers, "numbers", start=start, stop=stop) == digits(expected)


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [
        (Commit(0), LATEST, "0123456789"),
        (Commit(3), LATEST, "3456789"),
        (EARLIEST, Commit(3), "012"),
        (Commit(3), Commit(5), "34"),
        (Commit(10), LATEST, ""),
        (EARLIEST, Commit(99), "0123456789"),
        (Commit(2), Offset(4), "23"),
    ],
)
def test_reading_from_a_commit_begins_after_it_and_ends_with_it(
    numbers: Log, start: Position, stop: Position, expected: str
) -> None:
    with needs(numbers, Capability.NUMBERED_APPENDS):
        assert values(numbers, "numbers", start=start, stop=stop) == digits(expected)


def test_positions_inside_one_commit_cut_it(log: Log) -> None:
    log.create_topic("numbers")
    send(log, "numbers", *digits("0123456789"))
    assert values(log, "numbers", start=Offset(3), stop=Offset(6)) == digits("345")
    assert offsets(log, "numbers", start=Offset(9)) == [9]


def test_where_reading_stops_is_fixed_when_it_starts(stage: Stage) -> None:
    stage.log.create_topic("numbers", partitions=2)
    for partition in (0, 1):
        send(stage.log, "numbers", b"before", partition=partition)
    scan = stage.log.read("numbers")
    for partition in (0, 1):
        send(stage.elsewhere(), "numbers", b"after", partition=partition)
    assert [r.value for batch in scan for r in batch.records()] == [b"before"] * 2


def test_partitions_are_read_one_after_the_other_in_the_order_asked_for(log: Log) -> None:
    log.create_topic("numbers", partitions=3)
    for value, partition in ((b"a", 2), (b"b", 0), (b"c", 2), (b"d", 1)):
        send(log, "numbers", value, partition=partition)
    assert values(log, "numbers") == [b"b", b"d", b"a", b"c"]
    assert values(log, "numbers", partitions=[2, 0]) == [b"a", b"c", b"b"]
    assert values(log, "numbers", partitions=iter([1])) == [b"d"]
    assert values(log, "numbers", partitions=[]) == []


def test_only_the_columns_asked_for_are_read(log: Log) -> None:
    log.create_topic("raw")
    send(log, "raw", b"v", key=b"k", headers=[("h", b"1")])
    (batch,) = log.read("raw", columns=["value"])
    assert batch.data.schema.names == ["value"]
    (record,) = batch.records()
    assert (record.key, record.value, record.headers) == (None, b"v", ())
    with pytest.raises(UnknownColumn, match=r"valeu.*value"):
        log.read("raw", columns=["valeu"])
    with needs(log, Capability.TYPED_TOPICS):
        log.create_topic("typed", schema="id string, n int", key="id")
        send(log, "typed", {"id": "a", "n": 1})
        (record,) = read(log, "typed", columns=["n"])
        assert (record.key, record.value) == (None, {"n": 1})
        with pytest.raises(UnknownColumn, match="no column 'm'"):
            log.read("typed", columns=["m"])


@pytest.mark.parametrize(
    ("position", "offset"),
    [(EARLIEST, 0), (LATEST, 10), (Offset(4), 4), (minute(4), 4), (minute(99), 10)],
)
def test_a_position_is_an_offset_in_each_partition(
    stage: Stage, numbers: Log, position: Position, offset: int
) -> None:
    assert numbers.offset_at("numbers", 0, stage.place(position)) == offset


def test_a_commit_is_an_offset_in_each_partition(numbers: Log) -> None:
    with needs(numbers, Capability.NUMBERED_APPENDS):
        assert [numbers.offset_at("numbers", 0, Commit(n)) for n in (0, 4, 99)] == [0, 4, 10]


def test_a_position_in_a_partition_that_is_not_there_is_refused(numbers: Log) -> None:
    with pytest.raises(UnknownPartition):
        numbers.offset_at("numbers", 1, EARLIEST)


@pytest.mark.parametrize("offset", [-1, 11, 1_000_000])
def test_an_offset_out_of_range_is_answered_with_the_range(numbers: Log, offset: int) -> None:
    for ask in (
        lambda: numbers.read("numbers", start=Offset(offset)),
        lambda: numbers.read("numbers", stop=Offset(offset)),
        lambda: numbers.offset_at("numbers", 0, Offset(offset)),
        lambda: numbers.consumer("numbers", start=Offset(offset)),
        lambda: numbers.consumer("numbers").seek(Offset(offset)),
        lambda: numbers.reset_group("group", "numbers", Offset(offset)),
    ):
        with pytest.raises(OffsetOutOfRange, match=r"from 0 up to 10") as caught:
            ask()
        assert caught.value.details == {
            "topic": "numbers",
            "partition": 0,
            "offset": offset,
            "first": 0,
            "end": 10,
        }


@pytest.mark.parametrize("position", [3, "earliest", None, 2.5])
def test_what_is_no_position_is_refused(numbers: Log, position: Any) -> None:
    with pytest.raises(InvalidPosition, match=str(position)):
        numbers.read("numbers", start=position)
    with pytest.raises(InvalidPosition, match=str(position)):
        numbers.consumer("numbers", start=position)


def test_an_offset_holds_one_value_for_ever(stage: Stage) -> None:
    log = stage.log
    log.create_topic("numbers", partitions=2)
    with log.producer(linger=LONG, batch_bytes=64) as producer:
        for number in range(100):
            producer.send("numbers", b"%d" % number, key=b"%d" % (number % 5))
    before = read(log, "numbers")
    for number in range(100, 200):
        send(log, "numbers", b"%d" % number, key=b"%d" % (number % 5))
    ends = {p: sum(r.partition == p for r in before) for p in (0, 1)}
    again = [r for p in (0, 1) for r in read(log, "numbers", partitions=[p], stop=Offset(ends[p]))]
    assert again == before
    assert [r for r in read(stage.reopen(), "numbers") if r.offset < ends[r.partition]] == before
