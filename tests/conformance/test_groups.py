"""Consumer groups: who reads which partition, and how partitions change hands."""

from __future__ import annotations

from datetime import timedelta

import pytest

from headrace.errors import InvalidName, InvalidSetting, MemberFenced
from headrace.log import Consumer, Log
from tests.conformance.stage import SESSION, Stage, send

SECOND = timedelta(seconds=1)


def join(log: Log, *topics: str, **options: str) -> Consumer:
    return log.consumer(*(topics or ("clicks",)), group="readers", **options)  # type: ignore[arg-type]


def shares(*consumers: Consumer) -> list[list[int]]:
    """The partitions of each member."""
    return [sorted(partition for _, partition in c.assignment) for c in consumers]


def fill(log: Log, partitions: int, *, rounds: int = 1) -> None:
    for number in range(rounds):
        for partition in range(partitions):
            send(log, "clicks", f"{partition}-{number}", partition=partition)


def test_one_member_reads_everything(log: Log) -> None:
    log.create_topic("clicks", partitions=4)
    assert shares(join(log)) == [[0, 1, 2, 3]]


@pytest.mark.parametrize("assignor", ["range", "sticky"])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_every_partition_has_exactly_one_reader_and_shares_are_even(
    stage: Stage, assignor: str, count: int
) -> None:
    stage.log.create_topic("clicks", partitions=4)
    members = [join(stage.elsewhere(), assignor=assignor) for _ in range(count)]
    stage.settle(*members)
    found = shares(*members)
    assert sorted(partition for share in found for partition in share) == [0, 1, 2, 3]
    sizes = sorted(map(len, found))
    assert sizes[-1] - sizes[0] <= 1


def test_range_gives_neighbours_to_one_member_in_every_topic(stage: Stage) -> None:
    for topic in ("clicks", "views"):
        stage.log.create_topic(topic, partitions=4)
    members = [join(stage.log, "clicks", "views", assignor="range") for _ in range(2)]
    stage.settle(*members)
    halves = {frozenset(c.assignment) for c in members}
    assert halves == {
        frozenset((topic, p) for topic in ("clicks", "views") for p in half)
        for half in ((0, 1), (2, 3))
    }


def test_sticky_moves_no_more_partitions_than_it_must(stage: Stage) -> None:
    stage.log.create_topic("clicks", partitions=6)
    first, second = join(stage.log), join(stage.log)
    stage.settle(first, second)
    had = [first.assignment, second.assignment]
    third = join(stage.log)
    stage.settle(first, second, third)
    assert [len(c.assignment) for c in (first, second, third)] == [2, 2, 2]
    assert first.assignment < had[0]
    assert second.assignment < had[1]
    third.close()
    stage.settle(first, second)
    assert first.assignment | second.assignment == had[0] | had[1]
    assert [len(c.assignment) for c in (first, second)] == [3, 3]


def test_a_group_has_one_way_to_assign(stage: Stage) -> None:
    stage.log.create_topic("clicks")
    with join(stage.log, assignor="range"):
        with pytest.raises(InvalidSetting, match="range"):
            join(stage.log, assignor="sticky")
        assert len(stage.log.group("readers").members) == 1
    with join(stage.log, assignor="sticky"):
        assert stage.log.group("readers").assignor == "sticky"


def test_names_and_assignors_that_are_none_are_refused(log: Log) -> None:
    log.create_topic("clicks")
    with pytest.raises(InvalidSetting, match="random"):
        join(log, assignor="random")
    with pytest.raises(InvalidName, match="a/b"):
        log.consumer("clicks", group="a/b")
    assert log.groups() == []


def test_more_members_than_partitions_leaves_some_idle_and_the_group_says_so(stage: Stage) -> None:
    stage.log.create_topic("clicks", partitions=2)
    members = [join(stage.log) for _ in range(4)]
    stage.settle(*members)
    state = stage.log.group("readers")
    assert sorted(member.idle for member in state.members) == [False, False, True, True]
    assert all(member.topics == ("clicks",) for member in state.members if not member.idle)
    assert sorted(p for member in state.members for p in member.partitions) == [
        ("clicks", 0),
        ("clicks", 1),
    ]
    fill(stage.log, 2)
    assert sorted(len(c.poll()) for c in members) == [0, 0, 1, 1]


def test_an_idle_member_takes_over_from_one_that_leaves(stage: Stage) -> None:
    stage.log.create_topic("clicks")
    first, second = join(stage.log), join(stage.log)
    stage.settle(first, second)
    fill(stage.log, 1)
    assert len(first.poll()) == 1
    first.close()
    assert stage.settle(second) == [], "the one that left had committed what it handled"
    assert shares(second) == [[0]]


def test_a_partition_changes_hands_only_when_its_owner_has_committed(stage: Stage) -> None:
    stage.log.create_topic("clicks", partitions=2)
    first = join(stage.log)
    fill(stage.log, 2, rounds=3)
    taken = first.poll(max_records=4)
    second = join(stage.elsewhere())
    # The first is still at work on what it polled, so nothing is free yet.
    assert second.poll() == []
    assert shares(first, second) == [[0, 1], []]
    taken += stage.settle(first, second)
    assert list(map(len, shares(first, second))) == [1, 1]
    values = sorted(record.value for record in taken)
    assert values == sorted(b"%d-%d" % (p, n) for p in (0, 1) for n in range(3)), "none twice"


def test_nothing_is_handled_twice_while_members_come_and_go(stage: Stage) -> None:
    stage.log.create_topic("clicks", partitions=5)
    handled: list[bytes] = []
    members: list[Consumer] = []
    for step in range(12):
        fill(stage.log, 5)
        if step % 3 == 0:
            members.append(join(stage.elsewhere()))
        if step in (5, 8):
            members.pop(0).close()
        for member in members:
            handled += [b"%d@%d" % (r.partition, r.offset) for r in member.poll(max_records=3)]
    handled += [b"%d@%d" % (r.partition, r.offset) for r in stage.settle(*members)]
    handled += [b"%d@%d" % (r.partition, r.offset) for m in members for r in stage.drain(m)]
    assert sorted(handled) == sorted(b"%d@%d" % (p, n) for p in range(5) for n in range(12))


@pytest.mark.silence
def test_a_silent_member_is_passed_over_when_its_session_has_run_out(stage: Stage) -> None:
    stage.log.create_topic("clicks", partitions=2)
    silent, alive = join(stage.log), join(stage.elsewhere())
    stage.settle(silent, alive)
    generation = alive.generation
    for _ in range(3):
        stage.later(SESSION / 4)
        stage.settle(alive)
    assert len(alive.assignment) == 1, "a session is not over before its time"
    stage.miss(silent)
    stage.settle(alive)
    assert shares(alive) == [[0, 1]]
    assert alive.generation > generation
    assert len(stage.log.group("readers").members) == 1


def test_polling_keeps_a_member_alive(stage: Stage) -> None:
    stage.log.create_topic("clicks", partitions=2)
    members = [join(stage.log), join(stage.elsewhere())]
    stage.settle(*members)
    before = [(c.assignment, c.generation) for c in members]
    for _ in range(10):
        stage.later(SESSION / 2)
        for member in members:
            member.poll()
    assert [(c.assignment, c.generation) for c in members] == before


@pytest.mark.silence
def test_a_zombie_cannot_commit_what_has_gone_to_another(stage: Stage) -> None:
    stage.log.create_topic("clicks")
    fill(stage.log, 1, rounds=4)
    zombie = stage.log.consumer("clicks", group="readers", commit="manual")
    assert len(zombie.poll(max_records=3)) == 3
    stage.miss(zombie)
    successor = stage.elsewhere().consumer("clicks", group="readers", commit="manual")
    assert [r.value for r in successor.poll(max_records=1)] == [b"0-0"]
    successor.commit()
    with pytest.raises(MemberFenced) as caught:
        zombie.commit()
    assert caught.value.details["partition"] == 0
    (lag,) = stage.log.group("readers").lags
    assert lag.committed == 1, "the zombie's offset must not be there"


@pytest.mark.silence
def test_a_member_that_was_passed_over_comes_back_by_polling(stage: Stage) -> None:
    stage.log.create_topic("clicks", partitions=2)
    sleeper, other = join(stage.log), join(stage.elsewhere())
    stage.settle(sleeper, other)
    stage.miss(sleeper)
    stage.settle(other)
    assert shares(other) == [[0, 1]]
    stage.settle(sleeper, other)
    assert list(map(len, shares(sleeper, other))) == [1, 1]


def test_a_static_member_that_restarts_keeps_its_partitions_and_the_generation(
    stage: Stage,
) -> None:
    stage.log.create_topic("clicks", partitions=4)
    other, static = join(stage.log), join(stage.log, instance="worker-1")
    stage.settle(other, static)
    before = (static.assignment, other.assignment, other.generation)
    static.close()
    stage.later(SESSION / 2)
    stage.settle(other)
    again = join(stage.elsewhere(), instance="worker-1")
    stage.settle(other, again)
    assert (again.assignment, other.assignment, other.generation) == before
    (member,) = [m for m in stage.log.group("readers").members if m.instance]
    assert member.instance == "worker-1"


@pytest.mark.silence
def test_a_static_member_that_stays_away_loses_its_place(stage: Stage) -> None:
    stage.log.create_topic("clicks", partitions=2)
    other, static = join(stage.log), join(stage.log, instance="worker-1")
    stage.settle(other, static)
    static.close()
    stage.miss(static)
    stage.settle(other)
    assert shares(other) == [[0, 1]]


def test_of_two_with_the_same_instance_the_older_is_fenced(stage: Stage) -> None:
    stage.log.create_topic("clicks")
    fill(stage.log, 1, rounds=2)
    old = stage.log.consumer("clicks", group="readers", instance="worker-1", commit="manual")
    assert len(old.poll(max_records=1)) == 1
    new = join(stage.elsewhere(), instance="worker-1")
    with pytest.raises(MemberFenced):
        old.commit()
    with pytest.raises(MemberFenced, match="worker-1"):
        old.poll()
    with pytest.raises(MemberFenced):
        old.commit()  # Kafka's client knows by now, and refuses by itself
    assert [r.value for r in stage.drain(new)] == [b"0-0", b"0-1"]


@pytest.mark.silence
def test_a_static_member_whose_session_ran_out_may_come_back(stage: Stage) -> None:
    stage.log.create_topic("clicks", partitions=2)
    static, other = join(stage.log, instance="worker-1"), join(stage.log)
    stage.settle(static, other)
    stage.miss(static)
    stage.settle(other)
    stage.settle(static, other)
    assert list(map(len, shares(static, other))) == [1, 1]


def test_added_partitions_are_shared_out(stage: Stage) -> None:
    stage.log.create_topic("clicks", partitions=2)
    members = [join(stage.log), join(stage.elsewhere())]
    stage.settle(*members)
    generation = members[0].generation
    stage.log.alter_topic("clicks", partitions=4)
    stage.later(SESSION / 2)
    stage.settle(*members)
    assert list(map(len, shares(*members))) == [2, 2]
    assert members[0].generation > generation
    fill(stage.log, 4)
    assert sorted(r.value for m in members for r in stage.drain(m)) == [
        b"0-0", b"1-0", b"2-0", b"3-0",
    ]  # fmt: skip


@pytest.mark.parametrize("span", [timedelta(0), SESSION / 2], ids=["at once", "after a while"])
def test_a_topic_made_again_is_shared_out_again(stage: Stage, span: timedelta) -> None:
    stage.log.create_topic("clicks", partitions=2)
    member = join(stage.log)
    stage.settle(member)
    stage.log.delete_topic("clicks")
    stage.later(span)  # in which the member's client may hear of it, though nobody polls
    stage.log.create_topic("clicks", partitions=3)
    stage.later(SESSION / 2)
    stage.settle(member)
    fill(stage.log, 3)
    assert sorted(r.value for r in stage.drain(member)) == [b"0-0", b"1-0", b"2-0"]
