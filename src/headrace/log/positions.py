"""A consumer's positions in the partitions that it reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from headrace.errors import (
    CorruptSegment,
    HeadraceError,
    LogError,
    OffsetOutOfRange,
    UnknownPartition,
    UnknownTopic,
    UnreadableRecord,
    UnreadableValue,
)
from headrace.log.assignment import Partition
from headrace.log.declared import TopicRow
from headrace.log.record import Batch, Record

Place = tuple[int, int]
"""A topic's id and a partition."""


@dataclass(frozen=True)
class GroupOffsets:
    """A group's next offsets, by topic id and partition.

    `group` and `member` are the log's own ids of them. `member` is None if no member has to own
    the partitions, as when offsets are reset.
    """

    group: Any
    member: Any
    offsets: Mapping[Place, int]


class Cursor(Protocol):
    """A reader's position in one partition."""

    topic: TopicRow
    partition: int
    position: int

    def seek(self, position: int) -> None:
        """Continue from another offset."""

    def take(self, rows: int) -> Batch | None:
        """The next rows, at most `rows`; None if there are none."""


@dataclass
class Assigned:
    """An assigned partition and its progress."""

    cursor: Cursor
    origin: int
    """The offset where reading began."""
    handled: int
    """The offset to commit: that after the last handled record."""
    committed: int | None
    moves: int = 0
    """The number of explicit seeks."""
    paused: bool = False
    error: HeadraceError | None = None
    """The error that stops reading here, until the caller seeks."""
    raised: bool = False
    """True if the error was raised to the caller."""

    @property
    def uncommitted(self) -> bool:
        return self.handled != (self.origin if self.committed is None else self.committed)

    def go_to(self, offset: int) -> None:
        self.cursor.seek(offset)
        self.handled = offset
        self.moves += 1
        self.error = None

    def stop_at(self, error: UnreadableValue, *, raised: bool = False) -> None:
        """Read no further than the record that the error is about."""
        self.cursor.seek(error.details["offset"])
        self.error, self.raised = error, raised


class Positions:
    """The partitions of a consumer, by topic id and partition."""

    def __init__(self, topics: Sequence[TopicRow]) -> None:
        self._topics = {topic.id: topic for topic in topics}
        self._turn = 0
        self._raised = -1
        self.assigned: dict[Place, Assigned] = {}

    @property
    def names(self) -> frozenset[Partition]:
        """The partitions, by topic name."""
        return frozenset((self._topics[t].name, partition) for t, partition in self.assigned)

    def start(self, cursor: Cursor, committed: int | None) -> None:
        """Start to read a partition at its cursor's position."""
        at = cursor.position
        self.assigned[cursor.topic.id, cursor.partition] = Assigned(cursor, at, at, committed)

    def replace(self, row: TopicRow) -> None:
        """Replace a topic that was altered, or deleted and created again."""
        others = {id: old for id, old in self._topics.items() if old.name != row.name}
        self._topics = {**others, row.id: row}

    def find(self, topic: str, partition: int) -> Assigned:
        """A partition by topic name."""
        for id, row in self._topics.items():
            if row.name == topic and (id, partition) in self.assigned:
                return self.assigned[id, partition]
        read = ", ".join(f"{name}/{number}" for name, number in sorted(self.names))
        raise UnknownPartition(
            f"This consumer does not read partition {partition} of {topic!r}",
            hint=f"It reads: {read or 'no partition'}",
        )

    def select(self, topic: str | None, partition: int | None) -> list[Assigned]:
        """One partition, all of a topic, or all partitions."""
        if topic is not None and partition is not None:
            return [self.find(topic, partition)]
        return [
            mine
            for place, mine in self.assigned.items()
            if (topic is None or self._topics[place[0]].name == topic)
            and (partition is None or place[1] == partition)
        ]

    def take(self, max_records: int) -> list[Batch]:
        """Take batches from the partitions in turn, so that a busy one does not starve others."""
        mine = [m for m in self.assigned.values() if not m.paused and m.error is None]
        batches: list[Batch] = []
        left = max_records
        try:
            for index in range(len(mine)):
                one = mine[(self._turn + index) % len(mine)]
                while left and (batch := _read(one, left)) is not None:
                    batches.append(batch)
                    left -= len(batch)
        except BaseException:
            self.put_back()  # the caller does not get these, so they must come again
            raise
        self._turn += 1
        return batches

    def records(self, batches: Sequence[Batch]) -> list[Record]:
        """The records of taken batches.

        A partition stops before a record that Python cannot hold; the others continue.
        """
        found: list[Record] = []
        stopped: set[Partition] = set()
        try:
            for batch in batches:
                if (batch.topic, batch.partition) in stopped:
                    continue
                records, error = batch.readable()
                found += records
                if error is not None:
                    stopped.add((batch.topic, batch.partition))
                    self.find(batch.topic, batch.partition).stop_at(error)
        except BaseException:
            self.put_back()
            raise
        return found

    def read_values_again(self) -> None:
        """Resume partitions that stopped at a value that Python cannot hold."""
        for mine in self.assigned.values():
            if isinstance(mine.error, UnreadableValue):
                mine.error = None

    def put_back(self) -> None:
        """Go back to the handled offsets, so that records taken but not handled come again."""
        for mine in self.assigned.values():
            if mine.cursor.position != mine.handled:
                mine.cursor.seek(mine.handled)

    def raise_errors(self) -> None:
        """Raise the error of a partition, of each in turn."""
        failed = [m for m in self.assigned.values() if m.error is not None and not m.paused]
        if not failed:
            return
        self._raised += 1
        _raise(failed[self._raised % len(failed)])

    def raise_news(self) -> None:
        """Raise a new error, even while other partitions always have records."""
        for mine in self.assigned.values():
            if mine.error is not None and not mine.raised and not mine.paused:
                _raise(mine)


def _raise(mine: Assigned) -> None:
    error, mine.raised = mine.error, True
    assert error is not None
    if not isinstance(error, CorruptSegment | OffsetOutOfRange | UnknownTopic | UnreadableRecord):
        mine.error = None  # it may be temporary
    raise error


def _read(mine: Assigned, rows: int) -> Batch | None:
    try:
        return mine.cursor.take(rows)
    except (LogError, OffsetOutOfRange, UnknownTopic) as error:
        mine.error, mine.raised = error, False  # this partition stops here; the others continue
        return None
