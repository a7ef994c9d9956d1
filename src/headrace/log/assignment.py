"""Which member of a consumer group reads which partition.

Every partition of a subscribed topic goes to exactly one member that subscribes to it, and every
member is in the result, with an empty list if nothing is left for it. The same input gives the
same result whatever its order, so that any process may compute it.
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
"""Member ids, each with the topics it wants."""

Holdings = Mapping[str, Collection[Partition]]
"""Member ids, each with the partitions it has."""

Assignor = Callable[[Subscriptions, Mapping[str, int], Holdings], dict[str, list[Partition]]]

_NOTHING: Holdings = MappingProxyType({})


def assign_range(
    members: Subscriptions, partitions: Mapping[str, int], previous: Holdings = _NOTHING
) -> dict[str, list[Partition]]:
    """As Kafka's RangeAssignor: each topic cut into ranges, the first members' one longer.

    Topics with equal numbers of partitions are cut alike, so equal keys of both meet in one
    member. What members had before is not looked at.
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
    """As even as the subscriptions allow, and then with as few partitions moved as possible.

    Where all members subscribe to the same topics, their counts differ by at most one. Of two
    members that both claim to have had a partition, the first by name is believed.
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
    # Those with the fewest readers first: the rest have more choice to make up for them.
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
"""The ways to assign, by the name a group is configured with."""


def _readers(members: Subscriptions, partitions: Mapping[str, int]) -> dict[str, list[str]]:
    """Each topic that exists and is wanted, with its members; both in the order of their names."""
    readers: dict[str, list[str]] = {}
    for topic in sorted({topic for topics in members.values() for topic in topics}):
        if partitions.get(topic):
            readers[topic] = [member for member in sorted(members) if topic in members[member]]
    return readers


def _share_out(
    unowned: list[Partition], held: dict[str, list[Partition]], readers: tuple[str, ...]
) -> None:
    """Even out what the readers of the same topics hold, the surplus going to those with least."""
    size, larger = divmod(len(unowned) + sum(len(held[m]) for m in readers), len(readers))
    # The larger shares go to those who hold most: each of them then gives up one fewer.
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
    """Even out holdings where members differ in what they may hold.

    This is a minimum-cost flow: evenness first, moves second. An assignment is the best exactly
    when no ring of hand-overs makes it cheaper, so such rings are looked for and carried out.
    """
    # A first guess, which saves most of the search: nobody keeps more than an equal share.
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
    """For each member that could take something from the giver, what is cheapest to hand over.

    It costs 1 to take a partition from its owner, gains 1 to bring it back, and else is free.
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
    """Hand-overs that make the whole cheaper when all are carried out; none if nothing does.

    Bellman and Ford's search for a negative cycle. A ring may lead through the pool, None, which
    stands for the change of load where a chain of hand-overs starts and where it ends.
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
    """A closed way through the nodes, given the one before each; empty if there is none."""
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
