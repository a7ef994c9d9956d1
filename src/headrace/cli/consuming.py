"""Print a topic's records in three ways: once, continuously, and as a member of a group."""

from __future__ import annotations

import heapq
import itertools
import json
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from headrace.cli.failures import say
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
    OnceBy,
    Position,
    Record,
    Topic,
)
from headrace.log.record_json import RecordFormat, headers_json

if TYPE_CHECKING:
    from headrace.eventsourcing.current import Current

_SESSION = timedelta(seconds=6)
_PATIENCE = timedelta(seconds=12)
"""Maximum wait for partitions of members that may be dead: longer than a usual session."""
_POLL = timedelta(milliseconds=200)
_PAGE = 1_000

_DIM, _KEY, _END = "\x1b[2m", "\x1b[36m", "\x1b[0m"

_VISIBLE = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
_VISIBLE |= {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"}
"""Escaped control characters: a record cannot break its line or control the terminal."""


class Printer:
    """Printer of a topic's batches, up to a limit. With `once`, it skips repeated records.

    With `current`, events are shown in the current versions of their types.
    """

    def __init__(
        self,
        topic: Topic,
        *,
        json: bool,
        headers: bool,
        limit: int | None,
        once: OnceBy | None = None,
        current: Current | None = None,
    ) -> None:
        self._current = current
        self._format = RecordFormat(topic)
        self._line = self._format.line if json else self._readable
        self._headers = headers
        self._left = limit
        self._once = once
        # Coloured by hand: rich takes longer for a line than the log for a record.
        self._coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")

    @property
    def done(self) -> bool:
        """True if the limit is reached."""
        return self._left == 0

    def room(self, page: int) -> int:
        """The number of records to request: a page, or what the limit leaves."""
        return page if self._left is None else min(page, self._left)

    def show(self, batches: Iterable[Batch]) -> None:
        """Print records up to the limit."""
        for batch in batches:
            found = batch if self._current is None else self._current.batch(batch)
            records = found.records(as_text=True)
            if self._once is not None:
                records = filter(self._once.is_first, records)
            if self._left is not None:
                records = itertools.islice(records, self._left)
            lines = list(map(self._line, records))
            if self._left is not None:
                self._left -= len(lines)
            if lines:
                _write("\n".join(lines) + "\n")

    def flush(self) -> None:
        """Flush standard output."""
        sys.stdout.flush()

    def _readable(self, record: Record) -> str:
        place = f"{record.partition}/{record.offset}"
        time = f"{record.timestamp:%Y-%m-%d %H:%M:%S}.{record.timestamp.microsecond // 1000:03d}Z"
        key = "-" if record.key is None else _text(self._format.key(record))
        value = "(tombstone)" if record.value is None else _text(self._format.value(record))
        extra = ""
        if self._headers and record.headers:
            extra = "  " + " ".join(f"{_text(n)}={_text(v)}" for n, v in headers_json(record))
        if not self._coloured:
            return f"{place}  {time}  {key}  {value}{extra}"
        shown = f"{_DIM}{value}{_END}" if record.value is None else value
        return f"{_DIM}{place:>8}  {time}{_END}  {_KEY}{key}{_END}  {shown}{_DIM}{extra}{_END}"


def _write(text: str) -> None:
    """Write a whole text: under PYTHONUNBUFFERED, one write may take only a part of it."""
    left = memoryview(text.encode())
    while left:
        left = left[sys.stdout.buffer.write(left) :]


def _text(value: Any) -> str:
    text: str = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else text.translate(_VISIBLE)


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
        stop = Commit(log.head()) if Capability.NUMBERED_APPENDS in log.capabilities else LATEST
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
