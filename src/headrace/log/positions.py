"""How far a consumer is, in each of the partitions that it reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

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
from headrace.log.group_offsets import Place
from headrace.log.record import Batch, Record


class Cursor(Protocol):
    """A reader's place in one partition."""

    topic: TopicRow
    partition: int
    position: int

    def seek(self, position: int) -> None:
        """Go on from another offset."""

    def take(self, rows: int) -> Batch | None:
        """The next rows, at most so many; None if there are none."""


@dataclass
class Assigned:
    """A partition that is read, and how far reading it has come."""

    cursor: Cursor
    origin: int
    """Where reading began."""
    handled: int
    """Where the group goes on once this is committed."""
    committed: int | None
    moves: int = 0
    """How often somebody has moved on or back by hand."""
    paused: bool = False
    error: HeadraceError | None = None
    """Why nothing more can be read here, until somebody seeks."""
    told: bool = False
    """Whether somebody has heard of the error."""

    @property
    def uncommitted(self) -> bool:
        return self.handled != (self.origin if self.committed is None else self.committed)

    def go_to(self, offset: int) -> None:
        self.cursor.seek(offset)
        self.handled = offset
        self.moves += 1
        self.error = None

    def stop_at(self, error: UnreadableValue, *, told: bool = False) -> None:
        """Read no further than the record that the error is about."""
        self.cursor.seek(error.details["offset"])
        self.error, self.told = error, told


class Positions:
    """The partitions of a consumer, by topic number and partition."""

    def __init__(self, topics: Sequence[TopicRow]) -> None:
        self._topics = {topic.id: topic for topic in topics}
        self._turn = 0
        self._told = -1
        self.assigned: dict[Place, Assigned] = {}

    @property
    def names(self) -> frozenset[Partition]:
        """The partitions, as people call them."""
        return frozenset((self._topics[t].name, partition) for t, partition in self.assigned)

    def start(self, cursor: Cursor, committed: int | None) -> None:
        """Read a partition too, from where its cursor is."""
        at = cursor.position
        self.assigned[cursor.topic.id, cursor.partition] = Assigned(cursor, at, at, committed)

    def replace(self, row: TopicRow) -> None:
        """Hear that a topic is another now than it was."""
        others = {id: old for id, old in self._topics.items() if old.name != row.name}
        self._topics = {**others, row.id: row}

    def find(self, topic: str, partition: int) -> Assigned:
        """One partition by name."""
        for id, row in self._topics.items():
            if row.name == topic and (id, partition) in self.assigned:
                return self.assigned[id, partition]
        read = ", ".join(f"{name}/{number}" for name, number in sorted(self.names))
        raise UnknownPartition(
            f"This consumer does not read partition {partition} of {topic!r}",
            hint=f"It reads: {read or 'none'}",
        )

    def select(self, topic: str | None, partition: int | None) -> list[Assigned]:
        """One partition, or all of a topic, or all."""
        if topic is not None and partition is not None:
            return [self.find(topic, partition)]
        return [
            mine
            for place, mine in self.assigned.items()
            if (topic is None or self._topics[place[0]].name == topic)
            and (partition is None or place[1] == partition)
        ]

    def take(self, max_records: int) -> list[Batch]:
        """Batches from the partitions in turn, so that a busy one does not starve the others."""
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
            self.put_back()  # nobody gets to see these, so they come again
            raise
        self._turn += 1
        return batches

    def records(self, batches: Sequence[Batch]) -> list[Record]:
        """The records of batches that were taken.

        A partition stops before a record that Python cannot hold; the others go on.
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
        """Go on where a value that Python cannot hold had stopped a partition."""
        for mine in self.assigned.values():
            if isinstance(mine.error, UnreadableValue):
                mine.error = None

    def put_back(self) -> None:
        """Have what was taken and not handled come again."""
        for mine in self.assigned.values():
            if mine.cursor.position != mine.handled:
                mine.cursor.seek(mine.handled)

    def raise_errors(self) -> None:
        """Tell what is wrong, one partition after the other and over again."""
        wrong = [m for m in self.assigned.values() if m.error is not None and not m.paused]
        if not wrong:
            return
        self._told += 1
        _tell(wrong[self._told % len(wrong)])

    def raise_news(self) -> None:
        """Tell what nobody has heard of yet: the other partitions may never have a rest."""
        for mine in self.assigned.values():
            if mine.error is not None and not mine.told and not mine.paused:
                _tell(mine)


def _tell(mine: Assigned) -> None:
    error, mine.told = mine.error, True
    assert error is not None
    if not isinstance(error, CorruptSegment | OffsetOutOfRange | UnknownTopic | UnreadableRecord):
        mine.error = None  # it may be better next time
    raise error


def _read(mine: Assigned, rows: int) -> Batch | None:
    try:
        return mine.cursor.take(rows)
    except (LogError, OffsetOutOfRange, UnknownTopic) as error:
        mine.error, mine.told = error, False  # this partition stops here; the others go on
        return None
