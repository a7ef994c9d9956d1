"""A model of a log in plain Python: a list per partition, and a dict per group."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from headrace.log import Record

Place = tuple[str, int]


@dataclass(frozen=True)
class Entry:
    """A record as a reader should get it."""

    offset: int
    key: Any
    value: Any
    commit: int
    time: datetime

    @classmethod
    def of(cls, record: Record) -> Entry:
        assert record.commit is not None
        return cls(record.offset, record.key, record.value, record.commit, record.timestamp)


@dataclass
class PartitionModel:
    first: int = 0
    end: int = 0
    entries: list[Entry] = field(default_factory=list)
    history: dict[int, Entry] = field(default_factory=dict)

    def add(self, key: Any, value: Any, commit: int, time: datetime) -> None:
        entry = Entry(self.end, key, value, commit, time)
        self.entries.append(entry)
        self.history[self.end] = entry
        self.end += 1

    def between(self, low: Callable[[Entry], bool], high: Callable[[Entry], bool]) -> list[Entry]:
        return [entry for entry in self.entries if low(entry) and high(entry)]

    def cut(self, first: int) -> list[Entry]:
        """Remove everything before an offset; returns the removed entries."""
        gone = [entry for entry in self.entries if entry.offset < first]
        self.entries = self.entries[len(gone) :]
        self.first = first
        return gone

    def compact(self, now: datetime, tombstones: timedelta) -> None:
        """Keep the last record of each key, and tombstones for their retention."""
        last = {entry.key: entry.offset for entry in self.entries}
        self.entries = [
            entry
            for entry in self.entries
            if last[entry.key] == entry.offset
            and not (entry.value is None and entry.time + tombstones < now)
        ]


@dataclass
class TopicModel:
    name: str
    typed: bool
    compacts: bool
    partitions: list[PartitionModel]
    frontier: int | None = None


@dataclass
class GroupModel:
    """The position of a group's only member, and its committed offsets."""

    topic: str
    position: dict[int, int]
    committed: dict[int, int]


@dataclass
class LogModel:
    topics: dict[str, TopicModel] = field(default_factory=dict)
    groups: dict[str, GroupModel] = field(default_factory=dict)
    head: int = 0
    last_time: int = 0
    sequence: int = 0

    def places(self) -> list[Place]:
        return [(name, p) for name, t in self.topics.items() for p in range(len(t.partitions))]


def check_polled(partition: PartitionModel, position: int, found: Iterable[Record]) -> int:
    """Compare polled records with the model; returns the consumer's new position.

    Records that compaction has removed since may still be returned. Others must be in order and
    complete.
    """
    entries = [Entry.of(record) for record in found]
    offsets = [entry.offset for entry in entries]
    assert offsets == sorted(set(offsets))
    assert all(offset >= position for offset in offsets)
    for entry in entries:
        assert entry == partition.history[entry.offset]
    if not offsets:
        return position
    must = {e.offset for e in partition.entries if position <= e.offset <= offsets[-1]}
    assert must <= set(offsets)
    return offsets[-1] + 1
