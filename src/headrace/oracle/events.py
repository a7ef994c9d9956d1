"""Events as the oracle sees them: a row and its place in the log."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from headrace.clock import micros, to_micros
from headrace.log.event_time import time_column, times_of
from headrace.log.record import Record
from headrace.log.state import Topic


@dataclass(frozen=True)
class Event:
    """A row of a topic, and the topic's `frontier` before its commit. Times are microseconds."""

    topic: Topic
    commit: int
    partition: int
    offset: int
    append_time: int
    frontier: int | None
    row: dict[str, Any]

    @cached_property
    def event_time(self) -> int | None:
        if (column := time_column(self.topic)) is None:
            row = pa.RecordBatch.from_pylist([self.row], self.topic.schema)
            computed: int | None = times_of(self.topic, row).cast(pa.int64())[0].as_py()
            return computed
        moment = self.row.get(column)
        return None if moment is None else to_micros(moment)

    @property
    def dead(self) -> str | None:
        """The reason why the row is a dead letter, if it is one."""
        if self.event_time is None:
            return "no event time"
        skew = self.topic.settings.skew
        if skew is not None and self.event_time > self.append_time + micros(skew):
            return "ahead of the clock"
        return None


def events_of(
    topic: Topic,
    records: Iterable[Record],
    advances: Iterable[tuple[int, int]] = (),
    *,
    by_partition: bool = False,
) -> list[Event]:
    """Return a topic's events in commit order, each with the frontier before its commit.

    Tombstones are left out. `advances` are commits without rows that move the frontier, each with
    its number and the moment. With `by_partition`, as on Kafka, an event has the frontier of its
    own partition before it.
    """
    ahead = sorted(advances, reverse=True)
    events: list[Event] = []
    frontiers: dict[int, int] = {}  # before the current commit, by partition
    reached: dict[int, int] = {}  # after the rows seen so far
    least: int | None = None  # where partitions begin that have no row yet
    commit: int | None = None

    def move(partition: int, moment: int) -> None:
        known = reached.get(partition, least)
        reached[partition] = moment if known is None else max(known, moment)

    for record in sorted(records, key=lambda r: (r.commit or 0, r.partition, r.offset)):
        place = record.partition if by_partition else 0
        if record.commit != commit:
            while ahead and ahead[-1][0] < (record.commit or 0):
                moment = ahead.pop()[1]
                least = moment if least is None else max(least, moment)
                for known in reached:
                    move(known, moment)
            commit, frontiers = record.commit, dict(reached)
            if topic.settings.frontier == "arrival" and not by_partition:
                move(place, to_micros(record.timestamp))
        if record.value is None:
            continue
        if topic.settings.frontier == "arrival" and by_partition:
            move(place, to_micros(record.timestamp))
        event = Event(
            topic,
            record.commit or 0,
            record.partition,
            record.offset,
            to_micros(record.timestamp),
            (reached if by_partition else frontiers).get(place, least),
            record.value,
        )
        events.append(event)
        moves = topic.settings.frontier == "events" and event.dead is None
        if moves and event.event_time is not None:
            move(place, event.event_time)
    return events
