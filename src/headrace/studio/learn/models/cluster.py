"""A small model of a cluster: brokers, replicated partitions, and one consumer group.

It is a value. Each function returns the cluster after something has happened. A partition's leader
is its first replica that is alive and in sync. A broker that dies leaves the in-sync replicas,
unless it is the last of them: then nobody else has everything, and the partition waits for it.

Keys go to partitions by headrace's own partitioner, and partitions to members by its own assignors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headrace.log.assignment import ASSIGNORS
from headrace.log.partitioner import partition_of

TOPIC = "orders"


@dataclass(frozen=True)
class Message:
    """A message of a key: the `number`th that its producer has sent with it, from 1."""

    key: str
    number: int


@dataclass(frozen=True)
class Partition:
    """A partition: its replicas in order of preference, those in sync, and its messages."""

    replicas: tuple[int, ...]
    in_sync: frozenset[int]
    messages: tuple[Message, ...] = ()
    position: int = 0
    """The group's offset: the messages before it are read."""


@dataclass(frozen=True)
class Cluster:
    """Brokers by number, partitions, and the members of a consumer group."""

    brokers: tuple[int, ...]
    alive: frozenset[int]
    partitions: tuple[Partition, ...]
    assignor: str
    owners: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Each member of the group with its partitions."""
    generation: int = 0
    """Rebalances so far."""
    moved: frozenset[int] = frozenset()
    """Partitions that the last rebalance took from their owner."""
    sent: tuple[tuple[str, int], ...] = ()
    """Messages sent so far by key, refused ones too."""
    refused: int = 0

    @property
    def members(self) -> tuple[str, ...]:
        return tuple(member for member, _ in self.owners)

    @property
    def idle(self) -> tuple[str, ...]:
        """Members without a partition."""
        return tuple(member for member, owned in self.owners if not owned)

    def leader(self, partition: int) -> int | None:
        """The broker that reads and writes a partition; None if it is offline."""
        found = self.partitions[partition]
        able = (broker for broker in found.replicas if broker in found.in_sync & self.alive)
        return next(able, None)

    def owner(self, partition: int) -> str | None:
        """The member that reads a partition; None if the group has no members."""
        found = (member for member, owned in self.owners if partition in owned)
        return next(found, None)

    def partition_of(self, key: str) -> int:
        return partition_of(key.encode(), len(self.partitions))


def cluster(brokers: int, partitions: int, replicas: int, assignor: str = "sticky") -> Cluster:
    """A cluster with all brokers alive, its leaders spread evenly, and a group without members."""
    numbers = tuple(range(1, brokers + 1))
    placed = [
        tuple(numbers[(partition + more) % brokers] for more in range(replicas))
        for partition in range(partitions)
    ]
    return Cluster(
        numbers,
        frozenset(numbers),
        tuple(Partition(chosen, frozenset(chosen)) for chosen in placed),
        assignor,
    )


# Brokers


def kill(before: Cluster, broker: int) -> Cluster:
    """The cluster without a broker. Partitions that it led go to another in-sync replica."""
    after = tuple(
        replace(each, in_sync=each.in_sync - {broker}) if each.in_sync - {broker} else each
        for each in before.partitions
    )
    return replace(before, alive=before.alive - {broker}, partitions=after)


def restart(before: Cluster, broker: int) -> Cluster:
    """The cluster with a broker again. It catches up wherever a partition has a leader."""
    back = replace(before, alive=before.alive | {broker})
    # A leader that has just come back lets the other replicas of its partition catch up too.
    after = tuple(
        each
        if back.leader(number) is None
        else replace(each, in_sync=each.in_sync | (frozenset(each.replicas) & back.alive))
        for number, each in enumerate(back.partitions)
    )
    return replace(back, partitions=after)


# Messages


def send(before: Cluster, key: str) -> Cluster:
    """The cluster after a message with a key. A partition without a leader refuses it."""
    sent = dict(before.sent)
    sent[key] = sent.get(key, 0) + 1
    after = replace(before, sent=tuple(sent.items()))
    number = before.partition_of(key)
    if before.leader(number) is None:
        return replace(after, refused=before.refused + 1)
    messages = (*before.partitions[number].messages, Message(key, sent[key]))
    return _with(after, number, replace(before.partitions[number], messages=messages))


def poll(before: Cluster, records: int) -> Cluster:
    """The cluster after each member has read so many messages of its partitions.

    A member takes them one by one from the partition in which most are waiting.
    """
    after = before
    for _, owned in before.owners:
        for _ in range(records):
            waiting = {
                number: len(after.partitions[number].messages) - after.partitions[number].position
                for number in owned
                if after.leader(number) is not None
            }
            number = max(waiting, key=lambda each: (waiting[each], -each), default=None)
            if number is None or not waiting[number]:
                break
            read = after.partitions[number]
            after = _with(after, number, replace(read, position=read.position + 1))
    return after


def _with(before: Cluster, number: int, partition: Partition) -> Cluster:
    changed = (*before.partitions[:number], partition, *before.partitions[number + 1 :])
    return replace(before, partitions=changed)


# The group


def join(before: Cluster, *members: str) -> Cluster:
    """The cluster after members have joined the group, all at once."""
    return _rebalanced(before, {**dict(before.owners), **dict.fromkeys(members, ())})


def leave(before: Cluster, member: str) -> Cluster:
    """The cluster after a member has left the group."""
    rest = {name: owned for name, owned in before.owners if name != member}
    return _rebalanced(before, rest)


def _rebalanced(before: Cluster, members: Mapping[str, tuple[int, ...]]) -> Cluster:
    shares = ASSIGNORS[before.assignor](
        dict.fromkeys(members, (TOPIC,)),
        {TOPIC: len(before.partitions)},
        {member: [(TOPIC, number) for number in owned] for member, owned in members.items()},
    )
    owners = tuple(
        (member, tuple(number for _, number in shares[member])) for member in sorted(shares)
    )
    after = replace(before, owners=owners, generation=before.generation + 1)
    moved = frozenset(
        number
        for number in range(len(before.partitions))
        if before.owner(number) not in (None, after.owner(number))
    )
    return replace(after, moved=moved)
