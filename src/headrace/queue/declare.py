"""Create, open and change queues."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from headrace.errors import TopicExists
from headrace.log.dead_letter import DEAD_LETTER
from headrace.log.interface import Log
from headrace.log.position import EARLIEST, Position
from headrace.log.queueing import Outcome, QueueRow, QueueSettings
from headrace.queue.contract import WorkQueue, queue_exists
from headrace.queue.journal import JOURNAL
from headrace.queue.log_queue import LogQueue


def create_queue(
    log: Log,
    name: str,
    *,
    topic: str | None = None,
    partitions: int = 1,
    settings: QueueSettings | Mapping[str, Any] | None = None,
    start: Position = EARLIEST,
) -> WorkQueue:
    """Create a queue, and return it.

    It is over the topic of its own name, which is created with so many partitions if it is not
    there, or over `topic`. Several queues may be over one topic: each gets every message. `start`
    says where it begins in a topic that has records. Its settlements go to the topic NAME.journal
    and its dead letters to NAME.dead.

    On Kafka it is a share group, without a journal.
    """
    if not isinstance(settings, QueueSettings):
        settings = QueueSettings().change(settings or {})
    if _on_kafka(log):
        made: WorkQueue = _kafka().create_kafka_queue(
            log, name, topic=topic, partitions=partitions, settings=settings, start=start
        )
        return made
    queues = log.queues()
    if any(row.name == name for row in queues.all()):
        raise queue_exists(name)
    if topic is None:
        topic = name
        with contextlib.suppress(TopicExists):
            log.create_topic(name, partitions=partitions)
    for beside, schema in ((f"{name}.journal", JOURNAL), (f"{name}.dead", DEAD_LETTER)):
        with contextlib.suppress(TopicExists):
            log.create_topic(beside, schema=schema)
    offsets = {p: log.offset_at(topic, p, start) for p in range(log.topic(topic).topic.partitions)}
    lines = [
        {"partition": p, "offset": n, "end": n, "outcome": Outcome.CREATED.value}
        for p, n in offsets.items()
    ]
    with log.producer() as producer, producer.transaction() as transaction:
        transaction.append(f"{name}.journal", pa.Table.from_pylist(lines, schema=JOURNAL))
        transaction.attach(queues.creating(name, topic, settings, offsets))
    return LogQueue(log, queues.find(name))


def open_queue(
    log: Log, name: str, *, worker: str | None = None, topic: str | None = None
) -> WorkQueue:
    """Open a queue. `worker` names who takes messages, in `headrace queue show`.

    On Kafka `topic` has to be given again, if it is not the one of the queue's name.
    """
    if _on_kafka(log):
        opened: WorkQueue = _kafka().KafkaQueue(log, name, topic=topic)
        return opened
    return LogQueue(log, log.queues().find(name), worker=worker)


def all_queues(log: Log) -> list[QueueRow]:
    """The queues of a log, by name."""
    return log.queues().all()


def alter_queue(log: Log, name: str, settings: Mapping[str, Any]) -> QueueRow:
    """Change settings of a queue. Limits per key can only change while it is empty."""
    queues = log.queues()
    return queues.alter(name, queues.find(name).settings.change(settings))


def delete_queue(log: Log, name: str) -> None:
    """Delete a queue. Its messages, journal and dead letters stay as topics."""
    log.queues().delete(name)


def _on_kafka(log: Log) -> bool:
    return log.url.startswith("kafka:")


def _kafka() -> Any:
    """The module of queues on Kafka, whose client is optional."""
    return importlib.import_module("headrace.queue.kafka_queue")
