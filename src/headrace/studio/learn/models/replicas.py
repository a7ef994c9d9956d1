"""A model of one partition on three brokers: a leader, followers, and what an ack means.

A producer sends to the leader. Followers copy its log. A follower that has been behind for too long
leaves the in-sync replicas. The high watermark is the offset up to which all in-sync replicas have
the log. With `acks=1` a record is acknowledged when the leader has it, with `acks=all` when the
high watermark has passed it and enough replicas are in sync.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

BROKERS = (1, 2, 3)
PATIENCE = 4
"""Ticks that a follower may be behind before it leaves the in-sync replicas."""


@dataclass(frozen=True)
class Cluster:
    """One partition. Records are numbers, in the order in which they were sent."""

    acks_all: bool
    min_in_sync: int = 1
    unclean: bool = False
    """True if a broker that is not in sync may become the leader."""
    logs: tuple[tuple[int, ...], ...] = ((), (), ())
    alive: frozenset[int] = frozenset(BROKERS)
    in_sync: frozenset[int] = frozenset(BROKERS)
    leader: int | None = BROKERS[0]
    high: int = 0
    """The high watermark."""
    behind: tuple[int, ...] = (0, 0, 0)
    """Ticks since each follower last had the whole log."""
    sent: int = 0
    acked: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()
    """Records that the producer has no answer for."""
    refused: tuple[int, ...] = ()
    """Records for which the producer got an error. It may send them again."""

    def log(self, broker: int) -> tuple[int, ...]:
        return self.logs[broker - 1]

    @property
    def lost(self) -> tuple[int, ...]:
        """Acknowledged records that no reader of the leader will find. None without a leader."""
        if self.leader is None:
            return ()
        there = set(self.log(self.leader))
        return tuple(record for record in self.acked if record not in there)


def send(cluster: Cluster) -> Cluster:
    """Send the next record to the leader."""
    record = cluster.sent
    cluster = replace(cluster, sent=record + 1)
    leader = cluster.leader
    short = cluster.acks_all and len(cluster.in_sync) < cluster.min_in_sync
    if leader is None or short:
        return replace(cluster, refused=(*cluster.refused, record))
    cluster = _with_log(cluster, leader, (*cluster.log(leader), record))
    if cluster.acks_all:
        return _advanced(replace(cluster, waiting=(*cluster.waiting, record)))
    return _advanced(replace(cluster, acked=(*cluster.acked, record)))


def replicate(cluster: Cluster, fetches: Mapping[int, int]) -> Cluster:
    """Let time pass by a tick: each follower copies at most so many records from the leader."""
    leader = cluster.leader
    if leader is None:
        return cluster
    whole = cluster.log(leader)
    behind = list(cluster.behind)
    in_sync = set(cluster.in_sync)
    for broker in BROKERS:
        if broker == leader or broker not in cluster.alive:
            continue
        mine = _shared(cluster.log(broker), whole)
        mine = whole[: len(mine) + fetches.get(broker, 0)]
        cluster = _with_log(cluster, broker, mine)
        behind[broker - 1] = 0 if mine == whole else behind[broker - 1] + 1
        if mine == whole:
            in_sync.add(broker)
        elif behind[broker - 1] > PATIENCE:
            in_sync.discard(broker)
    return _advanced(replace(cluster, behind=tuple(behind), in_sync=frozenset(in_sync)))


def kill(cluster: Cluster, broker: int) -> Cluster:
    """Kill a broker. If it led, an in-sync replica becomes the leader, if there is one."""
    if broker not in cluster.alive:
        return cluster
    cluster = replace(cluster, alive=cluster.alive - {broker})
    if broker != cluster.leader:
        return _advanced(replace(cluster, in_sync=cluster.in_sync - {broker}))
    # The producer gets an error for what it waits for: the records may be there or not.
    cluster = replace(cluster, waiting=(), refused=(*cluster.refused, *cluster.waiting))
    return _elected(replace(cluster, leader=None))


def restart(cluster: Cluster, broker: int) -> Cluster:
    """Start a broker again. It has its old log, and follows the leader, if there is one."""
    if broker in cluster.alive:
        return cluster
    behind = tuple(
        0 if each == broker else n for each, n in zip(BROKERS, cluster.behind, strict=True)
    )
    cluster = replace(cluster, alive=cluster.alive | {broker}, behind=behind)
    return _elected(cluster) if cluster.leader is None else cluster


def _elected(cluster: Cluster) -> Cluster:
    """A leader among the living in-sync replicas; others only if the election may be unclean."""
    able = sorted(cluster.in_sync & cluster.alive)
    if not able and cluster.unclean:
        able = sorted(cluster.alive, key=lambda broker: (-len(cluster.log(broker)), broker))
    if not able:
        # The last in-sync replicas stay so: only they may lead when they are back.
        return cluster
    leader = able[0]
    living = cluster.in_sync & cluster.alive | {leader}
    # Followers drop what the new leader does not have.
    for broker in living - {leader}:
        cluster = _with_log(cluster, broker, _shared(cluster.log(broker), cluster.log(leader)))
    return _advanced(replace(cluster, leader=leader, in_sync=frozenset(living)))


def _advanced(cluster: Cluster) -> Cluster:
    """Move the high watermark, and acknowledge what it has passed."""
    if cluster.leader is None:
        return cluster
    whole = cluster.log(cluster.leader)
    high = min(len(_shared(cluster.log(broker), whole)) for broker in cluster.in_sync)
    there = set(whole[:high])
    passed = tuple(record for record in cluster.waiting if record in there)
    cluster = replace(
        cluster,
        high=high,
        waiting=tuple(record for record in cluster.waiting if record not in there),
    )
    if len(cluster.in_sync) < cluster.min_in_sync:
        # They are in the log, and too few have them to promise it.
        return replace(cluster, refused=(*cluster.refused, *passed))
    return replace(cluster, acked=(*cluster.acked, *passed))


def _shared(mine: Sequence[int], whole: tuple[int, ...]) -> tuple[int, ...]:
    """The longest common beginning of two logs."""
    length = 0
    for ours, theirs in zip(mine, whole, strict=False):
        if ours != theirs:
            break
        length += 1
    return whole[:length]


def _with_log(cluster: Cluster, broker: int, log: tuple[int, ...]) -> Cluster:
    logs = tuple(
        log if each == broker else old for each, old in zip(BROKERS, cluster.logs, strict=True)
    )
    return replace(cluster, logs=logs)
