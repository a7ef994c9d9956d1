"""The folder of a cluster: what it is made of, and where each node keeps its things.

cluster.json            the cluster's id, its nodes and their ports
up.lock                 held while nodes are started or stopped
node-1/
  server.properties     written anew at each start
  data/                 topics, and what the nodes have agreed on
  broker.log            what Kafka says
  console.log           what Java says
  process.json          the process, while there is one
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path

from headrace.errors import InvalidSetting, ServerError
from headrace.files import write_note
from headrace.servers.java.process import Process


@dataclass(frozen=True)
class Node:
    """One process of the cluster, and where it listens."""

    id: int
    port: int
    controller_port: int


@dataclass(frozen=True)
class Layout:
    """A cluster as its folder says it is."""

    cluster_id: str
    nodes: list[Node]
    settings: dict[str, str] = field(default_factory=dict)
    """Settings of Kafka that the user asked for."""


@dataclass(frozen=True)
class Folder:
    """Paths in the folder, and what is kept in the small files."""

    path: Path

    def node(self, node: Node) -> Path:
        return self.path / f"node-{node.id}"

    def data(self, node: Node) -> Path:
        return self.node(node) / "data"

    def log(self, node: Node) -> Path:
        return self.node(node) / "broker.log"

    def console(self, node: Node) -> Path:
        return self.node(node) / "console.log"

    def properties(self, node: Node) -> Path:
        return self.node(node) / "server.properties"

    def layout(self) -> Layout | None:
        """What the cluster is made of, or None if there is no cluster here yet."""
        try:
            raw = json.loads((self.path / "cluster.json").read_text())
            nodes = [Node(**node) for node in raw["nodes"]]
            return Layout(raw["cluster_id"], nodes, raw["settings"])
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError) as error:
            raise ServerError(
                f"{self.path / 'cluster.json'} cannot be understood: {error}",
                hint="Use another folder, or remove this one if its data is not needed",
            ) from None

    def write_layout(self, layout: Layout) -> None:
        write_note(self.path / "cluster.json", json.dumps(dataclasses.asdict(layout), indent=2))

    def claim(self) -> None:
        """Make the folder, or see that it is one of ours: what is in others is not for us."""
        if "," in str(self.path):
            raise InvalidSetting(
                f"{self.path} cannot be the folder of a cluster: to Kafka, a comma ends its name",
                hint="Choose one without a comma with --data",
            )
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            names = {entry.name for entry in self.path.iterdir()} - {"up.lock"}
        except OSError as error:
            raise ServerError(
                f"{self.path} cannot be the folder of a cluster: {error.strerror}",
                hint="Choose another one with --data",
            ) from None
        if names and self.layout() is None:
            raise InvalidSetting(
                f"{self.path} holds something else than a Kafka cluster",
                hint="Choose an empty or a new folder with --data",
            )

    def forget(self) -> None:
        """Take the note of what the cluster is made of away."""
        (self.path / "cluster.json").unlink(missing_ok=True)

    def process(self, node: Node) -> Process | None:
        """The process of a node, if it has one that still runs."""
        try:
            raw = json.loads((self.node(node) / "process.json").read_text())
            process = Process(raw["pid"], raw["started"])
        except (FileNotFoundError, ValueError, KeyError):
            return None
        return process if process.alive() else None

    def write_process(self, node: Node, process: Process) -> None:
        write_note(self.node(node) / "process.json", json.dumps(dataclasses.asdict(process)))
