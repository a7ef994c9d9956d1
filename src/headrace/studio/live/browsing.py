"""Find records of a topic: newest first or from a position on, with bounded work.

Without a filter, a page reads as many rows as it shows, however many the topic has. With one, it
reads at most `SEARCHED` rows, and its cursor continues the search where it ended.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from headrace.errors import OffsetOutOfRange, UnknownPartition
from headrace.log import Batch, Commit, Log, Offset, Record, TopicState, parse_position
from headrace.studio.live.cursor import Cursor, Range
from headrace.studio.live.matching import matching

PAGE = 50
SEARCHED = 200_000
"""Rows that one search reads at most."""
_SEARCHED_BYTES = 256 << 20
_BLOCK_ROWS = 50_000
_BLOCK_BYTES = 16 << 20
_PARTITIONS = 64
"""Partitions that one page reads at most, or as many as it has rows."""
_CURSOR_PARTITIONS = 250
"""Partitions that fit the address."""


@dataclass(frozen=True)
class Wanted:
    """The records that somebody asks for. All of it fits an address.

    `at` is a position: records from there on, oldest first. Without it, the newest come first.
    `asof` is a commit: records after it are not there yet.
    """

    at: str = ""
    partition: int | None = None
    key: str = ""
    text: str = ""
    asof: int | None = None
    cursor: str = ""
    limit: int = PAGE

    @property
    def filtered(self) -> bool:
        """True if rows have to be read to know if they are wanted."""
        return bool(self.key or self.text)

    @property
    def ascending(self) -> bool:
        return self.at not in ("", "latest")

    def parameters(self) -> dict[str, object]:
        """The address, without the cursor."""
        return {
            "at": self.at,
            "partition": self.partition,
            "key": self.key,
            "text": self.text,
            "asof": self.asof,
        }


@dataclass(frozen=True)
class Found:
    """Records, and a cursor for those that follow, if there may be any."""

    records: list[Record]
    cursor: str | None = None
    scanned: int = 0
    notes: tuple[str, ...] = ()


def browse(
    log: Log, state: TopicState, wanted: Wanted, after: dict[int, int] | None = None
) -> Found:
    """The wanted records of a topic; with `after`, only those from these offsets on."""
    ranges = _ranges(log, state, wanted)
    for partition, offset in (after or {}).items():
        if partition in ranges:
            low, high = ranges[partition]
            ranges[partition] = (max(low, offset), high)
    cursor = Cursor.parse(wanted.cursor)
    ranges = {
        p: r
        for p, r in cursor.applied(log, state, ranges, ascending=wanted.ascending).items()
        if r[0] < r[1]
    }
    chosen = _chosen(state, ranges, wanted)
    notes = []
    if len(chosen) < len(ranges) and (wanted.filtered or wanted.ascending):
        notes.append(f"{len(chosen)} of {len(ranges)} partitions were read: choose one")
    scans = {p: _Scan.of(state, p, ranges[p], wanted, len(chosen)) for p in chosen}
    runs = [list(scan.run(log)) for scan in scans.values()]
    merged = heapq.merge(*runs, key=_order, reverse=not wanted.ascending)
    shown = list(itertools.islice(merged, wanted.limit))
    scanned = sum(scan.scanned for scan in scans.values())
    left = len(chosen) < len(ranges)
    moved = {}
    for partition, run in zip(scans, runs, strict=True):
        mine = [record.offset for record in shown if record.partition == partition]
        bound = scans[partition].bound(mine, whole=len(mine) == len(run))
        low, high = ranges[partition]
        rest = (bound, high) if wanted.ascending else (low, bound)
        left = left or rest[0] < rest[1]
        moved[partition] = bound
    if wanted.filtered and len(shown) < wanted.limit and left:
        notes.append(f"Searched {scanned:,} rows. The next page searches on")
    following = cursor.moved(log, moved)
    if left and len(following.bounds) > _CURSOR_PARTITIONS:
        notes.append("Choose a partition to go on")
        left = False
    return Found(shown, str(following) if left else None, scanned, tuple(notes))


def ends_of(state: TopicState) -> dict[int, int]:
    """The offset after the last record of each partition."""
    return {each.partition: each.end for each in state.partitions}


def one_record(log: Log, topic: str, partition: int, offset: int) -> Batch:
    """A record by its place, as a batch of one row."""
    state = log.topic(topic)
    check_partition(state, partition)
    first, end = state.partitions[partition].first, state.partitions[partition].end
    if first <= offset < end:
        start, stop = Offset(offset), Offset(offset + 1)
        for batch in log.read(topic, start=start, stop=stop, partitions=[partition]):
            return batch
    raise OffsetOutOfRange(
        f"Partition {partition} of {topic!r} has no record at offset {offset}",
        hint="Retention or compaction may have removed it",
    )


def check_partition(state: TopicState, partition: int) -> None:
    """Raise if a topic has no such partition."""
    if not 0 <= partition < state.topic.partitions:
        raise UnknownPartition(
            f"Topic {state.topic.name!r} has no partition {partition}",
            hint=f"It has the partitions 0 to {state.topic.partitions - 1}",
        )


def _ranges(log: Log, state: TopicState, wanted: Wanted) -> dict[int, Range]:
    """The offsets to look at, by partition."""
    name = state.topic.name
    if wanted.partition is not None:
        check_partition(state, wanted.partition)
    ranges = {
        each.partition: (each.first, each.end)
        for each in state.partitions
        if wanted.partition in (None, each.partition)
    }
    if wanted.asof is not None:
        for partition, (low, high) in ranges.items():
            stop = log.offset_at(name, partition, Commit(wanted.asof))
            ranges[partition] = (low, min(high, stop))
    if not wanted.ascending:
        return ranges
    position = parse_position(wanted.at)
    outside: OffsetOutOfRange | None = None
    for partition, (_, high) in list(ranges.items()):
        try:
            ranges[partition] = (log.offset_at(name, partition, position), high)
        except OffsetOutOfRange as error:
            outside = error
            del ranges[partition]
    if outside is not None and not ranges:
        raise outside
    return ranges


def _chosen(state: TopicState, ranges: dict[int, Range], wanted: Wanted) -> list[int]:
    """The partitions to read.

    The newest N records are in the N partitions that were appended to last.
    """
    most = max(_PARTITIONS, wanted.limit)
    if len(ranges) <= most:
        return list(ranges)
    last = {each.partition: each.last_append or 0 for each in state.partitions}
    return sorted(ranges, key=lambda p: last[p], reverse=True)[:most]


def _order(record: Record) -> tuple[object, int, int]:
    return record.timestamp, record.partition, record.offset


@dataclass
class _Scan:
    """Reads one partition block by block until it has a page of matches or is out of budget."""

    topic: str
    partition: int
    low: int
    high: int
    wanted: Wanted
    rows: int
    bytes: int
    block: int
    scanned: int = 0

    @classmethod
    def of(
        cls, state: TopicState, partition: int, range: Range, wanted: Wanted, among: int
    ) -> _Scan:
        held = state.partitions[partition]
        average = max(1, (held.bytes or 0) // max(1, held.end - held.first))
        block = wanted.limit
        if wanted.filtered:
            block = max(256, min(_BLOCK_ROWS, _BLOCK_BYTES // average))
        rows = max(1000, SEARCHED // among)
        size = max(_BLOCK_BYTES // 2, _SEARCHED_BYTES // among)
        return cls(state.topic.name, partition, *range, wanted, rows, size, block)

    def run(self, log: Log) -> Iterator[Record]:
        """Up to a page of matches, in order. Afterwards, `low` or `high` is where it ended."""
        matched = matching(self.wanted.key, self.wanted.text)
        found, read = 0, 0
        while self.low < self.high and found < self.wanted.limit:
            if self.wanted.filtered and (self.scanned >= self.rows or read >= self.bytes):
                return
            first, stop = self._next_block()
            batches = []
            try:
                for batch in log.read(
                    self.topic,
                    start=Offset(first),
                    stop=Offset(stop),
                    partitions=[self.partition],
                ):
                    self.scanned += len(batch)
                    read += batch.data.nbytes
                    batches.append(matched(batch))
            except OffsetOutOfRange:
                # Retention deleted it meanwhile.
                self.low = self.high
                return
            for record in _records(batches, ascending=self.wanted.ascending):
                yield record
                found += 1
                if found == self.wanted.limit:
                    self._end_at(record.offset)
                    return
            self._end_block(first, stop)

    def bound(self, shown: list[int], *, whole: bool) -> int:
        """The start of the next page, if these of its records are shown."""
        if whole:
            return self.low if self.wanted.ascending else self.high
        if not shown:
            return self._start
        return shown[-1] + 1 if self.wanted.ascending else shown[-1]

    def __post_init__(self) -> None:
        self._start = self.low if self.wanted.ascending else self.high

    def _next_block(self) -> Range:
        if self.wanted.ascending:
            return self.low, min(self.high, self.low + self.block)
        return max(self.low, self.high - self.block), self.high

    def _end_at(self, offset: int) -> None:
        if self.wanted.ascending:
            self.low = offset + 1
        else:
            self.high = offset

    def _end_block(self, first: int, stop: int) -> None:
        if self.wanted.ascending:
            self.low = stop
        else:
            self.high = first
        # Compaction leaves gaps, which a small block would step through slowly.
        self.block = min(_BLOCK_ROWS, self.block * 4)


def _records(batches: list[Batch], *, ascending: bool) -> Iterator[Record]:
    for batch in batches if ascending else reversed(batches):
        records = list(batch.records(as_text=True))
        yield from records if ascending else reversed(records)
