"""The position of a reader in a topic: a commit, and the next offset of each partition.

The commit makes it a consistent cut. The offsets reveal rows that retention removed before they
were read, and count the rows between two positions. The topic's id and the log's epoch say which
history they belong to (`plan.gaps` compares them).
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
from headrace.log import LATEST, Capability, Commit, Log, Offset, TopicCommit

_PAGE = 10_000


@dataclass(frozen=True)
class Position:
    """After `commit`, and before `offsets[p]` in partition p.

    Without an `id`, the position was stored before topics had ids.
    """

    commit: int
    offsets: tuple[int, ...]
    id: int | None = field(default=None, compare=False)
    """The id of the topic."""
    epoch: int = field(default=0, compare=False)
    """The epoch of the log that it was made in; each rollback starts another."""

    def rows_after(self, earlier: Position) -> int:
        """The number of rows between an earlier position and this one."""
        return sum(earlier.rows_before(self))

    def rows_before(self, later: Position) -> tuple[int, ...]:
        """The number of rows in each partition between this position and a later one."""
        return tuple(end - start for start, end in self.ranges(later))

    def ranges(self, later: Position) -> list[tuple[int, int]]:
        """The offsets from here to a later position, which may have more partitions."""
        starts = (*self.offsets, *(0 for _ in later.offsets[len(self.offsets) :]))
        return list(zip(starts, later.offsets, strict=True))

    def to_json(self) -> dict[str, Any]:
        offsets = {str(p): offset for p, offset in enumerate(self.offsets)}
        place: dict[str, Any] = {"commit": self.commit, "offsets": offsets}
        return place if self.id is None else {**place, "id": self.id, "epoch": self.epoch}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Position:
        offsets = tuple(data["offsets"][str(p)] for p in range(len(data["offsets"])))
        return Position(data["commit"], offsets, data.get("id"), data.get("epoch", 0))


Positions = Mapping[str, Position]
"""A position in each of some topics, by name."""


def beginning(log: Log, topic: str) -> Position:
    """The position before the oldest row that the topic still has."""
    identity = identity_of(log, topic)
    return Position(0, tuple(state.first for state in log.topic(topic).partitions), *identity)


def position_at(log: Log, topic: str, commit: int) -> Position:
    """The position after a commit."""
    # First: if the topic is created again meanwhile, its old id gives that away.
    identity = identity_of(log, topic)
    return Position(commit, log.offsets_at(topic, Commit(commit)), *identity)


def identity_of(log: Log, topic: str) -> tuple[int | None, int]:
    """The `id` and `epoch` of new positions in a topic."""
    return log.topic_ids([topic]).get(topic), max(log.rollbacks(), default=0)


def last_kept(log: Log, place: Position) -> int:
    """The last commit of a position's epoch that the log still has."""
    later = [first - 1 for epoch, first in log.rollbacks().items() if epoch > place.epoch]
    return min([log.head(), *later])


def lag_of(log: Log, reached: Positions) -> int:
    """The number of rows in the log after a position."""
    return total_lag(lags_of(log, reached))


def lags_of(log: Log, reached: Positions) -> dict[str, tuple[int, ...]]:
    """The number of rows in each partition after a position, by topic."""
    return {topic: _lags(log, topic, place) for topic, place in reached.items()}


def _lags(log: Log, topic: str, place: Position) -> tuple[int, ...]:
    end = _end_of(log, topic)
    if place.id not in (None, end.id) or len(place.offsets) > len(end.offsets):
        place = beginning(log, topic)  # nothing was read of another topic of that name
    elif end.id is not None and (kept := last_kept(log, place)) < place.commit:
        place = position_at(log, topic, kept)
    return place.rows_before(end)


def total_lag(lags: Mapping[str, tuple[int, ...]]) -> int:
    """The sum over all partitions."""
    return sum(map(sum, lags.values()))


def _end_of(log: Log, topic: str) -> Position:
    identity = identity_of(log, topic)
    # On Kafka, records that are in no commit yet are behind as well.
    return Position(log.head(), log.offsets_at(topic, LATEST), *identity)


def commit_by(log: Log, until: datetime | int) -> int:
    """The last commit by a moment, 0 if there is none; or that commit, if it is in the log."""
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
    """The time of a commit; 0 if it is gone, since the oldest go first."""
    try:
        return log.commit_time(commit)
    except InvalidPosition:
        return 0


def last_commit(positions: Positions) -> int:
    """The last commit that was read of any topic; 0 before the first."""
    return max(position.commit for position in positions.values())


def batch_end(checkpoint: Path, number: int) -> dict[str, Position]:
    """The end of a batch, as Spark writes it to a checkpoint before the batch begins."""
    _version, _settings, *lines = (checkpoint / "offsets" / str(number)).read_text().splitlines()
    sources = [line for line in lines if line != "-"]  # a source without a position yet
    if not sources:
        raise ValueError("there is no position in it")
    return dict(_source_end(checkpoint, number, json.loads(source)) for source in sources)


def _source_end(checkpoint: Path, number: int, end: Mapping[str, Any]) -> tuple[str, Position]:
    """The topic of a source and its end: as headrace's source writes it, or as Kafka's does."""
    if len(end) > 1:
        return end["topic"], Position.from_json(end)
    # Of Spark's own source for Kafka: in real time, batches count as commits.
    ((topic, offsets),) = end.items()
    return topic, Position.from_json({"commit": number + 1, "offsets": offsets})


def rows_in(log: Log, topic: str, start: Position, end: Position) -> int:
    """The number of records between two positions, by the log's own metadata."""
    if Capability.DENSE_OFFSETS in log.capabilities:
        return end.rows_after(start)
    # Markers of transactions take offsets, too.
    begin = log.offsets_at(topic, Commit(start.commit))
    if begin[: len(start.offsets)] == start.offsets:
        return _rows_of_commits(log, topic, start.commit, end.commit)
    # It begins where retention has cut off rows, and not at the end of a commit.
    return sum(
        len(batch)
        for partition, (first, last) in enumerate(start.ranges(end))
        for batch in log.read(
            topic, start=Offset(first), stop=Offset(last), partitions=[partition], judged=True
        )
    )


def rows_by_topic(log: Log, start: Positions, end: Positions) -> dict[str, int]:
    """The number of records between two positions, by topic."""
    return {topic: rows_in(log, topic, start[topic], end[topic]) for topic in end}


def _rows_of_commits(log: Log, topic: str, after: int, upto: int) -> int:
    rows = 0
    while page := log.commits(topic, after, _PAGE):
        rows += sum(commit.rows for commit in page if commit.number <= upto)
        after = page[-1].number
        if after >= upto or len(page) < _PAGE:
            break
    return rows


def lowest_frontier(log: Log, end: Positions) -> int | None:
    """The lowest frontier of all topics; None until each has one."""
    found = [log.frontier(topic, position.commit) for topic, position in end.items()]
    return min((f for f in found if f is not None), default=None) if None not in found else None


def behind(one: Positions, other: Positions) -> bool:
    """True if a position is before another in any topic."""
    return any(one[topic].commit < other[topic].commit for topic in one if topic in other)


def commits_told(positions: Positions) -> str:
    """Format positions for people."""
    return ", ".join(f"commit {position.commit} of {t}" for t, position in positions.items())


def positions_from_json(text: str) -> dict[str, Position]:
    """Parse stored positions."""
    return {topic: Position.from_json(data) for topic, data in json.loads(text).items()}


def next_cut(log: Log, topic: str, after: int, *, rows: int, commits: int, upto: int) -> int:
    """The commit at which a batch that begins after one should end, no later than `upto`.

    It takes whole commits until a limit is reached. Only commits of the topic count, so that a
    reader's own output to other topics does not wake it.
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
    """A topic's commits, looked up in pages during a scan."""

    def __init__(self, log: Log, topic: str) -> None:
        self._log = log
        self._topic = topic
        self._known: dict[int, TopicCommit] = {}

    def __getitem__(self, number: int) -> TopicCommit:
        if number not in self._known:
            page = self._log.commits(self._topic, number - 1, 1_000)
            self._known = {commit.number: commit for commit in page}
        return self._known[number]
