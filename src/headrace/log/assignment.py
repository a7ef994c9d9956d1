"""Assignors: they assign the partitions of topics to the members of a consumer group.

Every partition goes to exactly one member that subscribes to its topic. Every member is in the
result, with an empty list if no partition is left for it. The result does not depend on the order
of the input, so any process may compute it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

Partition = tuple[str, int]
"""A topic and the number of one of its partitions."""

Subscriptions = Mapping[str, Collection[str]]
"""Member ids, each with the topics it subscribes to."""

Holdings = Mapping[str, Collection[Partition]]
"""Member ids, each with the partitions it has."""

Assignor = Callable[[Subscriptions, Mapping[str, int], Holdings], dict[str, list[Partition]]]

_NOTHING: Holdings = MappingProxyType({})


def assign_range(
    members: Subscriptions, partitions: Mapping[str, int], previous: Holdings = _NOTHING
) -> dict[str, list[Partition]]:
    """Assign ranges of each topic, as Kafka's RangeAssignor does; the first are one longer.

    Topics with equal partition counts are cut alike, so equal keys of both go to the same
    member. Previous assignments are ignored.
    """
    result: dict[str, list[Partition]] = {member: [] for member in sorted(members)}
    for topic, readers in _readers(members, partitions).items():
        size, longer = divmod(partitions[topic], len(readers))
        start = 0
        for place, member in enumerate(readers):
            end = start + size + (place < longer)
            result[member] += [(topic, number) for number in range(start, end)]
            start = end
    return result


def assign_sticky(
    members: Subscriptions, partitions: Mapping[str, int], previous: Holdings
) -> dict[str, list[Partition]]:
    """Assign as evenly as the subscriptions allow, and then move as few partitions as possible.

    If all members subscribe to the same topics, their counts differ by at most one. If two members
    claim to have had the same partition, the first by name wins.
    """
    readers = _readers(members, partitions)
    owners: dict[Partition, str] = {}
    for member in sorted(members):
        for topic, number in previous.get(member, ()):
            if member in readers.get(topic, ()) and 0 <= number < partitions[topic]:
                owners.setdefault((topic, number), member)
    held: dict[str, list[Partition]] = {member: [] for member in sorted(members)}
    for partition in sorted(owners):
        held[owners[partition]].append(partition)
    # Topics with the fewest readers first: the others leave more choice.
    unowned = [
        (topic, number)
        for topic in sorted(readers, key=lambda topic: (len(readers[topic]), topic))
        for number in range(partitions[topic])
        if (topic, number) not in owners
    ]
    groups = {tuple(of_topic) for of_topic in readers.values()}
    if len(groups) > 1:
        _level_out(unowned, held, readers, owners)
    elif groups:
        _share_out(unowned, held, groups.pop())
    return {member: sorted(held[member]) for member in held}


ASSIGNORS: Mapping[str, Assignor] = MappingProxyType(
    {"range": assign_range, "sticky": assign_sticky}
)
"""The assignors by name."""


def _readers(members: Subscriptions, partitions: Mapping[str, int]) -> dict[str, list[str]]:
    """Existing topics with their subscribers, both sorted by name."""
    readers: dict[str, list[str]] = {}
    for topic in sorted({topic for topics in members.values() for topic in topics}):
        if partitions.get(topic):
            readers[topic] = [member for member in sorted(members) if topic in members[member]]
    return readers


def _share_out(
    unowned: list[Partition], held: dict[str, list[Partition]], readers: tuple[str, ...]
) -> None:
    """Even out partitions among members with the same subscriptions."""
    size, larger = divmod(len(unowned) + sum(len(held[m]) for m in readers), len(readers))
    # The larger shares go to members that hold most, so that each gives up one fewer.
    by_holding = sorted(readers, key=lambda member: (-len(held[member]), member))
    room = {member: size + (place < larger) for place, member in enumerate(by_holding)}
    for member in readers:
        unowned += held[member][room[member] :]
        del held[member][room[member] :]
    queue = [(len(held[member]), member) for member in readers if len(held[member]) < room[member]]
    heapq.heapify(queue)
    for partition in sorted(unowned):
        count, member = heapq.heappop(queue)
        held[member].append(partition)
        if count + 1 < room[member]:
            heapq.heappush(queue, (count + 1, member))


def _level_out(
    unowned: list[Partition],
    held: dict[str, list[Partition]],
    readers: Mapping[str, list[str]],
    owners: Mapping[Partition, str],
) -> None:
    """Even out partitions among members with different subscriptions.

    This is a minimum-cost flow: evenness first, moves second. An assignment is optimal exactly when
    no ring of hand-overs makes it cheaper, so this finds such rings and carries them out.
    """
    # A first guess saves most of the search: no member keeps more than an equal share.
    share = -(-(len(unowned) + len(owners)) // len(held))
    for holding in held.values():
        unowned += holding[share:]
        del holding[share:]
    for topic, number in unowned:
        member = min(readers[topic], key=lambda member: (len(held[member]), member))
        held[member].append((topic, number))
    offers = {member: _offers(member, held[member], readers, owners) for member in held}
    while ring := _cheaper_ring(offers, held):
        for giver, taker in ring:
            partition = offers[giver][taker].partition
            held[giver].remove(partition)
            held[taker].append(partition)
        for member in {member for hand_over in ring for member in hand_over}:
            offers[member] = _offers(member, held[member], readers, owners)


class _Offer(NamedTuple):
    cost: int
    partition: Partition


def _offers(
    giver: str,
    holding: list[Partition],
    readers: Mapping[str, list[str]],
    owners: Mapping[Partition, str],
) -> dict[str, _Offer]:
    """The cheapest hand-over from the giver to each member that could take one.

    Moving a partition away from its owner costs 1, moving it back gains 1, others are free.
    """
    kinds: dict[tuple[str, str | None], Partition] = {}
    for partition in sorted(holding):
        kinds.setdefault((partition[0], owners.get(partition)), partition)
    best: dict[str, _Offer] = {}
    for (topic, owner), partition in kinds.items():
        for taker in readers[topic]:
            cost = (giver == owner) - (taker == owner)
            if taker != giver and (taker not in best or cost < best[taker].cost):
                best[taker] = _Offer(cost, partition)
    return best


def _cheaper_ring(
    offers: Mapping[str, Mapping[str, _Offer]], held: Mapping[str, list[Partition]]
) -> list[tuple[str, str]]:
    """A ring of hand-overs that makes the assignment cheaper; empty if there is none.

    This is Bellman and Ford's search for a negative cycle. A ring may pass through the pool, None,
    which stands for the change of load at the start and the end of a chain of hand-overs.
    """
    weight = len(held) + 1  # one step of evenness outweighs a move on every edge of a ring
    costs: dict[str | None, dict[str | None, int]] = {None: {}}
    for member in held:
        costs[None][member] = -weight * len(held[member])
        costs[member] = {taker: offer.cost for taker, offer in offers[member].items()}
        costs[member][None] = weight * (len(held[member]) + 1)
    distance = dict.fromkeys(costs, 0)
    before: dict[str | None, str | None] = {}
    changed = True
    while changed:
        changed = False
        for start, ends in costs.items():
            for end, cost in ends.items():
                if distance[start] + cost < distance[end]:
                    distance[end] = distance[start] + cost
                    before[end] = start
                    changed = True
        if ring := _ring(before):
            return [(a, b) for a, b in pairwise(ring) if a is not None and b is not None]
    return []


def _ring(before: Mapping[str | None, str | None]) -> list[str | None]:
    """A cycle in the graph given by each node's predecessor; empty if there is none."""
    done: set[str | None] = set()
    for node in before:
        way: list[str | None] = []
        while node in before and node not in done:
            done.add(node)
            way.append(node)
            node = before[node]
        if node in way:
            ring = way[way.index(node) :]
            return [node, *reversed(ring)]
    return []
