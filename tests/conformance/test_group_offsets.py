"""Offsets of groups: lag, resets, and several groups on one topic."""

from __future__ import annotations

from datetime import timedelta

import pytest

from headrace.clock import to_micros
from headrace.errors import GroupActive, UnknownGroup
from headrace.log import EARLIEST, LATEST, Capability, Commit, Log, Offset, Position, Time
from tests.conformance.backends import START
from tests.conformance.stage import LONG, Stage, needs, send

MINUTE = timedelta(minutes=1)


@pytest.fixture
def numbers(stage: Stage) -> Log:
    """Two partitions with 0 to 4 each, one per minute."""
    stage.log.create_topic("numbers", partitions=2)
    with stage.log.producer(linger=LONG) as producer:
        for number in range(5):
            for partition in (0, 1):
                producer.send("numbers", b"%d" % number, partition=partition)
                producer.flush()
            stage.later(MINUTE)
    return stage.log


def consume(stage: Stage, group: str, count: int) -> list[bytes]:
    with stage.log.consumer("numbers", group=group) as consumer:
        return [record.value for record in consumer.poll(max_records=count)]


def test_a_group_that_is_not_there_is_named_in_the_error(log: Log) -> None:
    assert log.groups() == []
    for ask in (log.group, log.delete_group):
        with pytest.raises(UnknownGroup, match="nobody") as caught:
            ask("nobody")
        assert caught.value.details["group"] == "nobody"


def test_groups_are_independent_of_each_other(stage: Stage, numbers: Log) -> None:
    names = [f"group-{n}" for n in range(10)]
    for count, name in enumerate(names):
        assert len(consume(stage, name, count + 1)) == count + 1
    assert numbers.groups() == names
    for count, name in enumerate(names):
        assert numbers.group(name).lag == 10 - (count + 1)


def test_lag_is_what_is_left_to_read_and_how_long_it_has_waited(stage: Stage, numbers: Log) -> None:
    with numbers.consumer("numbers", group="readers") as consumer:
        consumer.pause(("numbers", 1))
        assert len(consumer.poll(max_records=2)) == 2
        consumer.commit()
        state = numbers.group("readers")
        (member,) = state.members
    first, second = state.lags
    assert (first.topic, first.partition, first.committed, first.end) == ("numbers", 0, 2, 5)
    assert (first.records, second.records) == (3, 5)
    assert stage.waited(first.seconds, 3 * MINUTE), "2 was appended 3 minutes ago"
    assert stage.waited(second.seconds, 5 * MINUTE)
    assert state.lag == 8
    assert {first.member, second.member} == {member.id}
    stage.later(MINUTE)
    assert stage.waited(numbers.group("readers").lags[0].seconds, 4 * MINUTE)


def test_a_group_that_has_read_everything_has_no_lag(stage: Stage, numbers: Log) -> None:
    with numbers.consumer("numbers", group="readers") as consumer:
        stage.drain(consumer)
    state = numbers.group("readers")
    assert [(lag.records, lag.seconds, lag.member) for lag in state.lags] == [(0, 0.0, None)] * 2
    assert state.members == ()
    send(numbers, "numbers", b"x", partition=1)
    stage.later(MINUTE)
    first, second = numbers.group("readers").lags
    assert (first.records, first.seconds, second.records) == (0, 0.0, 1)
    assert stage.waited(second.seconds, MINUTE)


def test_a_group_survives_a_restart(stage: Stage, numbers: Log) -> None:
    consume(stage, "readers", 7)
    before, after = numbers.group("readers"), stage.reopen().group("readers")
    known = [(lag.topic, lag.partition, lag.committed, lag.end, lag.records) for lag in before.lags]
    assert known == [
        (lag.topic, lag.partition, lag.committed, lag.end, lag.records) for lag in after.lags
    ]
    assert before.members == after.members == ()
    assert len(consume(stage, "readers", 100)) == 3


@pytest.mark.parametrize(
    ("position", "offset"),
    [(EARLIEST, 0), (Offset(3), 3), (Time(to_micros(START + 3 * MINUTE)), 3), (LATEST, 5)],
)
def test_an_idle_group_can_be_moved_to_any_position(
    stage: Stage, numbers: Log, position: Position, offset: int
) -> None:
    consume(stage, "readers", 4)
    place = stage.place(position)
    assert numbers.reset_group("readers", "numbers", place) == {0: offset, 1: offset}
    assert len(consume(stage, "readers", 100)) == 2 * (5 - offset)


def test_an_idle_group_can_be_moved_to_a_commit(stage: Stage, numbers: Log) -> None:
    with needs(numbers, Capability.NUMBERED_APPENDS):
        # The third commit is the 1 of partition 0; the 1 of partition 1 follows it.
        assert numbers.reset_group("readers", "numbers", Commit(3)) == {0: 2, 1: 1}
        assert len(consume(stage, "readers", 100)) == 7


def test_a_group_can_be_placed_before_it_has_ever_read(stage: Stage, numbers: Log) -> None:
    numbers.reset_group("readers", "numbers", LATEST)
    assert numbers.groups() == ["readers"]
    assert consume(stage, "readers", 100) == []


def test_a_group_at_work_cannot_be_moved_or_deleted(stage: Stage, numbers: Log) -> None:
    consumer = numbers.consumer("numbers", group="readers")
    consumer.poll(max_records=3)
    with pytest.raises(GroupActive, match="readers"):
        numbers.reset_group("readers", "numbers", EARLIEST)
    with pytest.raises(GroupActive, match="readers"):
        numbers.delete_group("readers")
    consumer.close()
    assert numbers.group("readers").lag == 7
    numbers.delete_group("readers")
    assert numbers.groups() == []
    assert len(consume(stage, "readers", 100)) == 10, "a deleted group begins anew"


@pytest.mark.silence
def test_a_killed_member_keeps_its_group_busy_until_its_session_has_run_out(
    stage: Stage, numbers: Log
) -> None:
    killed = numbers.consumer("numbers", group="readers")
    with pytest.raises(GroupActive):
        numbers.reset_group("readers", "numbers", LATEST)
    stage.miss(killed)
    assert numbers.reset_group("readers", "numbers", LATEST) == {0: 5, 1: 5}
