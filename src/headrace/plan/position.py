"""How far a reader is in a topic: a commit, and the offset it comes to in each partition.

The commit makes it a consistent cut. The offsets make rows that retention took away before they
were read an error, and tell how many rows there are between two positions. The id of the topic and
the number of the log's history say what they count in (`engine.gaps` compares them).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from headrace.clock import to_micros
from headrace.errors import InvalidPosition
from headrace.log import LATEST, Capability, Commit, Log, TopicCommit

_PAGE = 10_000

START = "headrace.start"
"""Where a checkpoint has the number that its batches are counted from."""


@dataclass(frozen=True)
class Position:
    """After `commit`, and before `offsets[p]` in partition p.

    Without an `id` it is one of a broker's topic, or was stored before topics had ids.
    """

    commit: int
    offsets: tuple[int, ...]
    id: int | None = field(default=None, compare=False)
    """The id of the topic."""
    epoch: int = field(default=0, compare=False)
    """The history of the log that it was made in; there is another after each rollback."""

    def rows_after(self, earlier: Position) -> int:
        """How many rows lie between an earlier position and this one."""
        return sum(earlier.rows_before(self))

    def rows_before(self, later: Position) -> tuple[int, ...]:
        """How many rows each partition has between this position and a later one."""
        return tuple(end - start for start, end in self.ranges(later))

    def ranges(self, later: Position) -> list[tuple[int, int]]:
        """The offsets from here to a later position, by partition, of which there may be more."""
        starts = (*self.offsets, *(0 for _ in later.offsets[len(self.offsets) :]))
        return list(zip(starts, later.offsets, strict=True))

    def to_json(self) -> dict[str, Any]:
        place = {"commit": self.commit, "offsets": {str(p): o for p, o in enumerate(self.offsets)}}
        return place if self.id is None else {**place, "id": self.id, "epoch": self.epoch}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Position:
        offsets = tuple(data["offsets"][str(p)] for p in range(len(data["offsets"])))
        return Position(data["commit"], offsets, data.get("id"), data.get("epoch", 0))


def beginning(log: Log, topic: str) -> Position:
    """Before the oldest row that the topic still has."""
    identity = identity_of(log, topic)
    return Position(0, tuple(state.first for state in log.topic(topic).partitions), *identity)


def position_at(log: Log, topic: str, commit: int) -> Position:
    """After a commit."""
    # Asked for first: of a topic that is made again meanwhile, the id does not fit the offsets.
    identity = identity_of(log, topic)
    partitions = range(log.topic(topic).topic.partitions)
    offsets = tuple(log.offset_at(topic, p, Commit(commit)) for p in partitions)
    return Position(commit, offsets, *identity)


def identity_of(log: Log, topic: str) -> tuple[int | None, int]:
    """The `id` and `epoch` of positions in a topic that are made now."""
    if Capability.COMMITS not in log.capabilities:
        return None, 0
    return log.topic_ids([topic]).get(topic), max(log.rollbacks(), default=0)


def last_kept(log: Log, place: Position) -> int:
    """The last commit that the log still has of the history that a place is in."""
    later = [first - 1 for epoch, first in log.rollbacks().items() if epoch > place.epoch]
    return min([log.head(), *later])


def lag_of(log: Log, reached: Mapping[str, Position]) -> int:
    """How many rows the log has after a place."""
    return total_lag(lags_of(log, reached))


def lags_of(log: Log, reached: Mapping[str, Position]) -> dict[str, tuple[int, ...]]:
    """How many rows each partition has after a place, by topic."""
    return {topic: _lags(log, topic, place) for topic, place in reached.items()}


def _lags(log: Log, topic: str, place: Position) -> tuple[int, ...]:
    end = _end_of(log, topic, place)
    if place.id not in (None, end.id) or len(place.offsets) > len(end.offsets):
        place = beginning(log, topic)  # of another topic of that name, nothing was read
    elif end.id is not None and (kept := last_kept(log, place)) < place.commit:
        place = position_at(log, topic, kept)
    return place.rows_before(end)


def total_lag(lags: Mapping[str, tuple[int, ...]]) -> int:
    """How many rows that are of all partitions."""
    return sum(map(sum, lags.values()))


def _end_of(log: Log, topic: str, place: Position) -> Position:
    if Capability.COMMITS in log.capabilities:
        return position_at(log, topic, log.head())
    # To ask for no more than offsets takes a broker a moment, to describe the topic takes longer.
    partitions = range(len(place.offsets))
    return Position(0, tuple(log.offset_at(topic, p, LATEST) for p in partitions))


def commit_by(log: Log, until: datetime | int) -> int:
    """The last commit that was made by a moment, 0 if none was; or that number if there is one."""
    low, high = 0, log.head()
    if isinstance(until, int):
        if not low <= until <= high:
            raise InvalidPosition(f"Commit {until} is not in the log", hint=f"The last is {high}")
        return until
    moment = to_micros(until)
    while low < high:
        middle = (low + high + 1) // 2
        if _made(log, middle) <= moment:
            low = middle
        else:
            high = middle - 1
    return low


def _made(log: Log, commit: int) -> int:
    """When a commit was made; those that are gone went with their records, and were the first."""
    try:
        return log.commit_time(commit)
    except InvalidPosition:
        return 0


def last_commit(positions: Mapping[str, Position]) -> int:
    """The last commit that has been read of any topic; 0 before the first."""
    return max(position.commit for position in positions.values())


def batch_end(checkpoint: Path, number: int) -> dict[str, Position]:
    """Up to where a batch goes, as Spark has written it into a checkpoint before it began."""
    _version, _settings, *lines = (checkpoint / "offsets" / str(number)).read_text().splitlines()
    sources = [line for line in lines if line != "-"]  # which is a source that has no place yet
    if not sources:
        raise ValueError("there is no position in it")
    return dict(_source_end(checkpoint, number, json.loads(source)) for source in sources)


def _source_end(checkpoint: Path, number: int, told: Mapping[str, Any]) -> tuple[str, Position]:
    """The topic of a source and its end in it: as our own source tells it, or Kafka's."""
    if len(told) > 1:
        return told["topic"], Position.from_json(told)
    ((topic, offsets),) = told.items()
    commit = started_at(checkpoint) + number + 1
    return topic, Position.from_json({"commit": commit, "offsets": offsets})


def started_at(checkpoint: Path) -> int:
    """The number before that of a checkpoint's first batch, where batches count as commits.

    It is not 0 where a checkpoint was lost and another one goes on from what is stored.
    """
    start = checkpoint / START
    return int(start.read_text()) if start.exists() else 0


def lowest_frontier(log: Log, end: Mapping[str, Position]) -> int | None:
    """The lowest of the frontiers of all topics; none before each of them has one."""
    found = [log.frontier(topic, position.commit) for topic, position in end.items()]
    return min((f for f in found if f is not None), default=None) if None not in found else None


def behind(one: Mapping[str, Position], other: Mapping[str, Position]) -> bool:
    """Whether one place lies before another in any topic."""
    return any(one[topic].commit < other[topic].commit for topic in one if topic in other)


def commits_told(positions: Mapping[str, Position]) -> str:
    """A place in several topics, in words."""
    return ", ".join(f"commit {position.commit} of {t}" for t, position in positions.items())


def positions_from_json(text: str) -> dict[str, Position]:
    """A place in several topics that was stored."""
    return {topic: Position.from_json(data) for topic, data in json.loads(text).items()}


def next_cut(log: Log, topic: str, after: int, *, rows: int, commits: int, upto: int) -> int:
    """The commit at which a batch that begins after one should end, and no later than `upto`.

    It takes whole commits until it has so many rows or so many commits. Only commits of the topic
    count, so that a reader does not wake for what it writes elsewhere itself.
    """
    last = after
    while True:
        page = log.commits(topic, last, min(commits, _PAGE))
        for commit in page:
            if commit.number > upto:
                return last
            last = commit.number
            rows -= commit.rows
            commits -= 1
            if rows <= 0 or commits <= 0:
                return last
        if len(page) < _PAGE:
            return last


class Commits:
    """What the log knows of a topic's commits, looked up in pages as a scan comes to them."""

    def __init__(self, log: Log, topic: str) -> None:
        self._log = log
        self._topic = topic
        self._known: dict[int, TopicCommit] = {}

    def __getitem__(self, number: int) -> TopicCommit:
        if number not in self._known:
            page = self._log.commits(self._topic, number - 1, 1_000)
            self._known = {commit.number: commit for commit in page}
        return self._known[number]
