"""Requests to a capture that may run in another process, in a topic beside its state.

A request is a record, and a tombstone when it was done. So one that nobody has heard waits for the
next run, and a crash does it again at worst.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass

from headrace.cdc.state import state_topic
from headrace.log import EARLIEST, Log, Offset, Position, Topic, TopicSettings


@dataclass(frozen=True)
class Request:
    """The wish for a snapshot of a table."""

    id: str
    table: str


def requests_topic(prefix: str) -> str:
    """The topic of the requests to a capture."""
    return f"{state_topic(prefix)}.requests"


def ask_for_snapshot(log: Log, prefix: str, table: str) -> None:
    """Ask for the snapshot of a table, beside the stream."""
    settings = TopicSettings(cleanup="compact")
    topic = log.ensure_topic(Topic(requests_topic(prefix), 1, settings=settings)).name
    with log.producer() as producer:
        producer.send(topic, json.dumps({"snapshot": table}), uuid.uuid4().hex)


class Requests:
    """The requests that are not done, for the process that captures."""

    def __init__(self, log: Log, prefix: str) -> None:
        self._log = log
        self._topic = requests_topic(prefix)
        self._next: Position = EARLIEST
        self._there = False

    def open(self) -> list[Request]:
        """The requests that were made since the last call and are not done."""
        self._there = self._there or bool(self._log.topic_ids([self._topic]))
        if not self._there:
            return []
        found: dict[str, Request] = {}
        for batch in self._log.read(self._topic, start=self._next):
            for record in batch.records():
                self._next = Offset(record.offset + 1)
                id = record.key.decode()
                if record.value is None:
                    found.pop(id, None)
                else:
                    found[id] = Request(id, json.loads(record.value)["snapshot"])
        return list(found.values())

    def done(self, request: Request) -> None:
        """Note that a request was done."""
        with self._log.producer() as producer:
            producer.send(self._topic, None, request.id)
