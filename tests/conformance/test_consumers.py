"""A consumer's position: polls and seeks move it, and its group keeps it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from headrace.clock import to_micros
from headrace.errors import InvalidSetting, MisusedHandle, UnknownPartition
from headrace.log import EARLIEST, LATEST, Capability, Commit, Log, Offset, Time
from headrace.log.roles import Consumer
from tests.conformance.backends import START
from tests.conformance.stage import LONG, Stage, needs, send, table

MINUTE = timedelta(minutes=1)


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


def polled(consumer: Consumer, max_records: int = 500) -> str:
    """The next values, joined to one string."""
    return b"".join(r.value for r in consumer.poll(max_records=max_records)).decode()


def test_polling_goes_on_where_it_stopped(numbers: Log) -> None:
    consumer = numbers.consumer("numbers")
    assert [polled(consumer, 4), polled(consumer, 4), polled(consumer, 4)] == ["0123", "4567", "89"]
    assert polled(consumer) == ""
    send(numbers, "numbers", b"x")
    assert polled(consumer) == "x"


def test_a_poll_with_nothing_to_give_returns_after_its_timeout(log: Log) -> None:
    log.create_topic("numbers")
    assert log.consumer("numbers").poll(timedelta(milliseconds=50)) == []


def test_a_poll_returns_as_soon_as_there_is_something(stage: Stage, numbers: Log) -> None:
    assert polled(numbers.consumer("numbers")) == "0123456789"
    consumer = numbers.consumer("numbers", start=LATEST)
    send(stage.elsewhere(), "numbers", b"x")
    assert [r.value for r in consumer.poll(timedelta(days=365))] == [b"x"]


def test_batches_are_the_same_records_as_arrow(numbers: Log) -> None:
    found = table(numbers.consumer("numbers").poll_batches())
    assert found["value"].to_pylist() == [b"%d" % number for number in range(10)]
    consumer = numbers.consumer("numbers")
    few = consumer.poll_batches(max_records=3)
    assert sum(map(len, few)) == 3
    assert polled(consumer) == "3456789"


def test_several_topics_are_read_together(log: Log) -> None:
    for topic in ("a", "b"):
        log.create_topic(topic, partitions=2)
        for partition in (0, 1):
            send(log, topic, f"{topic}{partition}", partition=partition)
    consumer = log.consumer("a", "b")
    assert consumer.assignment == {("a", 0), ("a", 1), ("b", 0), ("b", 1)}
    assert sorted(r.value for r in consumer.poll()) == [b"a0", b"a1", b"b0", b"b1"]


def test_a_busy_partition_does_not_starve_the_others(log: Log) -> None:
    log.create_topic("numbers", partitions=3)
    for partition in range(3):
        send(log, "numbers", *[b"x"] * 50, partition=partition)
    consumer = log.consumer("numbers")
    seen = {record.partition for _ in range(3) for record in consumer.poll(max_records=10)}
    assert seen == {0, 1, 2}


def test_where_a_consumer_starts_is_its_own_choice(stage: Stage, numbers: Log) -> None:
    assert polled(numbers.consumer("numbers", start=EARLIEST)) == "0123456789"
    assert polled(numbers.consumer("numbers", start=LATEST)) == ""
    assert polled(numbers.consumer("numbers", start=Offset(7))) == "789"
    eight = stage.place(Time.at(START + 8 * MINUTE))
    assert polled(numbers.consumer("numbers", start=eight)) == "89"
    with needs(numbers, Capability.NUMBERED_APPENDS):
        assert polled(numbers.consumer("numbers", start=Commit(9))) == "9"


def test_a_consumer_can_seek_anywhere(stage: Stage, numbers: Log) -> None:
    consumer = numbers.consumer("numbers")
    for position, expected in (
        (Offset(8), "89"),
        (EARLIEST, "0123456789"),
        (LATEST, ""),
        (Time.at(START + 6 * MINUTE), "6789"),
        (Time(to_micros(START) - 1), "0123456789"),
    ):
        consumer.seek(stage.place(position))
        assert polled(consumer) == expected
    with needs(numbers, Capability.NUMBERED_APPENDS):
        consumer.seek(Commit(4))
        assert polled(consumer) == "456789"


def test_seeking_in_the_middle_of_a_commit_forgets_what_was_read_ahead(log: Log) -> None:
    log.create_topic("numbers")
    send(log, "numbers", *[b"%d" % number for number in range(10)])
    consumer = log.consumer("numbers")
    assert polled(consumer, 3) == "012"
    consumer.seek(Offset(8))
    assert polled(consumer) == "89"


def test_partitions_can_be_sought_one_by_one(log: Log) -> None:
    for topic in ("a", "b"):
        log.create_topic(topic, partitions=2)
        for partition in (0, 1):
            send(log, topic, b"0", b"1", b"2", partition=partition)
    consumer = log.consumer("a", "b", start=LATEST)
    consumer.seek(Offset(2), "a", 1)
    assert [(r.topic, r.partition, r.offset) for r in consumer.poll()] == [("a", 1, 2)]
    consumer.seek(Offset(2), "b")
    found = {(r.topic, r.partition, r.offset) for r in consumer.poll()}
    assert found == {("b", 0, 2), ("b", 1, 2)}
    with pytest.raises(UnknownPartition):
        consumer.seek(EARLIEST, "a", 7)
    with pytest.raises(UnknownPartition):
        consumer.position("c", 0)


def test_the_position_is_the_offset_read_next(numbers: Log) -> None:
    consumer = numbers.consumer("numbers", start=Offset(2))
    assert consumer.position("numbers", 0) == 2
    consumer.poll(max_records=3)
    assert consumer.position("numbers", 0) == 5
    consumer.poll()
    assert consumer.position("numbers", 0) == 10


def test_a_paused_partition_is_kept_and_not_read(log: Log) -> None:
    log.create_topic("numbers", partitions=2)
    for partition in (0, 1):
        send(log, "numbers", b"%d" % partition, partition=partition)
    consumer = log.consumer("numbers")
    consumer.pause(("numbers", 0))
    assert polled(consumer) == "1"
    assert consumer.assignment == {("numbers", 0), ("numbers", 1)}
    assert polled(consumer) == ""
    consumer.resume(("numbers", 0))
    assert polled(consumer) == "0"
    consumer.seek(EARLIEST)
    consumer.pause()
    assert polled(consumer) == ""
    consumer.resume()
    assert sorted(polled(consumer)) == ["0", "1"]
    with pytest.raises(UnknownPartition):
        consumer.pause(("numbers", 2))


def test_iterating_hands_out_one_record_at_a_time(numbers: Log) -> None:
    found = []
    for record in numbers.consumer("numbers"):
        found.append(record.value)
        if len(found) == 10:
            break
    assert b"".join(found) == b"0123456789"


@pytest.mark.parametrize("commits", ["each its own commit", "all in one commit"])
def test_leaving_a_loop_loses_nothing(stage: Stage, commits: str) -> None:
    log = stage.log
    log.create_topic("letters")
    for batch in ("abcdef",) if commits.startswith("all") else "abcdef":
        send(log, "letters", *batch)
    consumer = log.consumer("letters", group="readers")
    for record in consumer:
        if record.value == b"c":
            break
    # c itself was not handled: no poll followed it.
    assert polled(consumer, 2) == "cd"
    for record in consumer:
        if record.value == b"f":
            break
    consumer.close()
    with log.consumer("letters", group="readers") as successor:
        assert polled(successor) == "f"


def test_a_record_counts_as_handled_when_the_loop_asks_for_the_next(stage: Stage) -> None:
    log = stage.log
    log.create_topic("letters")
    send(log, "letters", *"abcdef")
    consumer = log.consumer("letters", group="readers")
    with pytest.raises(RuntimeError), consumer:
        for record in consumer:
            if record.value == b"d":
                raise RuntimeError("d cannot be handled")
    # The poll was not committed, so its records are polled again; d is not lost.
    with log.consumer("letters", group="readers") as successor:
        assert b"d" in [record.value for record in stage.drain(successor)]


def test_a_closed_consumer_gives_nothing_more(numbers: Log) -> None:
    consumer = numbers.consumer("numbers")
    consumer.close()
    consumer.close()
    with pytest.raises(MisusedHandle):
        consumer.poll()


def test_a_consumer_without_a_group_has_nothing_to_commit(numbers: Log) -> None:
    consumer = numbers.consumer("numbers")
    with pytest.raises(MisusedHandle, match="group"):
        consumer.commit()
    with pytest.raises(MisusedHandle, match="group"):
        consumer.rewind()
    with numbers.producer() as producer:
        transaction = producer.transaction()
        with pytest.raises(MisusedHandle, match="group"):
            transaction.commit_offsets(consumer)


def test_a_way_to_commit_that_is_none_is_refused(numbers: Log) -> None:
    with pytest.raises(InvalidSetting, match="never"):
        numbers.consumer("numbers", commit="never")  # type: ignore[arg-type]
