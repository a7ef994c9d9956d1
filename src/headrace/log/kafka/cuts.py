"""Commits of a log on Kafka: cuts through the partitions of its topics.

A cut names an end offset for some partitions, and how the records up to there stand in time. The
journal orders cuts. Each adds to the ends that those before it have reached, so all readers who
read them in that order have the same commits.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import Any

from headrace.errors import LogError
from headrace.log.state import TopicCommit

NONE = -(1 << 62)
"""The frontier of a partition without a valid event time: lower than any."""

_UNKNOWN = 1 << 62
"""`behind` of rows whose frontier is not that which the cut was made with."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """The records that a cut adds of one partition: offsets from `start` up to `end`.

    There are `rows` of them, since markers take offsets too, and `misplaced` have no valid event
    time. `before` and `after` are the partition's frontier. `oldest` is the lowest valid event
    time, and `behind` how far a row is at most behind the frontier that it met.
    """

    partition: int
    start: int
    end: int
    rows: int = 0
    misplaced: int = 0
    oldest: int | None = None
    before: int = NONE
    after: int = NONE
    behind: int = 0


@dataclass(frozen=True, slots=True)
class Cut:
    """A commit of one topic: its number, and the end and frontier of each partition after it."""

    number: int
    ends: tuple[int, ...]
    frontiers: tuple[int, ...]
    rows: int = 0
    misplaced: int = 0
    oldest: int | None = None
    behind: int = 0

    @property
    def lowest(self) -> int:
        """The moment that no row before which is still expected."""
        return min(self.frontiers, default=NONE)

    @property
    def frontier(self) -> int | None:
        """The lowest frontier, if each partition has one."""
        return None if self.lowest == NONE else self.lowest


def _numbers() -> array[int]:
    return array("q")


@dataclass
class _Partition:
    """The end and frontier of one partition after each commit, from the one at `since` on."""

    since: int
    ends: array[int] = field(default_factory=_numbers)
    frontiers: array[int] = field(default_factory=_numbers)


@dataclass
class TopicCuts:
    """The commits of one topic, in order, from where its first cut began.

    There may be millions of them, so they are kept in columns: 40 bytes each, and 16 a partition.
    """

    begins: list[int] = field(default_factory=list)
    numbers: array[int] = field(default_factory=_numbers)
    _rows: array[int] = field(default_factory=_numbers)
    _misplaced: array[int] = field(default_factory=_numbers)
    _oldest: array[int] = field(default_factory=_numbers)
    _behind: array[int] = field(default_factory=_numbers)
    _partitions: list[_Partition] = field(default_factory=list)

    @property
    def last(self) -> Cut:
        """The last cut, or an empty one."""
        return self._cut(len(self.numbers) - 1) if self.numbers else Cut(0, (), ())

    def at(self, commit: int) -> Cut:
        """The last cut up to a commit; one without rows before the first."""
        place = bisect_right(self.numbers, commit)
        none = len(self.begins)
        return self._cut(place - 1) if place else Cut(0, tuple(self.begins), (NONE,) * none)

    def after(self, commit: int, limit: int) -> list[TopicCommit]:
        """The next commits after one."""
        first = bisect_right(self.numbers, commit)
        before = self.at(commit).frontier
        found = []
        for place in range(first, min(first + limit, len(self.numbers))):
            cut = self._cut(place)
            found.append(
                TopicCommit(
                    cut.number, cut.rows, before, cut.frontier, cut.oldest, cut.misplaced,
                    None, cut.behind,
                )
            )  # fmt: skip
            before = cut.frontier
        return found

    def of(self, partition: int, offset: int) -> Cut:
        """The last cut that ends in a partition at an offset, or before it."""
        place = self._beyond(partition, offset)
        return self._cut(place - 1) if place else self.at(0)

    def covering(self, partition: int, offset: int) -> Cut | None:
        """The cut that has the record at an offset; None if none has it yet."""
        place = self._beyond(partition, offset)
        if place == len(self.numbers) or offset < self.begins[partition]:
            return None
        return self._cut(place)

    def _beyond(self, partition: int, offset: int) -> int:
        """The index of the first cut that ends beyond an offset."""
        if partition >= len(self._partitions):
            return len(self.numbers)
        mine = self._partitions[partition]
        return mine.since + bisect_right(mine.ends, offset)

    def _cut(self, place: int) -> Cut:
        there = [one for one in self._partitions if one.since <= place]
        oldest = self._oldest[place]
        return Cut(
            self.numbers[place],
            tuple(one.ends[place - one.since] for one in there),
            tuple(one.frontiers[place - one.since] for one in there),
            self._rows[place],
            self._misplaced[place],
            None if oldest == NONE else oldest,
            self._behind[place],
        )

    def add(self, number: int, stretches: Iterable[Stretch]) -> None:
        """Add the stretches that continue where their partition ends. Others came too late."""
        last = self.last
        ends, frontiers = list(last.ends), list(last.frontiers)
        taken: list[Stretch] = []
        for stretch in sorted(stretches, key=lambda one: one.partition):
            place = stretch.partition
            if place == len(ends):
                self.begins.append(stretch.start)
                ends.append(stretch.start)
                # A partition that was added begins at the lowest frontier of the others.
                frontiers.append(last.lowest)
            if place >= len(ends) or ends[place] != stretch.start or stretch.end < stretch.start:
                continue
            if stretch.before != frontiers[place] and stretch.rows:
                stretch = replace(stretch, behind=_UNKNOWN)
            taken.append(stretch)
            ends[place] = stretch.end
            frontiers[place] = max(frontiers[place], stretch.after)
        if ends != list(last.ends) or frontiers != list(last.frontiers):
            known = [one.oldest for one in taken if one.oldest is not None]
            self._append(
                number,
                ends,
                frontiers,
                sum(one.rows for one in taken),
                sum(one.misplaced for one in taken),
                min(known, default=NONE),
                max((one.behind for one in taken), default=0),
            )

    def advance(self, number: int, moment: int) -> None:
        """Advance the frontier of all partitions to a moment."""
        last = self.last
        frontiers = [max(moment, known) for known in last.frontiers]
        if frontiers != list(last.frontiers):
            self._append(number, last.ends, frontiers, 0, 0, NONE, 0)

    def _append(
        self,
        number: int,
        ends: Sequence[int],
        frontiers: Sequence[int],
        rows: int,
        misplaced: int,
        oldest: int,
        behind: int,
    ) -> None:
        for _ in ends[len(self._partitions) :]:
            self._partitions.append(_Partition(len(self.numbers)))
        for one, end, frontier in zip(self._partitions, ends, frontiers, strict=True):
            one.ends.append(end)
            one.frontiers.append(frontier)
        self.numbers.append(number)
        self._rows.append(rows)
        self._misplaced.append(misplaced)
        self._oldest.append(oldest)
        self._behind.append(behind)


@dataclass(frozen=True)
class Record:
    """A record of the journal: cuts of topics, by id, or a moment that a topic has reached.

    The first record of a journal says when it was `made`, which tells it from any other.
    """

    cuts: Mapping[int, tuple[Stretch, ...]] = field(default_factory=dict)
    advance: Mapping[int, int] = field(default_factory=dict)
    made: int | None = None

    def to_json(self) -> bytes:
        data: dict[str, Any] = {}
        if self.made is not None:
            data["made"] = self.made
        if self.cuts:
            data["cuts"] = {
                f"{topic:x}": [list(astuple(one)) for one in found]
                for topic, found in self.cuts.items()
            }
        if self.advance:
            data["advance"] = {f"{topic:x}": moment for topic, moment in self.advance.items()}
        return json.dumps(data, separators=(",", ":")).encode()

    @staticmethod
    def from_json(text: bytes) -> Record:
        try:
            data = json.loads(text)
            return Record(
                {
                    int(topic, 16): tuple(Stretch(*one) for one in found)
                    for topic, found in data.get("cuts", {}).items()
                },
                {int(topic, 16): int(m) for topic, m in data.get("advance", {}).items()},
                data.get("made"),
            )
        except (ValueError, TypeError, AttributeError) as error:
            raise LogError(
                f"A record of the journal of commits cannot be read: {error!r}",
                hint="Another program has written to the topic _headrace.commits",
            ) from error


@dataclass
class Index:
    """All commits of a log, as far as they were read."""

    topics: dict[int, TopicCuts] = field(default_factory=dict)
    times: array[int] = field(default_factory=_numbers)
    """The time of each record of the journal, from the first on."""
    made: int | None = None

    @property
    def head(self) -> int:
        """The number of the last commit; that of the journal's first record is 0."""
        return max(0, len(self.times) - 1)

    def add(self, record: Record, time: int) -> None:
        """Add the next record."""
        number = len(self.times)
        self.times.append(time)
        if self.made is None:
            self.made = record.made
        for topic, stretches in record.cuts.items():
            self.topics.setdefault(topic, TopicCuts()).add(number, stretches)
        for topic, moment in record.advance.items():
            self.topics.setdefault(topic, TopicCuts()).advance(number, moment)
