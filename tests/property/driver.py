"""A log and its model, and operations that apply to both."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from headrace.clock import SECOND, VirtualClock, to_datetime, to_micros
from headrace.log import Consumer, Log, Position, Producer
from headrace.log.file.disk import Disk
from headrace.log.file.log import FileLog
from headrace.log.partitioner import partition_of
from headrace.log.roles import Acks, Writer
from tests.property.model import Entry, LogModel, TopicModel

START = datetime(2026, 1, 1, tzinfo=UTC)
SESSION = timedelta(seconds=10)
SKEW = 3600 * SECOND  # the default of a topic

Row = tuple[str, int | None, int | None]
"""A key, a number or None for a tombstone, and the event time in minutes from now."""


class Machine(Disk):
    """The disk of a machine, with the number of its boots."""

    def __init__(self, boots: int) -> None:
        super().__init__()
        self._boots = boots

    def boot(self) -> str:
        return f"boot-{self._boots}"


class Driver:
    """Applies operations to a file log and to its model."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="headrace-model-"))
        self.clock = VirtualClock(START)
        self.model = LogModel()
        self.consumers: dict[str, Consumer] = {}
        self.boots = 1
        self.acks: Acks = "synced"
        self.start()

    def start(self) -> None:
        """Open the log, as at the start of a process."""
        disk = Machine(self.boots)
        self.log: Log = FileLog(self.folder / "log", clock=self.clock, disk=disk)
        self.producer = self.make_producer()

    def make_producer(self) -> Producer:
        return self.log.producer(id="model", acks=self.acks, linger=timedelta(hours=1))

    def restart_producer(self) -> None:
        self.producer.close()
        self.producer = self.make_producer()

    def expire(self, span: timedelta = SESSION + timedelta(seconds=1)) -> None:
        """Let time pass until all sessions have expired, and start the members again."""
        self.clock.advance(span)
        for name in self.model.groups:
            self.open(name)

    def stop(self) -> None:
        self.producer.close()
        self.log.close()

    def clean_up(self) -> None:
        self.stop()
        shutil.rmtree(self.folder)

    def topic(
        self, data: st.DataObject, fits: Callable[[TopicModel], bool] = lambda _: True
    ) -> TopicModel:
        names = sorted(name for name, topic in self.model.topics.items() if fits(topic))
        return self.model.topics[data.draw(st.sampled_from(names))]

    def read(self, topic: TopicModel, partition: int, **where: Position) -> list[Entry]:
        batches = self.log.read(topic.name, partitions=[partition], **where)  # type: ignore[arg-type]
        return [Entry.of(record) for batch in batches for record in batch.records()]

    def entry(self, topic: TopicModel, row: Row) -> tuple[Any, Any]:
        """A row's key and value, as a reader gets them."""
        key, number, minute = row
        if not topic.typed:
            return key.encode(), None if number is None else b"%d" % number
        if number is None:
            return key, None
        now = to_datetime(self.clock.now())
        at = None if minute is None else now + timedelta(minutes=minute)
        return key, {"k": key, "n": number, "at": at}

    def write(
        self, writer: Writer, topic: TopicModel, rows: list[Row], by_key: bool = True
    ) -> list[tuple[int, Any, Any]]:
        added = []
        for index, row in enumerate(rows):
            key, value = self.entry(topic, row)
            chosen = None if by_key else index % len(topic.partitions)
            writer.send(topic.name, value, None if topic.typed and value else key, partition=chosen)
            partition = partition_of(row[0].encode(), len(topic.partitions))
            added.append((partition if chosen is None else chosen, key, value))
        return added

    def commit(self, added: list[tuple[TopicModel, list[tuple[int, Any, Any]]]]) -> None:
        """Apply one commit of the producer to the model."""
        model = self.model
        model.sequence += 1
        if not any(entries for _, entries in added):
            return
        model.head += 1
        model.last_time = max(model.last_time, self.clock.now())
        limit = model.last_time + SKEW
        for topic, entries in added:
            for number, key, value in entries:
                time = to_datetime(model.last_time)
                topic.partitions[number].add(key, value, model.head, time)
                if topic.typed and value is not None and value["at"] is not None:
                    at = to_micros(value["at"])
                    if at <= limit and (topic.frontier is None or at > topic.frontier):
                        topic.frontier = at

    def open(self, name: str) -> None:
        """Start a group's member again; its predecessor is abandoned."""
        group = self.model.groups[name]
        self.consumers[name] = self.log.consumer(
            group.topic, group=name, commit="manual", session=SESSION, instance="only"
        )
        group.position = dict(group.committed)

    def remember(self, name: str) -> None:
        group = self.model.groups[name]
        consumer = self.consumers[name]
        for number in group.position:
            # Where compaction removed records, the log may be at a later offset than the model.
            position = consumer.position(group.topic, number)
            assert position >= group.position[number]
            entries = self.model.topics[group.topic].partitions[number].entries
            assert not [e for e in entries if group.position[number] <= e.offset < position]
            group.position[number] = group.committed[number] = position
