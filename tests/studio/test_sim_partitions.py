"""Partitions, keys and groups: invariants of the model, and the page against counts by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.studio.learn.catalog import simulate
from headrace.studio.learn.clusters import KEYS, PARTITIONS, STEPS, done, history
from headrace.studio.learn.frame import Flow, Lanes
from headrace.studio.learn.models import cluster as model
from headrace.studio.learn.models.cluster import Cluster
from headrace.studio.learn.partitions import SIMULATION

ACTIONS = [action.name for action in SIMULATION.actions]
KILLS = st.lists(st.tuples(st.sampled_from(["kill", "restart"]), st.integers(1, 3)), max_size=12)


@st.composite
def lives(draw: st.DrawFn) -> list[Cluster]:
    """A cluster after each of some actions."""
    replicas = draw(st.integers(1, 3))
    now = model.cluster(3, PARTITIONS, replicas, draw(st.sampled_from(["sticky", "range"])))
    found = [now]
    for action in draw(st.lists(st.sampled_from(ACTIONS), max_size=25)):
        now, words = done(now, action)
        assert words.endswith(".")
        found.append(now)
    return found


@given(st.integers(1, 3), KILLS)
def test_a_partition_has_one_leader_that_lives_as_long_as_an_in_sync_replica_does(
    replicas: int, happened: Sequence[tuple[str, int]]
) -> None:
    now = model.cluster(3, PARTITIONS, replicas)
    for what, broker in happened:
        now = (model.kill if what == "kill" else model.restart)(now, broker)
        for number, partition in enumerate(now.partitions):
            able = set(partition.replicas) & now.alive & partition.in_sync
            assert partition.in_sync
            leader = now.leader(number)
            assert (leader in able) if able else (leader is None)
            if able:
                # Whoever is alive beside a leader has caught up with it.
                assert partition.in_sync == set(partition.replicas) & now.alive
    if now.alive == {1, 2, 3}:
        assert all(now.leader(number) is not None for number in range(PARTITIONS))


def test_with_a_replica_left_no_partition_is_offline() -> None:
    for broker in (1, 2, 3):
        now = model.kill(model.cluster(3, PARTITIONS, 2), broker)
        assert all(now.leader(number) not in (None, broker) for number in range(PARTITIONS))


def test_a_replica_that_missed_messages_does_not_lead() -> None:
    now = model.cluster(2, 1, 2)
    now = model.send(model.kill(now, 1), "ada")  # only broker 2 has it
    now = model.restart(model.kill(now, 2), 1)
    assert now.leader(0) is None
    now = model.restart(now, 2)
    assert now.leader(0) == 1
    assert [message.key for message in now.partitions[0].messages] == ["ada"]


@given(lives())
def test_each_partition_belongs_to_exactly_one_member(life: list[Cluster]) -> None:
    for now in life:
        owned = sorted(number for _, mine in now.owners for number in mine)
        assert owned == (list(range(PARTITIONS)) if now.members else [])
        shares = [len(mine) for _, mine in now.owners]
        assert max(shares, default=0) - min(shares, default=0) <= 1
        assert len(now.idle) == max(0, len(now.members) - PARTITIONS)


@given(lives())
def test_a_key_stays_in_one_partition_and_in_order(life: list[Cluster]) -> None:
    now = life[-1]
    for key in KEYS:
        places = {
            n for n, each in enumerate(now.partitions) if key in {m.key for m in each.messages}
        }
        assert places <= {now.partition_of(key)}
        numbers = [m.number for each in now.partitions for m in each.messages if m.key == key]
        assert numbers == sorted(set(numbers))
    stored = sum(len(each.messages) for each in now.partitions)
    assert stored + now.refused == sum(count for _, count in now.sent)


@given(lives())
def test_only_a_member_that_joins_or_leaves_moves_a_partition(life: list[Cluster]) -> None:
    for before, after in pairwise(life):
        if before.members == after.members:
            assert before.owners == after.owners
            continue
        had = {number: member for member, mine in before.owners for number in mine}
        has = {number: member for member, mine in after.owners for number in mine}
        assert after.moved == {number for number in had if had[number] != has.get(number)}
        if after.assignor == "sticky" and len(after.members) < len(before.members):
            (gone,) = set(before.members) - set(after.members)
            assert after.moved == set(dict(before.owners)[gone])


@pytest.mark.parametrize("consumers", range(1, 9))
def test_the_page_counts_what_its_panels_show(consumers: int) -> None:
    for step in (0, 10, STEPS):
        frame = simulate("partitions", step=step, consumers=consumers, rate=3)
        flow, lanes = frame.panels[:2]
        assert isinstance(flow, Flow)
        assert isinstance(lanes, Lanes)
        lines = [box.lines[0] for box in flow.boxes]
        assert lines.count("idle") == frame.number("idle") == max(0, consumers - PARTITIONS)
        assert sum(line.startswith("reads ") for line in lines) == min(consumers, PARTITIONS)
        stored = [lane.first + len(lane.cells) for lane in lanes.lanes]
        assert sum(stored) == frame.number("messages") == 3 * step
        read = [lane.pointers[0].at for lane in lanes.lanes]
        assert sum(stored) - sum(read) == frame.number("lag")


def read_in(frame_step: int, **given: object) -> Iterator[tuple[str, str]]:
    flow = simulate("partitions", step=frame_step, **given).panels[0]
    assert isinstance(flow, Flow)
    yield from ((a.start, a.end) for a in flow.arrows if a.start.startswith("p"))


@pytest.mark.parametrize(("assignor", "moved"), [("sticky", 2), ("range", 5)])
def test_moved_partitions_are_those_with_another_consumer(assignor: str, moved: int) -> None:
    given = {"consumers": 4, "assignor": assignor, "do": "20:remove"}
    before, after = dict(read_in(20, **given)), dict(read_in(21, **given))
    changed = [partition for partition in before if before[partition] != after[partition]]
    frame = simulate("partitions", step=21, **given)
    assert len(changed) == moved == frame.number("moved")
    flow = frame.panels[0]
    assert isinstance(flow, Flow)
    assert [arrow.start for arrow in flow.arrows if arrow.label == "moved"] == changed


def test_messages_are_refused_only_where_no_replica_is_left() -> None:
    for replicas, refused in ((1, True), (2, False), (3, False)):
        frame = simulate("partitions", step=STEPS, replicas=replicas, do="10:kill")
        assert bool(frame.number("refused")) == refused
    back = simulate("partitions", step=STEPS, replicas=1, do="10:kill,20:restart")
    assert back.number("offline") == 0


@pytest.mark.parametrize("do", ["", "5:add,9:remove,12:remove,15:add,16:kill"])
def test_each_consumer_reads_one_message_per_step_and_none_twice(do: str) -> None:
    life = [moment.cluster for moment in history(SIMULATION.setup({"do": do}))]
    for before, after in pairwise(life):
        for _, mine in after.owners:
            waiting = sum(
                len(after.partitions[n].messages) - before.partitions[n].position for n in mine
            )
            read = [after.partitions[n].position - before.partitions[n].position for n in mine]
            assert min(read) >= 0
            assert sum(read) == min(1, waiting)
