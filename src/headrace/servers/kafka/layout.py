"""The layout of a cluster's folder.

cluster.json            the cluster's id, its nodes and their ports
up.lock                 held while nodes are started or stopped
node-1/
  server.properties     rewritten at each start
  data/                 topics and cluster metadata
  broker.log            Kafka's log
  console.log           Java's output
  process.json          the node's process id
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
    """One process of the cluster and its ports."""

    id: int
    port: int
    controller_port: int


@dataclass(frozen=True)
class Layout:
    """The nodes and settings of a cluster, as stored in its folder."""

    cluster_id: str
    nodes: list[Node]
    settings: dict[str, str] = field(default_factory=dict)
    """Kafka settings that the user gave."""


@dataclass(frozen=True)
class Folder:
    """The paths in a cluster's folder, and the contents of its small files."""

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
        """The stored layout, or None if there is no cluster here yet."""
        try:
            raw = json.loads((self.path / "cluster.json").read_text())
            nodes = [Node(**node) for node in raw["nodes"]]
            return Layout(raw["cluster_id"], nodes, raw["settings"])
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError) as error:
            raise ServerError(
                f"{self.path / 'cluster.json'} cannot be parsed: {error}",
                hint="Use another folder, or delete this one if its data is not needed",
            ) from None

    def write_layout(self, layout: Layout) -> None:
        write_note(self.path / "cluster.json", json.dumps(dataclasses.asdict(layout), indent=2))

    def claim(self) -> None:
        """Create the folder, or check that it holds a cluster: no other folder may be touched."""
        if "," in str(self.path):
            raise InvalidSetting(
                f"{self.path} cannot be a cluster folder: Kafka does not allow a comma in its path",
                hint="Choose a folder without a comma with --data",
            )
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            names = {entry.name for entry in self.path.iterdir()} - {"up.lock"}
        except OSError as error:
            raise ServerError(
                f"{self.path} cannot be a cluster folder: {error.strerror}",
                hint="Choose another folder with --data",
            ) from None
        if names and self.layout() is None:
            raise InvalidSetting(
                f"{self.path} holds something other than a Kafka cluster",
                hint="Choose an empty or a new folder with --data",
            )

    def forget(self) -> None:
        """Delete the stored layout."""
        (self.path / "cluster.json").unlink(missing_ok=True)

    def process(self, node: Node) -> Process | None:
        """The process of a node, if it is running."""
        try:
            raw = json.loads((self.node(node) / "process.json").read_text())
            process = Process(raw["pid"], raw["started"])
        except (FileNotFoundError, ValueError, KeyError):
            return None
        return process if process.alive() else None

    def write_process(self, node: Node, process: Process) -> None:
        write_note(self.node(node) / "process.json", json.dumps(dataclasses.asdict(process)))
