"""The start of nodes: the layout of the cluster, its folders, and Java."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.errors import BrokerFailed, InvalidSetting
from headrace.servers.java import archive, ports
from headrace.servers.java.home import BRIEF, java
from headrace.servers.java.process import Process, start
from headrace.servers.kafka.layout import Folder, Layout, Node
from headrace.servers.kafka.properties import properties
from headrace.servers.kafka.reasons import reason, size

_LOGGING = Path(__file__).with_name("log4j2.properties")


@dataclass(frozen=True)
class Started:
    """A node that has just started, and its log files, each with its size before the start."""

    node: Node
    process: Process
    written: list[tuple[Path, int]]


def planned(
    known: Layout | None,
    running: set[int],
    folder: Path,
    brokers: int | None,
    port: int | None,
    settings: Mapping[str, str],
) -> Layout:
    """The layout to start: the known one, changed as requested where no node runs yet."""
    if known is None:
        nodes = [Node(number + 1, 0, 0) for number in range(brokers or 1)]
        known = Layout(_new_id(), _with_ports(nodes, port or 0), dict(settings))
    elif brokers is not None and brokers != len(known.nodes):
        raise InvalidSetting(
            f"The cluster in {folder} has {len(known.nodes)} brokers and cannot have {brokers}",
            hint="Use another folder with --data, or 'headrace kafka down --remove' to start over",
        )
    elif running:
        if port and port != known.nodes[0].port:
            raise InvalidSetting(
                f"The cluster in {folder} already listens on port {known.nodes[0].port}",
                hint="Stop it first with 'headrace kafka down'",
            )
        return known
    else:
        keep = port is None or port == known.nodes[0].port
        nodes = known.nodes if keep else _with_ports(known.nodes, port or 0)
        # Only nodes talk to controllers, so a controller whose port is taken can move.
        controllers = ports.free(len(nodes))
        nodes = [replace(n, controller_port=p) for n, p in zip(nodes, controllers, strict=True)]
        known = replace(known, nodes=nodes, settings={**known.settings, **settings})
    for node in known.nodes:
        ports.require(node.port)
    return known


def format_data(folder: Folder, layout: Layout, nodes: list[Node], class_path: str) -> None:
    """Create and format the data folders of new nodes."""
    running: list[tuple[Node, subprocess.Popen[bytes]]] = []
    for node in nodes:
        _write_properties(folder, layout, node)
        tool = ["kafka.tools.StorageTool", "format", "--ignore-formatted"]
        options = ["--cluster-id", layout.cluster_id, "--config", str(folder.properties(node))]
        with folder.console(node).open("ab") as console:
            command = [*_java(folder, node, class_path, "128m", *BRIEF), *tool, *options]
            process = subprocess.Popen(command, stdout=console, stderr=console, env=_environment())
            running.append((node, process))
    for node, process in running:
        if process.wait():
            said = reason((folder.log(node), 0), (folder.console(node), 0))
            raise BrokerFailed(
                f"The data folder of Kafka's node {node.id} could not be created: {said}",
                hint=f"The folder is {folder.data(node)}",
            )


def start_node(
    folder: Folder, layout: Layout, node: Node, class_path: str, memory: str, *, brief: bool
) -> Started:
    """Start the process of a node, without waiting until it is ready."""
    _write_properties(folder, layout, node)
    files = [folder.console(node), folder.log(node)]
    written = [(file, size(file)) for file in files]
    options = BRIEF if brief else ()
    command = [*_java(folder, node, class_path, memory, *options), "kafka.Kafka"]
    command.append(str(folder.properties(node)))
    process = start(command, folder.console(node), _environment())
    return Started(node, process, written)


def _java(folder: Folder, node: Node, class_path: str, memory: str, *options: str) -> list[str]:
    return [
        java(),
        f"-Xmx{memory}",
        *options,
        *archive.options("kafka", class_path),
        f"-Dlog4j2.configurationFile={_LOGGING}",
        f"-Dheadrace.kafka.log={folder.log(node)}",
        f"-XX:ErrorFile={folder.node(node)}/java-error.log",
        # A broker that lives on after running out of memory is worse than a dead one.
        "-XX:+ExitOnOutOfMemoryError",
        "-cp",
        class_path,
    ]


def _environment() -> dict[str, str]:
    """The environment for Java, with a UTF-8 locale, so that it reads file names as Python does."""
    if sys.getfilesystemencoding() != "utf-8":
        return dict(os.environ)
    return {**os.environ, "LC_ALL": "C.UTF-8"}


def _write_properties(folder: Folder, layout: Layout, node: Node) -> None:
    folder.node(node).mkdir(parents=True, exist_ok=True)
    text = properties(node, layout.nodes, folder.data(node), layout.settings)
    folder.properties(node).write_text(text, encoding="ascii")


def _with_ports(nodes: list[Node], first: int) -> list[Node]:
    """Nodes with consecutive ports from `first`, or with any free ports if it is 0."""
    count = len(nodes)
    found = ports.free(2 * count)
    if first:
        if not 0 < first <= ports.LAST - count + 1:
            raise InvalidSetting(
                f"Port {first} cannot be the first of {count}: ports range from 1 to {ports.LAST}",
                hint=f"Choose a port up to {ports.LAST - count + 1}; 0 means any free ports",
            )
        found[:count] = range(first, first + count)
    return [
        replace(node, port=found[place], controller_port=found[count + place])
        for place, node in enumerate(nodes)
    ]


def _new_id() -> str:
    """A new cluster id in Kafka's format. Kafka's tool would parse a leading dash as an option."""
    while (made := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[:22]).startswith("-"):
        pass
    return made
