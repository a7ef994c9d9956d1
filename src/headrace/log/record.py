"""Records as readers get them, one by one or in Arrow batches."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.clock import to_datetime
from headrace.errors import UnknownColumn, UnreadableValue
from headrace.schema.python_rows import UNREADABLE, to_rows, unreadable_column

Header = tuple[str, bytes | None]

HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

RAW_SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("headers", HEADERS_TYPE)])
"""The columns of a topic of raw bytes."""

REMEMBERED = 1_000_000
"""Ids that a reader remembers to read each record once."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record and its position in the log.

    In a typed topic `key` is the key column's value and `value` the row as a dict; in a raw one
    both are bytes. `value` is None for a tombstone. `commit` is None where the log has no commit
    numbers.
    """

    topic: str
    partition: int
    offset: int
    key: Any
    value: Any
    headers: tuple[Header, ...]
    timestamp: datetime
    commit: int | None


class Fault(NamedTuple):
    """A record that is not valid: its value, and the reason if it is not a row of its topic."""

    reason: str | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Judged:
    """The standing of rows in time, one by one, in a log that does not judge them by commit.

    `good` rows have a valid event time. `frontiers` has the frontier that each row met. `faults`
    has the records of the others, by offset, without tombstones.
    """

    good: np.ndarray[Any, np.dtype[np.bool_]]
    frontiers: np.ndarray[Any, np.dtype[np.int64]]
    faults: Mapping[int, Fault]

    def part(self, rows: Any) -> Judged:
        """Those of some rows, by a slice or a mask."""
        return Judged(self.good[rows], self.frontiers[rows], self.faults)


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of one commit in one partition, as Arrow.

    `data` has the topic's columns. `offsets` increase by one except where compaction removed rows.
    `tombstones` is None if there are none. `key` names the key column. `raw` is True for a topic of
    raw bytes, with the columns `key`, `value` and `headers`. Where each row has its own time, as on
    Kafka, `timestamps` has them and `timestamp` is the last. There, `judged` is how the rows stand
    in time, if it was asked for.
    """

    topic: str
    partition: int
    offsets: np.ndarray[Any, np.dtype[np.int64]]
    data: pa.RecordBatch
    tombstones: np.ndarray[Any, np.dtype[np.bool_]] | None
    raw: bool
    key: str | None
    timestamp: int
    commit: int | None
    timestamps: np.ndarray[Any, np.dtype[np.int64]] | None = None
    judged: Judged | None = None

    def __len__(self) -> int:
        return len(self.offsets)

    def slice(self, start: int, stop: int) -> Batch:
        """The rows from `start` up to `stop`, by index in this batch."""
        return self.part(slice(start, stop), self.data.slice(start, stop - start))

    def only(self, wanted: np.ndarray[Any, np.dtype[np.bool_]]) -> Batch:
        """The rows that a mask selects."""
        return self.part(wanted, self.data.filter(pa.array(wanted)))

    def part(self, rows: Any, data: pa.RecordBatch) -> Batch:
        """Some rows, by a slice or a mask, whose columns are `data`."""
        return replace(
            self,
            offsets=self.offsets[rows],
            data=data,
            tombstones=None if self.tombstones is None else self.tombstones[rows],
            timestamps=None if self.timestamps is None else self.timestamps[rows],
            judged=None if self.judged is None else self.judged.part(rows),
        )

    def records(self, *, as_text: bool = False) -> Iterator[Record]:
        """The rows one by one. Convenient, but far slower than `data`.

        Columns that were not read, such as the key, are None. A row that Python cannot hold raises
        `UnreadableValue` after the rows before it; with `as_text`, for display, such a value is
        text.
        """
        try:
            rows = self.data.to_pylist()
        except UNREADABLE as error:
            if len(self) > 1:
                for index in range(len(self)):
                    yield from self.slice(index, index + 1).records(as_text=as_text)
                return
            if not as_text:
                raise self._unreadable(error) from error
            rows = to_rows(self.data)
        moment = to_datetime(self.timestamp)
        for index, row in enumerate(rows):
            if self.timestamps is not None:
                moment = to_datetime(int(self.timestamps[index]))
            headers: tuple[Header, ...] = ()
            if self.raw:
                key, value = row.get("key"), row.get("value")
                headers = tuple((h["key"], h["value"]) for h in row.get("headers") or ())
            else:
                key = None if self.key is None else row.get(self.key)
                dead = self.tombstones is not None and bool(self.tombstones[index])
                value = None if dead else row
            yield Record(
                self.topic,
                self.partition,
                int(self.offsets[index]),
                key,
                value,
                headers,
                moment,
                self.commit,
            )

    def readable(self) -> tuple[list[Record], UnreadableValue | None]:
        """The records before the first that Python cannot hold, and the error for that one."""
        found: list[Record] = []
        try:
            for record in self.records():
                found.append(record)  # one by one, to keep those before an error
        except UnreadableValue as error:
            return found, error
        return found, None

    def _unreadable(self, error: Exception) -> UnreadableValue:
        """The error for the batch's only row, with a value that Python cannot hold."""
        offset = int(self.offsets[0])
        where = f"the record at offset {offset} in partition {self.partition} of {self.topic!r}"
        column = unreadable_column(self.data)
        return UnreadableValue(
            f"The column {column!r} of {where} has a value that Python cannot hold: {error}",
            hint="Read it as Arrow with poll_batches() or Batch.data, or skip it with "
            f"seek(Offset({offset + 1}), {self.topic!r}, {self.partition})",
            topic=self.topic,
            partition=self.partition,
            offset=offset,
            column=column,
        )


class OnceBy:
    """Finds the first record of each id. It remembers the newest `remembered` ids.

    A step in real time writes some records again after a crash. Only the first of an id counts.
    """

    def __init__(self, column: str, remembered: int = REMEMBERED) -> None:
        self._column = column
        self._remembered = remembered
        self._seen: dict[Hashable, None] = {}

    def is_first(self, record: Record) -> bool:
        """True if no record with the same id came before. A record without an id is first."""
        row = record.value
        if row is None:
            return True
        if not isinstance(row, dict) or self._column not in row:
            raise UnknownColumn(
                f"Records of topic {record.topic!r} have no column {self._column!r}",
                hint=f"They have: {', '.join(row)}" if isinstance(row, dict) else "They are bytes",
            )
        known = row[self._column]
        if known is None:
            return True
        if known in self._seen:
            return False
        self._seen[known] = None
        if len(self._seen) > self._remembered:
            del self._seen[next(iter(self._seen))]
        return True


def once_by(
    records: Iterable[Record], column: str, *, remembered: int = REMEMBERED
) -> Iterator[Record]:
    """The first record of each value in a column, such as an alert's id.

    This reader remembers the last `remembered` ids, in memory. A reader that has to know them after
    its own crash stores them with its results, for example by an upsert on the id.
    """
    once = OnceBy(column, remembered)
    return filter(once.is_first, records)
