"""A Kafka cluster in a folder: start, state and stop."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import shutil
import signal
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from headrace.clock import MILLISECOND, SECOND, Clock, SystemClock
from headrace.errors import BrokerFailed, MissingExtra, ServerError
from headrace.servers.java import Fetching, class_path
from headrace.servers.java.ports import HOST, answers
from headrace.servers.java.process import Process
from headrace.servers.kafka.layout import Folder, Layout, Node
from headrace.servers.kafka.starting import Started, format_data, planned, reason, start_node
from headrace.servers.kafka.state import ClusterState, NodeState, PartitionState

try:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient
except ModuleNotFoundError:
    raise MissingExtra(
        "Kafka's client is not installed", hint="pip install 'headrace[kafka]'"
    ) from None

_POLL = 50 * MILLISECOND
_READY_WITHIN = 90 * SECOND
_END_WITHIN = 20 * SECOND

_SILENT = logging.Logger("headrace.kafka.silent", logging.CRITICAL + 1)
"""Drops the client's messages about brokers that have not started yet."""

Say = Callable[[str], None]
"""Receives progress messages for the user."""


class Admin:
    """Admin client for the brokers at these ports, some of which may be down."""

    def __init__(self, ports: list[int]) -> None:
        servers = ",".join(f"{HOST}:{port}" for port in ports)
        self._client = AdminClient({"bootstrap.servers": servers}, logger=_SILENT)

    def brokers(self, timeout: float = 5) -> set[int]:
        """The ids of the brokers that have joined; empty if none answers in time."""
        try:
            return set(self._client.list_topics(timeout=timeout).brokers)
        except KafkaException:
            return set()

    def partitions(self, timeout: float = 5) -> list[PartitionState] | None:
        """All partitions with their leaders and replicas, or None if no broker answers in time."""
        try:
            topics: dict[str, Any] = self._client.list_topics(timeout=timeout).topics
        except KafkaException:
            return None
        return [
            PartitionState(name, number, one.leader, tuple(one.replicas), tuple(one.isrs))
            for name, topic in sorted(topics.items())
            for number, one in sorted(topic.partitions.items())
        ]


class Cluster:
    """One or more brokers on loopback, which keep running when this process ends.

    Ports and data stay the same when the cluster restarts. A cluster that runs only for minutes can
    be `brief`: it starts faster and then runs slower.
    """

    def __init__(
        self, folder: Path | str, *, brief: bool = False, clock: Clock | None = None
    ) -> None:
        self._folder = Folder(Path(folder).expanduser().resolve())
        self._brief = brief
        self._clock = clock or SystemClock()

    @property
    def folder(self) -> Path:
        return self._folder.path

    def up(
        self,
        brokers: int | None = None,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        *,
        memory: str = "512m",
        only: Collection[int] = (),
        progress: Fetching | None = None,
        say: Say | None = None,
    ) -> ClusterState:
        """Start every node that is not running, and return when all of them answer.

        The first node listens on `port`, the others on the ports after it; 0 means any free ports.
        With `only`, just these nodes start; they answer once a majority of all nodes runs.
        """
        say = say or (lambda _: None)
        with self._alone():
            known = self._folder.layout()
            running = {n.id for n in known.nodes if self._folder.process(n)} if known else set()
            layout = planned(known, running, self.folder, brokers, port, settings or {})
            missing = [
                node
                for node in layout.nodes
                if node.id not in running and (not only or node.id in only)
            ]
            if missing:
                path = class_path("kafka", progress)
                self._folder.write_layout(layout)
                self._start(layout, missing, path, memory, say)
        return self.state()

    def state(self) -> ClusterState:
        """The current state of the cluster. One that was never started has no nodes."""
        layout = self._folder.layout()
        nodes = layout.nodes if layout else []
        processes = {node.id: self._folder.process(node) for node in nodes}
        listening = [n.port for n in nodes if processes[n.id] and answers(n.port)]
        admin = Admin(listening) if listening else None
        joined = admin.brokers() if admin else set()
        partitions = (admin.partitions() if admin else None) or []
        return ClusterState(
            self.folder,
            tuple(
                NodeState(
                    node.id,
                    node.port,
                    process.pid if (process := processes[node.id]) else None,
                    process is not None,
                    node.id in joined,
                    sum(one.leader == node.id for one in partitions),
                    sum(node.id in one.in_sync for one in partitions),
                )
                for node in nodes
            ),
            tuple(partitions),
        )

    def down(self, *, remove: bool = False) -> bool:
        """Stop every node; with `remove`, delete all data too. True if any was running."""
        if self._folder.layout() is None:
            return False
        with self._alone():
            layout = self._folder.layout()
            nodes = layout.nodes if layout else []
            processes = [process for node in nodes if (process := self._folder.process(node))]
            _end(processes, self._clock)
            if remove and layout:
                for node in layout.nodes:
                    shutil.rmtree(self._folder.node(node), ignore_errors=True)
                self._folder.forget()
        return bool(processes)

    def signal(self, node: int, number: int) -> None:
        """Send a signal to the process of a node, such as SIGKILL, SIGSTOP or SIGCONT."""
        layout = self._folder.layout()
        for one in layout.nodes if layout else []:
            if one.id == node and (process := self._folder.process(one)):
                process.signal(number)

    def kill(self, node: int) -> None:
        """Kill a node, as a power cut would, and return when it is gone."""
        self.signal(node, signal.SIGKILL)
        layout = self._folder.layout()
        for one in layout.nodes if layout else []:
            while one.id == node and self._folder.process(one):
                self._clock.sleep(_POLL)

    def _start(self, layout: Layout, nodes: list[Node], path: str, memory: str, say: Say) -> None:
        new = [n for n in nodes if not (self._folder.data(n) / "meta.properties").exists()]
        if new:
            say("Creating the data folders")
            format_data(self._folder, layout, new, path)
        say("Waiting for Kafka to answer")
        started: list[Started] = []
        try:
            for node in nodes:
                begun = start_node(self._folder, layout, node, path, memory, brief=self._brief)
                started.append(begun)
                self._folder.write_process(node, begun.process)
            self._wait(started)
        except BaseException:
            _end([one.process for one in started], self._clock)
            raise

    def _wait(self, started: list[Started]) -> None:
        """Return when all of them answer and have joined the cluster."""
        wanted = {one.node.id for one in started}
        ports = [one.node.port for one in started]
        until = self._clock.monotonic() + _READY_WITHIN
        admin = None
        while True:
            for one in started:
                if not one.process.alive():
                    raise BrokerFailed(
                        f"Kafka's node {one.node.id} did not start: {reason(*one.written)}",
                        hint=f"Its full log is {one.written[-1][0]}",
                    )
            if all(map(answers, ports)):
                admin = admin or Admin(ports)
                if admin.brokers(timeout=1) >= wanted:
                    return
            if self._clock.monotonic() > until:
                raise BrokerFailed(
                    f"Kafka did not answer for {_READY_WITHIN // SECOND} s, and was stopped",
                    hint=f"Its log is {started[0].written[-1][0]}",
                )
            self._clock.sleep(_POLL)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lock that a process needs to start or stop nodes of this folder."""
        self._folder.claim()
        try:
            with (self.folder / "up.lock").open("w") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                yield
        except OSError as error:
            raise ServerError(
                f"The cluster folder cannot be used: {error.strerror} at {error.filename}",
                hint="Free some space or fix the permissions, or choose another folder with --data",
            ) from None


def _end(processes: list[Process], clock: Clock) -> None:
    """Stop all of them in parallel, and return when they have ended."""
    for process in processes:
        process.signal(signal.SIGCONT)
        process.signal(signal.SIGTERM)
    for process in processes:
        process.end(clock, _END_WITHIN)
