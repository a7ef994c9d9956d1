"""Helpers that the tests of the suite share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from headrace.clock import to_micros
from headrace.errors import Unsupported
from headrace.log import (
    Batch,
    Capability,
    Consumer,
    Header,
    Log,
    Position,
    Producer,
    Receipt,
    Record,
    Time,
)
from tests.conformance.backends import START, Backend

SESSION = timedelta(seconds=10)
"""Session timeout of a silent member: the default of `Log.consumer`."""

LONG = timedelta(hours=1)
"""A linger that never expires, so that the test alone decides when a batch is sent."""


@contextmanager
def needs(log: Log, *capabilities: Capability) -> Iterator[None]:
    """Run the block on a log that has the capabilities.

    On a log that lacks some of them, the block must raise `Unsupported` with one of those. Where
    commits are made after the appends, `test_cuts.py` has the laws of commits.
    """
    wanted = set(capabilities)
    if Capability.NUMBERED_APPENDS in wanted:
        wanted.add(Capability.COMMITS)
    lacking = {capability.name for capability in wanted if capability not in log.capabilities}
    cuts = Capability.COMMITS in log.capabilities
    if cuts and Capability.NUMBERED_APPENDS.name in lacking:
        pytest.skip("its appends are no commits")
    if not lacking:
        yield
        return
    with pytest.raises(Unsupported) as caught:
        yield
    assert caught.value.details["capability"] in lacking


@dataclass
class Stage:
    """A log with its backend and its clock."""

    backend: Backend
    log: Log

    def later(self, span: timedelta) -> None:
        """Let time pass."""
        self.backend.later(span)

    def place(self, position: Position) -> Position:
        """The position on this backend; a time is relative to START."""
        if isinstance(position, Time):
            return self.backend.time(timedelta(microseconds=position.micros - to_micros(START)))
        return position

    def waited(self, seconds: float, span: timedelta) -> bool:
        """True if the measured seconds are the time of a span on this backend."""
        return self.backend.waited(seconds, span)

    def reopen(self) -> Log:
        """Close the log and open it again."""
        self.log = self.backend.reopen(self.log)
        return self.log

    def elsewhere(self) -> Log:
        """The same log, as opened by another process."""
        return self.backend.open()

    def drain(self, consumer: Consumer) -> list[Record]:
        """Poll until there are no more records."""
        found: list[Record] = []
        while records := consumer.poll(self.backend.patience):
            found += records
        return found

    def settle(self, *consumers: Consumer) -> list[Record]:
        """Poll the members of a group in turn until their assignments are stable.

        Returns the records that they got meanwhile.
        """
        found: list[Record] = []
        before = None
        for _ in self.backend.rounds():
            for consumer in consumers:
                found += consumer.poll(self.backend.patience)
            now = [(c.assignment, c.generation) for c in consumers]
            if now == before and self.backend.settled(self.log, consumers):
                return found
            before = now
        raise AssertionError(f"the group does not settle: {before}")

    def crash(self, *consumers: Consumer) -> None:
        """Abandon consumers for good, and wait until the group notices."""
        self.backend.miss(consumers, SESSION)

    def miss(self, *consumers: Consumer) -> None:
        """Keep consumers silent for longer than their sessions."""
        self.backend.miss(consumers, SESSION)


def send(
    log: Log,
    topic: str,
    *values: Any,
    key: Any = None,
    headers: list[Header] | None = None,
    partition: int | None = None,
) -> Receipt:
    """Commit values together, and return the receipt."""
    with log.producer(linger=LONG) as producer:
        for value in values:
            delivery = producer.send(topic, value, key, headers, partition)
        return delivery.wait()


def delete(log: Log, topic: str, key: Any) -> None:
    """Commit a tombstone."""
    send(log, topic, None, key=key)


def pairs(producer: Producer, topic: str, *items: tuple[Any, Any]) -> None:
    """Commit pairs of a key and a value together."""
    for key, value in items:
        producer.send(topic, value, key)
    producer.flush()


def read(log: Log, topic: str, **where: Any) -> list[Record]:
    """The records of a topic, partition by partition."""
    return [record for batch in log.read(topic, **where) for record in batch.records()]


def values(log: Log, topic: str, **where: Any) -> list[Any]:
    """The values of a topic, partition by partition."""
    return [record.value for record in read(log, topic, **where)]


def offsets(log: Log, topic: str, **where: Any) -> list[int]:
    """The offsets of a topic, partition by partition."""
    return [record.offset for record in read(log, topic, **where)]


def table(batches: list[Batch]) -> pa.Table:
    """Batches as one table."""
    return pa.Table.from_batches([batch.data for batch in batches])


def dense(log: Log) -> bool:
    """True if the log promises offsets without gaps."""
    return Capability.DENSE_OFFSETS in log.capabilities
