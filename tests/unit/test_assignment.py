"""Partitions are assigned to exactly one member each, evenly, and stay where they are."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.log.assignment import (
    ASSIGNORS,
    Holdings,
    Partition,
    Subscriptions,
    assign_range,
    assign_sticky,
)

TOPICS = ["a", "b", "c"]
MEMBERS = ["m0", "m1", "m2", "m3", "m4", "m5"]

topic_sizes = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 9))
small_sizes = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 2))
topic_lists = st.lists(st.sampled_from([*TOPICS, "missing"]), unique=True)
member_ids = st.lists(st.sampled_from(MEMBERS), min_size=1, unique=True)
subscriptions = st.dictionaries(st.sampled_from(MEMBERS), topic_lists, min_size=1)
few_subscriptions = st.dictionaries(
    st.sampled_from(MEMBERS[:3]), st.just(TOPICS) | topic_lists, min_size=1
)


def claims(numbers: int) -> st.SearchStrategy[Holdings]:
    """Previous assignments as members report them, with departed members and conflicts."""
    partitions = st.tuples(st.sampled_from(TOPICS), st.integers(0, numbers))
    return st.dictionaries(st.sampled_from([*MEMBERS, "gone"]), st.lists(partitions, max_size=12))


holdings = claims(10)


def all_partitions(members: Subscriptions, sizes: dict[str, int]) -> list[Partition]:
    wanted = {topic for topics in members.values() for topic in topics}
    return [(t, n) for t in sorted(wanted & set(sizes)) for n in range(sizes[t])]


def owner_of(assignment: Holdings) -> dict[Partition, str]:
    return {p: member for member, partitions in assignment.items() for p in partitions}


def counts(assignment: Holdings) -> list[int]:
    return [len(partitions) for partitions in assignment.values()]


@pytest.mark.parametrize("name", ASSIGNORS)
@given(members=subscriptions, sizes=topic_sizes, previous=holdings)
def test_every_partition_has_one_owner_and_it_subscribes(
    name: str, members: Subscriptions, sizes: dict[str, int], previous: Holdings
) -> None:
    assignment = ASSIGNORS[name](members, sizes, previous)
    assert set(assignment) == set(members)
    given_out = [p for partitions in assignment.values() for p in partitions]
    assert sorted(given_out) == all_partitions(members, sizes)
    for member, partitions in assignment.items():
        assert {topic for topic, _ in partitions} <= set(members[member])


@pytest.mark.parametrize("name", ASSIGNORS)
@given(members=subscriptions, sizes=topic_sizes, previous=holdings)
def test_the_order_of_the_input_does_not_matter(
    name: str, members: Subscriptions, sizes: dict[str, int], previous: Holdings
) -> None:
    turned = ASSIGNORS[name](
        {member: list(members[member])[::-1] for member in reversed(list(members))},
        dict(reversed(sizes.items())),
        dict(reversed(list(previous.items()))),
    )
    assert ASSIGNORS[name](members, sizes, previous) == turned


def test_ranges_are_cut_as_kafkas_range_assignor_cuts_them() -> None:
    # The example in the documentation of Kafka's RangeAssignor.
    members = {"C1": ["t0", "t1"], "C0": ["t0", "t1"]}
    assert assign_range(members, {"t0": 3, "t1": 3}) == {
        "C0": [("t0", 0), ("t0", 1), ("t1", 0), ("t1", 1)],
        "C1": [("t0", 2), ("t1", 2)],
    }


def test_ranges_leave_out_members_that_do_not_subscribe() -> None:
    members = {"m0": ["a"], "m1": ["a", "b"], "m2": ["b"], "m3": []}
    assert assign_range(members, {"a": 3, "b": 1}) == {
        "m0": [("a", 0), ("a", 1)],
        "m1": [("a", 2), ("b", 0)],
        "m2": [],
        "m3": [],
    }


@given(ids=member_ids, topics=topic_lists, sizes=topic_sizes, previous=holdings)
def test_equal_subscribers_differ_by_at_most_one(
    ids: list[str], topics: list[str], sizes: dict[str, int], previous: Holdings
) -> None:
    loads = counts(assign_sticky(dict.fromkeys(ids, topics), sizes, previous))
    assert max(loads) - min(loads) <= 1


@settings(deadline=None, max_examples=400)
@given(members=few_subscriptions, sizes=small_sizes, previous=claims(2))
def test_no_other_assignment_is_more_even_or_as_even_with_fewer_moves(
    members: Subscriptions, sizes: dict[str, int], previous: Holdings
) -> None:
    everything = all_partitions(members, sizes)
    had: dict[Partition, str] = {}
    for member in sorted(members):
        for partition in previous.get(member, ()):
            if partition[0] in members[member]:
                had.setdefault(partition, member)

    def cost(owners: dict[Partition, str]) -> tuple[int, int]:
        unevenness = sum(count**2 for count in Counter(owners.values()).values())
        return unevenness, sum(had.get(p, member) != member for p, member in owners.items())

    choices = [[m for m in members if topic in members[m]] for topic, _ in everything]
    best = min(cost(dict(zip(everything, those, strict=True))) for those in product(*choices))
    assert cost(owner_of(assign_sticky(members, sizes, previous))) == best


@given(members=subscriptions, sizes=topic_sizes, previous=holdings)
def test_when_nothing_changes_nothing_moves(
    members: Subscriptions, sizes: dict[str, int], previous: Holdings
) -> None:
    settled = assign_sticky(members, sizes, previous)
    assert assign_sticky(members, sizes, settled) == settled


@given(ids=member_ids.filter(lambda ids: len(ids) > 1), sizes=topic_sizes, previous=holdings)
def test_when_a_member_leaves_only_its_partitions_move(
    ids: list[str], sizes: dict[str, int], previous: Holdings
) -> None:
    before = assign_sticky(dict.fromkeys(ids, TOPICS), sizes, previous)
    after = assign_sticky(dict.fromkeys(ids[1:], TOPICS), sizes, before)
    for member in ids[1:]:
        assert set(before[member]) <= set(after[member])


@pytest.mark.parametrize("newcomer", ["first by name", "the last"])
@given(ids=member_ids, sizes=topic_sizes, previous=holdings)
def test_when_a_member_joins_nothing_moves_between_the_others(
    newcomer: str, ids: list[str], sizes: dict[str, int], previous: Holdings
) -> None:
    before = assign_sticky(dict.fromkeys(ids, TOPICS), sizes, previous)
    after = assign_sticky(dict.fromkeys([*ids, newcomer], TOPICS), sizes, before)
    for member in ids:
        assert set(after[member]) <= set(before[member])


def test_a_topic_that_grows_leaves_the_old_partitions_in_place() -> None:
    members = {"m0": ["a"], "m1": ["a"]}
    before = assign_sticky(members, {"a": 2}, {})
    after = assign_sticky(members, {"a": 4}, before)
    assert all(set(before[member]) <= set(after[member]) for member in members)


def test_a_chain_of_hand_overs_is_found_where_no_single_one_helps() -> None:
    # m0 cannot give to m2, which has no partition, but m1 can, and m0 can give to m1.
    members = {"m0": ["a"], "m1": ["a", "b"], "m2": ["b"]}
    previous = {"m0": [("a", 0), ("a", 1)], "m1": [("b", 0)]}
    assert counts(assign_sticky(members, {"a": 2, "b": 1}, previous)) == [1, 1, 1]


def test_of_two_even_assignments_the_one_with_fewer_moves_is_taken() -> None:
    members = {"m0": ["b"], "m1": ["a", "b"], "m2": ["a"]}
    previous = {"m0": [("b", 0)], "m1": [("a", 0), ("b", 1)]}
    assert assign_sticky(members, {"a": 1, "b": 2}, previous) == {
        "m0": [("b", 0)],
        "m1": [("b", 1)],
        "m2": [("a", 0)],
    }


def test_members_beyond_the_partitions_wait_with_nothing() -> None:
    for assign in ASSIGNORS.values():
        assignment = assign({member: ["a"] for member in MEMBERS}, {"a": 2}, {})
        assert sorted(counts(assignment)) == [0, 0, 0, 0, 1, 1]
