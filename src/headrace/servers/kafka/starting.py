"""The start of nodes: the layout of the cluster, its folders, its settings, and Java."""

from __future__ import annotations

import base64
import os
import re
import shutil
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

_LOGGING = Path(__file__).with_name("log4j2.properties")
_REPLICAS = 3

_THROWN = re.compile(r"^(?:Caused by: |Exception in thread \S+ )?[\w.$]+(?:Exception|Error): (.+)$")
_LOGGED = re.compile(r"^[\d-]+ [\d:.]+ (?:ERROR|FATAL) [^:]+: (.+)$")
_TAIL = 200_000
_ROOM = 16 * 1024


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


def size(path: Path) -> int:
    """The size of a file now, so that later only newer lines are read."""
    return path.stat().st_size if path.exists() else 0


def reason(*written: tuple[Path, int]) -> str:
    """The last error in some log files, each read from an offset."""
    # On a full disk the broker cannot log that the disk is full.
    if any(path.exists() and shutil.disk_usage(path).free < _ROOM for path, _ in written):
        return "No space left on device"
    found = ""
    for path, begin in written:
        for line in _lines(path, begin):
            if match := _THROWN.match(line) or _LOGGED.match(line):
                found = match[1]
    if found:
        return found.strip().rstrip(".")
    last = [line for path, begin in written for line in _lines(path, begin) if line.strip()]
    return last[-1].strip() if last else "its log is empty"


def _lines(path: Path, begin: int) -> list[str]:
    if not path.exists():
        return []
    with path.open("rb") as file:
        file.seek(max(begin, size(path) - _TAIL))
        return file.read().decode(errors="replace").splitlines()


def properties(node: Node, nodes: list[Node], data: Path, extra: Mapping[str, str]) -> str:
    """The server.properties of a node, which is a broker and a controller in one."""
    voters = ",".join(f"{other.id}@{ports.HOST}:{other.controller_port}" for other in nodes)
    replicas = min(_REPLICAS, len(nodes))
    in_sync = max(1, replicas - 1)
    settings = {
        "process.roles": "broker,controller",
        "node.id": node.id,
        "controller.quorum.voters": voters,
        # Loopback only: other machines cannot connect.
        "listeners": f"PLAINTEXT://{ports.HOST}:{node.port},CONTROLLER://{ports.HOST}:{node.controller_port}",
        "advertised.listeners": f"PLAINTEXT://{ports.HOST}:{node.port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": data,
        # A misspelt topic name must fail, not create a topic.
        "auto.create.topics.enable": "false",
        # With three brokers, the cluster survives the loss of one.
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        # The default of 50 partitions each suits a large cluster; here it only delays the start.
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.num.partitions": 4,
        "share.coordinator.state.topic.num.partitions": 4,
        # A new group starts at once instead of waiting for more members.
        "group.initial.rebalance.delay.ms": 0,
        # The cluster notices a killed broker, and lets it rejoin, after 4 s instead of 9.
        "broker.session.timeout.ms": 4_000,
        "broker.heartbeat.interval.ms": 1_000,
        # The default, 128 MB, is a quarter of the heap.
        "log.cleaner.dedupe.buffer.size": 16 * 1024 * 1024,
    }
    settings |= extra
    return "".join(f"{_escaped(name)}={_escaped(str(value))}\n" for name, value in settings.items())


def _escaped(text: str) -> str:
    """The text escaped for Java, which reads property files as Latin-1."""
    return "".join(map(_written, text))


def _written(character: str) -> str:
    if character == "\\":
        return "\\\\"
    if " " <= character <= "~":
        return character
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[place : place + 4]}" for place in range(0, len(units), 4))
