"""The Kafka settings of a node that differ from the defaults, and the reasons."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from headrace.servers.java.ports import HOST
from headrace.servers.kafka.layout import Node

_REPLICAS = 3


def properties(node: Node, nodes: list[Node], data: Path, extra: Mapping[str, str]) -> str:
    """The server.properties of a node, which is a broker and a controller in one."""
    voters = ",".join(f"{other.id}@{HOST}:{other.controller_port}" for other in nodes)
    replicas = min(_REPLICAS, len(nodes))
    in_sync = max(1, replicas - 1)
    settings = {
        "process.roles": "broker,controller",
        "node.id": node.id,
        "controller.quorum.voters": voters,
        # Loopback only: other machines cannot connect.
        "listeners": f"PLAINTEXT://{HOST}:{node.port},CONTROLLER://{HOST}:{node.controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{node.port}",
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
