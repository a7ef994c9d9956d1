"""Three ways to read a topic: once, continuously, and as a member of a group."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from headrace.cli.failures import say
from headrace.cli.printing import Printer
from headrace.clock import SystemClock, micros
from headrace.errors import OffsetOutOfRange, UnknownPartition
from headrace.log import (
    LATEST,
    Batch,
    Capability,
    Commit,
    Consumer,
    Log,
    Offset,
    Position,
    Topic,
)

_SESSION = timedelta(seconds=6)
_PATIENCE = timedelta(seconds=12)
"""Maximum wait for partitions of members that may be dead: longer than a usual session."""
_POLL = timedelta(milliseconds=200)
_PAGE = 1_000


@dataclass(frozen=True)
class Wanted:
    """The part of a topic to read. No partitions means all."""

    topic: Topic
    start: Position
    stop: Position | None = None
    partitions: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        return self.topic.name

    def places(self) -> tuple[int, ...]:
        """The partitions to read. Raises if one does not exist."""
        for partition in self.partitions:
            if not 0 <= partition < self.topic.partitions:
                raise UnknownPartition(
                    f"Topic {self.name!r} has no partition {partition}",
                    hint=f"It has the partitions 0 to {self.topic.partitions - 1}",
                )
        return self.partitions or tuple(range(self.topic.partitions))


def read_once(log: Log, wanted: Wanted, printer: Printer) -> None:
    """Print the current records, with partitions merged in commit order."""
    places = wanted.places()
    stop = wanted.stop
    if stop is None:
        # The same commit for every partition, which makes a consistent snapshot.
        stop = Commit(log.head()) if Capability.COMMITS in log.capabilities else LATEST
    starts = _offsets(log, wanted, wanted.start, places)
    stops = _offsets(log, wanted, stop, places)
    scans = [
        log.read(
            wanted.name, start=Offset(starts[place]), stop=Offset(stops[place]), partitions=[place]
        )
        for place in places
        if starts[place] < stops[place]
    ]
    merged: Iterator[Batch] = heapq.merge(*scans, key=lambda batch: (batch.timestamp, batch.commit))
    for batch in merged:
        printer.show([batch])
        if printer.done:
            break
    printer.flush()


def read_on(log: Log, wanted: Wanted, printer: Printer) -> None:
    """Print from the start position, and wait for new records."""
    places = wanted.places()
    starts = _offsets(log, wanted, wanted.start, places)
    with log.consumer(wanted.name, start=LATEST) as consumer:
        for topic, partition in consumer.assignment:
            if partition in starts:
                consumer.seek(Offset(starts[partition]), topic, partition)
            else:
                consumer.pause((topic, partition))
        while not printer.done:
            printer.show(consumer.poll_batches(_POLL, printer.room(_PAGE)))
            printer.flush()


def read_as_member(
    log: Log,
    wanted: Wanted,
    printer: Printer,
    *,
    group: str,
    follow: bool,
    commit: Literal["before", "after"],
    instance: str | None,
) -> None:
    """Print what the group has not read yet.

    The offset of a batch is committed when the next batch is polled or the consumer closes. Both
    happen after the batch was flushed; if printing fails, nothing is committed.
    """
    stops = {p: log.offset_at(wanted.name, p, LATEST) for p in wanted.places()}
    with log.consumer(
        wanted.name,
        group=group,
        start=wanted.start,
        commit=commit,
        instance=instance,
        session=_SESSION,
    ) as consumer:
        ending = _Ending(log, consumer, group, wanted.name, stops)
        while not printer.done:
            batches = consumer.poll_batches(timedelta(0), printer.room(_PAGE))
            if not batches:
                if not follow and ending.reached():
                    break
                batches = consumer.poll_batches(_POLL, printer.room(_PAGE))
            printer.show(batches)
            printer.flush()


class _Ending:
    """Detects when a group has read what was there at the start.

    A killed member keeps its partitions until its session expires, so they are waited for. A
    member with a heartbeat reads its partitions itself, so they are not.
    """

    def __init__(
        self, log: Log, consumer: Consumer, group: str, topic: str, stops: dict[int, int]
    ) -> None:
        self._log = log
        self._consumer = consumer
        self._group = group
        self._topic = topic
        self._stops = stops
        self._clock = SystemClock()
        self._deadline = self._clock.now() + micros(_PATIENCE)
        self._heard: dict[str, int] = {}

    def reached(self) -> bool:
        """True if the command should stop after an empty poll."""
        assignment = self._consumer.assignment
        if any(self._consumer.position(t, p) < self._stops.get(p, 0) for t, p in assignment):
            return False
        left = {
            p: owner for p, owner in self._unread().items() if (self._topic, p) not in assignment
        }
        if not left:
            return True
        alive = self._alive()
        if self._clock.now() < self._deadline and not all(who in alive for who in left.values()):
            return False
        names = ", ".join(str(partition) for partition in sorted(left))
        say(f"note: other members of {self._group!r} are reading partition {names}")
        return True

    def _unread(self) -> dict[int, str | None]:
        """The partitions that the group has not read to the end, with their owners."""
        lags = {
            lag.partition: lag
            for lag in self._log.group(self._group).lags
            if lag.topic == self._topic
        }
        return {
            partition: lags[partition].member if partition in lags else None
            for partition, stop in self._stops.items()
            if partition not in lags or (lags[partition].committed or 0) < stop
        }

    def _alive(self) -> set[str]:
        """Members that sent a heartbeat since the first look.

        Kafka does not report heartbeats; its members count as alive until their sessions expire.
        """
        beats = {member.id: member.heartbeat for member in self._log.group(self._group).members}
        return {
            who
            for who, beat in beats.items()
            if beat is None or beat != self._heard.setdefault(who, beat)
        }


def _offsets(
    log: Log, wanted: Wanted, position: Position, places: tuple[int, ...]
) -> dict[int, int]:
    """The offset of a position in each partition.

    An offset beyond the end of a partition means its end, since lengths differ. A start beyond the
    end of all partitions is an error.
    """
    found: dict[int, int] = {}
    beyond: list[OffsetOutOfRange] = []
    for place in places:
        try:
            found[place] = log.offset_at(wanted.name, place, position)
        except OffsetOutOfRange as error:
            if error.details["offset"] < error.details["first"]:
                raise
            beyond.append(error)
            found[place] = error.details["end"]
    if len(beyond) == len(places) and position is wanted.start:
        raise beyond[0]
    return found
