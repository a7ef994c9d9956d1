"""The captured changes of a range, in the order in which the database committed them."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from graphlib import CycleError, TopologicalSorter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.cdc.envelope import KEY, SOURCE
from headrace.clock import micros, to_text
from headrace.errors import ChangesRemoved, InvalidPosition, UnreadableRecord, UserError
from headrace.log.interface import Capability, Log
from headrace.log.position import EARLIEST, Commit, Earliest, Latest, Position, Time
from headrace.log.record import Batch
from headrace.log.state import PartitionState, Topic
from headrace.wording import many

_MARGIN = micros(timedelta(hours=1))
"""A change may be appended by a clock that is as much behind that of its database."""


@dataclass(frozen=True)
class CapturedTable:
    """A table of a database, and the topic with its changes."""

    topic: str
    connector: str
    database: str
    schema: str
    name: str

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}" if self.schema else self.name


@dataclass(frozen=True)
class Place:
    """A change, by the index of its table in `Changes.tables`, and of its row in `Changes.rows`."""

    table: int
    row: int
    order: int


@dataclass(frozen=True)
class Transaction:
    """The changes of one transaction of the database, in order."""

    id: str
    at: int
    places: Sequence[Place]


@dataclass(frozen=True)
class Changes:
    """The changes of a range.

    `rows` has for each table the columns `key`, `op`, `before` and `after`. `unknown` counts the
    changes without the rows that undoing them needs, `found` those that a snapshot has found, whose
    time nobody knows. Neither is in a transaction. `removed` has a sentence for each topic that
    lacks changes of the range.
    """

    tables: Sequence[CapturedTable]
    rows: Sequence[pa.Table]
    transactions: Sequence[Transaction]
    unknown: Mapping[str, int]
    found: Mapping[str, int]
    removed: Sequence[str]

    @property
    def count(self) -> int:
        return sum(len(transaction.places) for transaction in self.transactions)


@dataclass(frozen=True)
class Range:
    """From a moment or commit up to another: `start` is in it, a `stop` that is a time is not.

    A time is that of the commit in the database.
    """

    start: Time | Commit | Earliest
    stop: Time | Commit | Latest

    @classmethod
    def between(cls, start: Position, stop: Position) -> Range:
        """The range, if both can limit one."""
        if not isinstance(start, Time | Commit | Earliest) or not isinstance(
            stop, Time | Commit | Latest
        ):
            raise InvalidPosition(
                "An offset does not limit a range of changes of several tables",
                hint="Give times (2026-01-31T12:00:00Z) or commits (commit:7)",
            )
        if isinstance(start, Time) and isinstance(stop, Time) and start.micros >= stop.micros:
            raise InvalidPosition(
                f"The range from {start} to {stop} is empty", hint="Let it end after its begin"
            )
        return cls(start, stop)

    def mask(self, times: pa.ChunkedArray, commits: pa.ChunkedArray) -> pa.ChunkedArray:
        """True for the changes in the range."""
        inside = pc.is_valid(times)
        if isinstance(self.start, Time):
            inside = pc.and_(inside, pc.greater_equal(times, self.start.micros))
        if isinstance(self.stop, Time):
            inside = pc.and_(inside, pc.less(times, self.stop.micros))
        if isinstance(self.start, Commit):
            inside = pc.and_(inside, pc.greater(commits, self.start.number))
        if isinstance(self.stop, Commit):
            inside = pc.and_(inside, pc.less_equal(commits, self.stop.number))
        return pc.fill_null(inside, False)


def captured_topics(log: Log) -> list[Topic]:
    """The topics of the log that hold the changes of a table."""
    return [
        topic
        for topic in log.topics()
        if topic.schema is not None
        and {KEY, "before", "after", "source", "op"} <= {*topic.schema.names}
        and topic.schema.field("source").type == SOURCE
    ]


def chosen_topics(log: Log, prefix: str | None, tables: Sequence[str]) -> list[Topic]:
    """The captured topics with a prefix, of the named tables: `orders` or `public.orders`."""
    topics = captured_topics(log)
    if not topics:
        raise UserError(
            f"There are no captured changes in {log.url}",
            hint="'headrace cdc attach' captures a database",
        )
    if prefix is not None:
        topics = [topic for topic in topics if topic.name.startswith(f"{prefix}.")]
        if not topics:
            known = sorted({topic.name.rsplit(".", 2)[0] for topic in captured_topics(log)})
            raise _unknown("captured database", prefix, known)
    chosen = {}
    for table in tables:
        found = [topic for topic in topics if f".{topic.name}".endswith(f".{table}")]
        if not found:
            raise _unknown("captured table", table, [t.name.rpartition(".")[2] for t in topics])
        chosen.update({topic.name: topic for topic in found})
    return list(chosen.values()) if tables else topics


def read_changes(log: Log, topics: Sequence[Topic], wanted: Range, *, partial: bool) -> Changes:
    """The changes of a range in some topics.

    Raises `ChangesRemoved` if compaction or retention has removed some, unless `partial` is set.
    """
    reading = _Reading(wanted, dense=Capability.DENSE_OFFSETS in log.capabilities)
    for topic in topics:
        reading.read(log, topic)
    if reading.removed and not partial:
        raise ChangesRemoved(
            "; ".join(reading.removed),
            hint="Without them the script would not lead back to a state that there was. "
            "--partial writes what is left",
        )
    return reading.changes()


def _unknown(what: str, name: str, known: Sequence[str]) -> UserError:
    near = difflib.get_close_matches(name, known, 1)
    return UserError(
        f"There is no {what} {name!r}",
        hint=f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(sorted(known))}",
    )


@dataclass
class _Group:
    """A transaction while its changes are read."""

    id: str
    at: int
    commit: int
    places: list[Place] = field(default_factory=list)
    parts: set[int] = field(default_factory=set)
    last_part: bool = False


class _Reading:
    """Reads topic by topic, and then orders the transactions."""

    def __init__(self, wanted: Range, *, dense: bool) -> None:
        self._range = wanted
        self._dense = dense
        self._tables: list[CapturedTable] = []
        self._rows: list[pa.Table] = []
        self._groups: dict[tuple[str, int | None], _Group] = {}
        self._earlier: dict[tuple[str, int | None], set[tuple[str, int | None]]] = {}
        self._unknown: dict[str, int] = {}
        self._found: dict[str, int] = {}
        self.removed: list[str] = []

    def read(self, log: Log, topic: Topic) -> None:
        """Read the changes of a topic."""
        start = self._range.start
        stop = self._range.stop if isinstance(self._range.stop, Commit) else Latest()
        if isinstance(start, Time):
            start = Time(start.micros - _MARGIN)
        for state in log.topic(topic.name).partitions:
            batches = list(
                log.read(topic.name, start=start, stop=stop, partitions=[state.partition])
            )
            if self._dense:
                self._check_complete(log, topic.name, state, batches)
            if batches:
                self._take(topic.name, _table_of(batches))

    def changes(self) -> Changes:
        """All that was read."""
        transactions = [
            Transaction(group.id, group.at, sorted(group.places, key=lambda place: place.order))
            for group in self._ordered()
        ]
        return Changes(
            self._tables, self._rows, transactions, self._unknown, self._found, self.removed
        )

    def _take(self, topic: str, rows: pa.Table) -> None:
        """Add the changes of a partition that are in the range."""
        source = pc.struct_field
        times = source(rows["source"], "ts_us")
        rows = rows.filter(self._range.mask(times, rows["_commit"]))
        found = pc.and_(
            pc.is_valid(source(rows["source"], "snapshot")), pc.is_valid(rows["before"])
        )
        self._count(self._found, topic, found)
        rows = rows.filter(pc.is_null(source(rows["source"], "snapshot")))
        complete = pc.fill_null(
            pc.or_(
                pc.and_(pc.equal(rows["op"], "c"), pc.is_valid(rows["after"])),
                pc.and_(
                    pc.is_valid(rows["before"]),
                    pc.or_(
                        pc.equal(rows["op"], "d"),
                        pc.and_(pc.equal(rows["op"], "u"), pc.is_valid(rows["after"])),
                    ),
                ),
            ),
            False,
        )
        self._count(self._unknown, topic, pc.invert(complete))
        rows = rows.filter(complete)
        if rows.num_rows:
            self._add(topic, rows)

    def _count(self, counts: dict[str, int], topic: str, mask: pa.ChunkedArray) -> None:
        if number := int(pc.sum(mask).as_py() or 0):
            counts[topic] = counts.get(topic, 0) + number

    def _add(self, topic: str, rows: pa.Table) -> None:
        """Add changes to their transactions."""
        sources = rows["source"].combine_chunks()
        first = sources[0].as_py()
        number = len(self._tables)
        self._tables.append(
            CapturedTable(
                topic, first["connector"], first["db"] or "", first["schema"] or "", first["table"]
            )
        )
        self._rows.append(rows.select([KEY, "op", "before", "after"]))
        columns = [
            pc.struct_field(sources, name).to_pylist()
            for name in ("tx", "ts_us", "order", "part", "last_part")
        ]
        before = None
        for row, (tx, at, order, part, last, offset, commit) in enumerate(
            zip(*columns, rows["_offset"].to_pylist(), rows["_commit"].to_pylist(), strict=True)
        ):
            # Parts of a transaction may have other times, if it is ahead of the capture's clock.
            key = (tx, at if part is None else None)
            group = self._groups.get(key)
            if group is None:
                group = self._groups[key] = _Group(tx, at, -1 if commit is None else commit)
            group.places.append(Place(number, row, offset if order is None else order))
            group.last_part |= bool(last)
            if part is not None:
                group.parts.add(part)
            if before is not None and before != key:
                self._earlier.setdefault(key, set()).add(before)
            before = key

    def _ordered(self) -> Iterator[_Group]:
        """The transactions in the order of their commits.

        Those of one moment and one commit of the log are ordered by the tables they share.
        """
        moments: dict[tuple[int, int], list[tuple[str, int | None]]] = {}
        for key, group in self._groups.items():
            self._check_whole(group)
            moments.setdefault((group.at, group.commit), []).append(key)
        for moment in sorted(moments):
            together = moments[moment]
            links = {key: self._earlier.get(key, set()) & {*together} for key in together}
            try:
                for key in TopologicalSorter(links).static_order():
                    yield self._groups[key]
            except CycleError:
                raise UnreadableRecord(
                    "Transactions of one commit are in another order in one topic than in another",
                    hint="This is an error in the capture that wrote them",
                ) from None

    def _check_whole(self, group: _Group) -> None:
        """Raise if the range ends within a transaction that has parts."""
        parts = group.parts
        if parts and not (group.last_part and len(parts) == max(parts)):
            raise InvalidPosition(
                f"The range has only a part of transaction {group.id}, which is in several commits",
                hint=f"It was committed in the database at {to_text(group.at)}: give times, not "
                "commits, or read every table that it changed",
            )

    def _check_complete(
        self, log: Log, topic: str, state: PartitionState, batches: Sequence[Batch]
    ) -> None:
        """Note how many records of the range are gone."""
        first = log.offset_at(topic, state.partition, self._range.start)
        offsets, times = _offsets_and_times(batches)
        start, stop = self._range.start, self._range.stop
        end = log.offset_at(topic, state.partition, stop) if isinstance(stop, Commit) else state.end
        low, high = first - 1, end
        if isinstance(start, Time):
            early = offsets[times < start.micros]
            low = max(low, int(early.max())) if len(early) else low
        if isinstance(stop, Time):
            late = offsets[(times >= stop.micros) & (offsets > low)]
            high = min(high, int(late.min())) if len(late) else high
        there = int(((offsets > low) & (offsets < high)).sum())
        if missing := max(0, high - low - 1 - there):
            self.removed.append(
                f"Compaction has removed {many(missing, 'record')} of {topic!r} in this range"
            )
        elif state.first and first == state.first and low == first - 1 and start != EARLIEST:
            self.removed.append(
                f"Retention has removed the records of {topic!r} from before offset {first:,}, "
                "and some of them may be in this range"
            )


_NONE = np.iinfo(np.int64).min
"""The time of a tombstone in `_offsets_and_times`, which compares as neither early nor late."""


def _offsets_and_times(batches: Sequence[Batch]) -> tuple[np.ndarray, np.ndarray]:
    """The offset and the time of each change that was read; tombstones have no time."""
    offsets, times = [np.zeros(0, np.int64)], [np.zeros(0, np.float64)]
    for batch in batches:
        moment = pc.cast(
            pc.struct_field(batch.data.column("source"), "ts_us"), pa.float64(), safe=False
        )
        offsets.append(batch.offsets)
        times.append(pc.fill_null(moment, float("nan")).to_numpy(zero_copy_only=False))
    return np.concatenate(offsets), np.concatenate(times)


def _table_of(batches: Sequence[Batch]) -> pa.Table:
    """The changes of a partition, each with its offset and commit, without tombstones."""
    made = []
    for batch in batches:
        table = pa.Table.from_batches([batch.data]).select([KEY, "before", "after", "source", "op"])
        number = pa.scalar(batch.commit, pa.int64())
        table = table.append_column("_offset", pa.array(batch.offsets))
        table = table.append_column("_commit", pa.repeat(number, len(batch)))
        if batch.tombstones is not None:
            table = table.filter(pa.array(~batch.tombstones))
        made.append(table)
    return pa.concat_tables(made)
