"""Values that Arrow can hold and Python cannot: errors name their place, and no other row is lost.

In a log whose rows are text, such a row does not match its schema.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from headrace.errors import UnreadableRecord, UnreadableValue
from headrace.log import Capability, Consumer, Log, Offset
from headrace.log.roles import CommitMode
from tests.conformance.backends import Backend
from tests.conformance.stage import Stage, needs, read

YEAR_20000 = 568_971_820_800_000_000
"""The start of the year 10000 in microseconds; Python's years end with 9999."""

MODES: tuple[CommitMode, ...] = ("before", "after", "manual")


def rows(*ids: int, odd: int | None = None) -> pa.Table:
    """Rows, one of which has a time that Python cannot hold."""
    times = [YEAR_20000 if number == odd else number for number in ids]
    return pa.table(
        {"id": pa.array(ids, pa.int64()), "at": pa.array(times, pa.timestamp("us", tz="UTC"))}
    )


@pytest.fixture
def times(backend: Backend, log: Log) -> Log:
    """Rows 0 to 5 in two partitions; the row at offset 2 of partition 0 is unreadable."""
    if Capability.TYPED_TOPICS not in log.capabilities:
        pytest.skip("there are no columns here")
    log.create_topic("times", partitions=2, schema="id bigint, at timestamp")
    with log.producer() as producer:
        if backend.name == "kafka":
            producer.append("times", rows(0, odd=0), partition=0)
            with pytest.raises(UnreadableRecord, match="'at'"):
                read(log, "times")
            pytest.skip("rows on Kafka are text, and such a time is not read as one")
        producer.append("times", rows(0, 1, 2, 3, odd=2), partition=0)
        producer.append("times", rows(4), partition=0)
        producer.append("times", rows(5), partition=1)
    return log


def ids(consumer: Consumer, max_records: int = 500) -> list[int]:
    return [record.value["id"] for record in consumer.poll(max_records=max_records)]


def test_poll_delivers_what_is_before_an_unreadable_value_and_what_is_elsewhere(times: Log) -> None:
    consumer = times.consumer("times", group="readers")
    assert sorted(ids(consumer)) == [0, 1, 5]
    assert consumer.position("times", 0) == 2
    for _ in range(2):
        with pytest.raises(UnreadableValue, match=r"'at' of the record at offset 2") as caught:
            consumer.poll()
        assert caught.value.details == {
            "topic": "times",
            "partition": 0,
            "offset": 2,
            "column": "at",
        }


def test_an_unreadable_value_is_passed_by_seeking(times: Log) -> None:
    with times.consumer("times", group="readers") as consumer:
        ids(consumer)
        with pytest.raises(UnreadableValue, match=r"seek\(Offset\(3\), 'times', 0\)"):
            consumer.poll()
        consumer.seek(Offset(3), "times", 0)
        assert ids(consumer) == [3, 4]
    assert times.group("readers").lag == 0


def test_an_unreadable_value_is_read_as_arrow_and_polling_goes_on_after_it(times: Log) -> None:
    consumer = times.consumer("times")
    ids(consumer)
    with pytest.raises(UnreadableValue):
        consumer.poll()
    (batch,) = consumer.poll_batches(max_records=1)
    assert batch.data["at"].cast(pa.int64()).to_pylist() == [YEAR_20000]
    assert ids(consumer) == [3, 4]


@pytest.mark.parametrize("mode", MODES)
def test_a_group_is_never_committed_past_an_unreadable_value(
    stage: Stage, times: Log, mode: CommitMode
) -> None:
    with times.consumer("times", group="readers", commit=mode) as consumer:
        assert sorted(ids(consumer)) == [0, 1, 5]
        with pytest.raises(UnreadableValue):
            consumer.poll()
        if mode == "manual":
            consumer.commit()
    lags = {lag.partition: lag.committed for lag in times.group("readers").lags}
    assert lags == {0: 2, 1: 1}


@pytest.mark.parametrize("mode", MODES)
def test_a_loop_gets_what_is_before_an_unreadable_value_and_stops_at_it(
    times: Log, mode: CommitMode
) -> None:
    seen = []
    with times.consumer("times", group="readers", commit=mode) as consumer:
        with pytest.raises(UnreadableValue):
            for record in consumer:
                seen.append(record.value["id"])
        assert seen[:2] == [0, 1]
        lags = {lag.partition: lag.committed for lag in times.group("readers").lags}
        assert (lags[0] or 0) <= 2
        if mode == "manual":
            consumer.commit()
        assert consumer.position("times", 0) == 2
        assert ids(consumer) == [5], "the other partition goes on"
        consumer.seek(Offset(3), "times", 0)
        assert ids(consumer) == [3, 4]
    committed = {lag.partition: lag.committed for lag in times.group("readers").lags}
    assert committed == ({0: 2, 1: 0} if mode == "manual" else {0: 5, 1: 1})


def test_a_poll_that_is_full_before_an_unreadable_value_does_not_meet_it(times: Log) -> None:
    consumer = times.consumer("times")
    consumer.pause(("times", 1))
    assert ids(consumer, 2) == [0, 1]
    with pytest.raises(UnreadableValue):
        consumer.poll(max_records=1)
    assert consumer.position("times", 0) == 2


def test_a_scan_gives_the_records_before_an_unreadable_value(times: Log) -> None:
    batch = next(times.read("times", partitions=[0]))
    scan = batch.records()
    assert [next(scan).offset, next(scan).offset] == [0, 1]
    with pytest.raises(UnreadableValue, match="offset 2 in partition 0 of 'times'"):
        next(scan)
    assert [r.offset for r in read(times, "times", start=Offset(3), partitions=[0])] == [3, 4]


def test_the_years_1_to_9999_are_read_to_the_microsecond(log: Log) -> None:
    ends = [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]
    with needs(log, Capability.TYPED_TOPICS):
        log.create_topic("ends", schema="at timestamp")
        with log.producer() as producer:
            producer.append("ends", pa.table({"at": pa.array(ends, pa.timestamp("us", tz="UTC"))}))
        assert [r.value["at"] for r in read(log, "ends")] == ends
