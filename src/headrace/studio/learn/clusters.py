"""The life of the model cluster: its traffic step by step, and what is done to it."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache

from headrace.studio.learn.models import cluster as model
from headrace.studio.learn.models.cluster import Cluster
from headrace.studio.learn.simulation import Setup

BROKERS, PARTITIONS, MEMBERS = 3, 6, 8
STEPS = 40
KEYS = ("ada", "ben", "cal")
"""The keys with a button of their own. Each is in another partition."""
OTHERS = (
    "dan", "eve", "fred", "gia", "hal", "ida", "joe", "kai", "leo", "mia", "ned", "oda", "pam",
    "rob", "sue", "tom", "val",
)  # fmt: skip


@dataclass(frozen=True)
class Moment:
    """The cluster after a step, and what was done in it, in words."""

    cluster: Cluster
    said: tuple[str, ...] = ()


@lru_cache(maxsize=64)
def history(setup: Setup) -> tuple[Moment, ...]:
    """The cluster after each step, from the beginning."""
    rng = random.Random(setup.seed)
    names = (*KEYS, *OTHERS)[: setup.whole("keys")]
    now = model.cluster(BROKERS, PARTITIONS, setup.whole("replicas"), setup.text("assignor"))
    now = model.join(now, *map(_member, range(1, setup.whole("consumers") + 1)))
    moments = [Moment(now)]
    for step in range(1, STEPS + 1):
        said = []
        for action in setup.actions_before(step, STEPS):
            now, words = done(now, action)
            said.append(words)
        for _ in range(setup.whole("rate")):
            now = model.send(now, rng.choice(names))
        now = model.poll(now, 1)
        moments.append(Moment(now, tuple(said)))
    return tuple(moments)


def _member(number: int) -> str:
    return f"c{number}"


def done(now: Cluster, action: str) -> tuple[Cluster, str]:
    """The cluster after an action, and what happened in words."""
    dead = sorted(set(now.brokers) - now.alive)
    match action:
        case "add":
            free = [m for m in map(_member, range(1, MEMBERS + 1)) if m not in now.members]
            if not free:
                return now, f"The group has {MEMBERS} consumers, and this page shows no more."
            return _rebalance(now, model.join(now, free[0]), f"{free[0]} joined")
        case "remove":
            if not now.members:
                return now, "The group has no consumers."
            gone = now.members[0]
            return _rebalance(now, model.leave(now, gone), f"{gone} left")
        case "kill":
            if not now.alive:
                return now, "Every broker is dead."
            victim = min(now.alive)
            return _failover(now, model.kill(now, victim), f"Broker {victim} died")
        case "restart":
            if not dead:
                return now, "Every broker is alive."
            return _failover(now, model.restart(now, dead[0]), f"Broker {dead[0]} is back")
        case _:
            return _sent(now, action.removeprefix("send-"))


def _rebalance(before: Cluster, after: Cluster, what: str) -> tuple[Cluster, str]:
    moved = f"{len(after.moved)} of {PARTITIONS} partitions moved"
    idle = f" Idle: {', '.join(after.idle)}." if after.idle else ""
    return after, f"{what}, and the group rebalanced: {moved}.{idle}"


def _failover(before: Cluster, after: Cluster, what: str) -> tuple[Cluster, str]:
    changed = [n for n in range(PARTITIONS) if before.leader(n) != after.leader(n)]
    dark = offline(after)
    end = f" Partitions without a leader: {listed(dark)}." if dark else ""
    return after, f"{what}: {len(changed)} leaders changed. Consumers keep their partitions.{end}"


def _sent(before: Cluster, key: str) -> tuple[Cluster, str]:
    after, number = model.send(before, key), before.partition_of(key)
    if after.refused > before.refused:
        return after, f"A message of {key} was refused: partition {number} has no leader."
    return after, f"A message of {key} went to partition {number}, as each of {key}'s does."


def offline(now: Cluster) -> list[int]:
    return [number for number in range(PARTITIONS) if now.leader(number) is None]


def listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers)) or "none"
