"""A cluster as it is now, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headrace.servers.java.ports import HOST


@dataclass(frozen=True)
class PartitionState:
    """Where a partition is kept. A leader of -1 is none."""

    topic: str
    partition: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True)
class NodeState:
    """One node. `alive` is about its process, `joined` about whether the others know it."""

    id: int
    port: int
    pid: int | None
    alive: bool
    joined: bool
    leads: int
    """How many partitions it is the leader of."""
    in_sync: int
    """How many partitions it has all records of."""


@dataclass(frozen=True)
class ClusterState:
    """All nodes, and what is amiss with their partitions."""

    folder: Path
    nodes: tuple[NodeState, ...]
    partitions: tuple[PartitionState, ...]

    @property
    def up(self) -> bool:
        """Whether every node is there and answers."""
        return bool(self.nodes) and all(node.alive and node.joined for node in self.nodes)

    @property
    def url(self) -> str:
        """What to give as --log: the addresses of all nodes, so that any of them may be away."""
        nodes = sorted(self.nodes, key=lambda node: node.id)
        return f"kafka://{','.join(f'{HOST}:{node.port}' for node in nodes)}" if nodes else ""

    @property
    def servers(self) -> str:
        """What Kafka's clients call bootstrap.servers."""
        ordered = sorted(self.nodes, key=lambda node: (not node.alive, node.id))
        return ",".join(f"{HOST}:{node.port}" for node in ordered)

    @property
    def offline(self) -> list[PartitionState]:
        """Partitions that have no leader, so that nobody can use them."""
        return [one for one in self.partitions if one.leader < 0]

    @property
    def under_replicated(self) -> list[PartitionState]:
        """Partitions of which some replica lags behind or is gone."""
        return [one for one in self.partitions if len(one.in_sync) < len(one.replicas)]
