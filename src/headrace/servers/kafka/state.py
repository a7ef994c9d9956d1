"""The state of a cluster, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headrace.servers.java.ports import HOST


@dataclass(frozen=True)
class PartitionState:
    """The leader and replicas of a partition. A leader of -1 means none."""

    topic: str
    partition: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True)
class NodeState:
    """The state of a node: `alive` if its process runs, `joined` if the cluster knows it."""

    id: int
    port: int
    pid: int | None
    alive: bool
    joined: bool
    leads: int
    """The number of partitions that it leads."""
    in_sync: int
    """The number of partitions of which it has an in-sync replica."""


@dataclass(frozen=True)
class ClusterState:
    """All nodes and partitions of a cluster."""

    folder: Path
    nodes: tuple[NodeState, ...]
    partitions: tuple[PartitionState, ...]

    @property
    def up(self) -> bool:
        """True if every node runs and has joined."""
        return bool(self.nodes) and all(node.alive and node.joined for node in self.nodes)

    @property
    def url(self) -> str:
        """The URL for --log, with all nodes, so that it works while any of them is down."""
        nodes = sorted(self.nodes, key=lambda node: node.id)
        return f"kafka://{','.join(f'{HOST}:{node.port}' for node in nodes)}" if nodes else ""

    @property
    def servers(self) -> str:
        """The addresses for `bootstrap.servers`, live nodes first."""
        ordered = sorted(self.nodes, key=lambda node: (not node.alive, node.id))
        return ",".join(f"{HOST}:{node.port}" for node in ordered)

    @property
    def offline(self) -> list[PartitionState]:
        """Partitions without a leader, which cannot be read or written."""
        return [one for one in self.partitions if one.leader < 0]

    @property
    def under_replicated(self) -> list[PartitionState]:
        """Partitions with a replica that lags behind or is gone."""
        return [one for one in self.partitions if len(one.in_sync) < len(one.replicas)]
