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
    topic: Topic, records: Iterable[Record], advances: Iterable[tuple[int, int]] = ()
) -> list[Event]:
    """Return a topic's events in commit order, each with the frontier before its commit.

    Tombstones are left out. `advances` are commits without rows that move the frontier, each with
    its number and the moment.
    """
    ahead = sorted(advances, reverse=True)
    events: list[Event] = []
    frontier: int | None = None  # after all commits before the current one
    reached: int | None = None  # after the rows seen so far
    commit: int | None = None
    for record in sorted(records, key=lambda r: (r.commit or 0, r.partition, r.offset)):
        if record.commit != commit:
            while ahead and ahead[-1][0] < (record.commit or 0):
                moment = ahead.pop()[1]
                reached = moment if reached is None else max(reached, moment)
            commit, frontier = record.commit, reached
            if topic.settings.frontier == "arrival":
                arrived = to_micros(record.timestamp)
                reached = arrived if reached is None else max(reached, arrived)
        if record.value is None:
            continue
        event = Event(
            topic,
            record.commit or 0,
            record.partition,
            record.offset,
            to_micros(record.timestamp),
            frontier,
            record.value,
        )
        events.append(event)
        moves = topic.settings.frontier == "events" and event.dead is None
        if moves and event.event_time is not None:
            reached = event.event_time if reached is None else max(reached, event.event_time)
    return events
