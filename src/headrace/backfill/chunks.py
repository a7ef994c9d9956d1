"""Chunks of a file: the rows of one commit, checked against their topic."""

from __future__ import annotations

import io
import json
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.json as pa_json

from headrace.backfill.json_lines import Sent
from headrace.errors import InvalidRecord, UnknownPartition, UserError
from headrace.log import Topic, Transaction
from headrace.log.conform import conform
from headrace.log.split import MAX_COMMIT_BYTES, ranges_of
from headrace.schema.python_rows import to_rows

CHUNK_ROWS = 65_536
"""Rows of a chunk, at most. A restart counts in chunks, so it is fixed."""
_CHUNK_BYTES = MAX_COMMIT_BYTES // 2

REFUSALS = (InvalidRecord, UnknownPartition)


@dataclass(frozen=True)
class Refused:
    """A row that does not fit its topic, by its number in the file."""

    number: int
    text: str
    error: UserError


Refuse = Callable[[Refused], None]
"""Called with each refused row. It raises an error unless such rows are skipped."""


class Chunk(ABC):
    """Rows of a file that are committed together. `last` is the number of the last in the file."""

    last: int

    @abstractmethod
    def add(self, transaction: Transaction, after: int) -> int:
        """Add the rows after a row to a transaction; return how many."""


@dataclass(frozen=True)
class TableChunk(Chunk):
    """Rows in the columns of their topic, and the number of each in the file."""

    topic: str
    rows: pa.Table
    numbers: Sequence[int]

    @property
    def last(self) -> int:  # type: ignore[override]
        return self.numbers[-1]

    def add(self, transaction: Transaction, after: int) -> int:
        rows = self.rows.slice(bisect_right(self.numbers, after))
        if rows.num_rows:
            transaction.append(self.topic, rows)
        return int(rows.num_rows)


def _same(rows: pa.Table) -> pa.Table:
    return rows


Convert = Callable[[pa.Table], pa.Table]
"""Converts rows to types that Arrow casts to those of the topic, or raises `InvalidRecord`."""


def table_chunks(
    topic: Topic, rows: pa.Table, numbers: Sequence[int], refuse: Refuse, convert: Convert = _same
) -> Iterator[TableChunk]:
    """Cut rows into chunks, without those that do not fit the topic."""

    def fitting(first: int, end: int) -> Iterator[tuple[list[pa.RecordBatch], Sequence[int]]]:
        # Most chunks fit as a whole. In the others, rows that do not are found by halves.
        some = rows.slice(first, end - first)
        try:
            yield conform(topic, convert(some)), numbers[first:end]
        except InvalidRecord as error:
            if end - first == 1:
                refuse(Refused(numbers[first], row_text(some), error))
                return
            half = (first + end) // 2
            yield from fitting(first, half)
            yield from fitting(half, end)

    good = list(fitting(0, rows.num_rows))
    batches = [batch for some, _ in good for batch in some]
    if not batches:
        return
    kept = good[0][1] if len(good) == 1 else [n for _, some in good for n in some]
    whole = pa.Table.from_batches(batches).combine_chunks()
    for first, end in ranges_of(whole, _CHUNK_BYTES):
        yield TableChunk(topic.name, whole.slice(first, end - first), kept[first:end])


def row_text(row: pa.Table) -> str:
    """The only row of a table, to show it to a person."""
    (values,) = to_rows(row.combine_chunks().to_batches()[0])
    return json.dumps(values, default=str, ensure_ascii=False)


@dataclass(frozen=True)
class LineChunk(Chunk):
    """JSON lines, each with its number. Typed rows are read at once, if they are plain."""

    topic: Topic
    last: int
    lines: Sequence[tuple[int, bytes]]
    read: Callable[[bytes], Sent]
    refuse: Refuse

    def add(self, transaction: Transaction, after: int) -> int:
        rows = self._at_once()
        if rows is None:
            added = sum(self._add_line(transaction, *line) for line in self.lines)
        else:
            transaction.append(self.topic.name, rows)
            added = int(rows.num_rows)
        # Chunks of lines depend on the file alone: it is in the log as a whole, or not at all.
        return 0 if self.last <= after else added

    def _add_line(self, transaction: Transaction, number: int, line: bytes) -> bool:
        try:
            transaction.send(self.topic.name, *self.read(line))
        except REFUSALS as error:
            text = line.decode(errors="replace").rstrip("\r\n")
            self.refuse(Refused(number, text, error))
            return False
        return True

    def _at_once(self) -> pa.Table | None:
        """All rows as Arrow; None if one of them has to be looked at by itself."""
        schema = self.topic.schema
        if schema is None or not all(_plain(field.type) for field in schema):
            return None
        text = io.BytesIO(b"".join(line for _, line in self.lines))
        options = pa_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
        block = pa_json.ReadOptions(use_threads=False, block_size=max(1, text.getbuffer().nbytes))
        try:
            rows = pa_json.read_json(text, read_options=block, parse_options=options)
            # Several objects on one line, or one on several, are not JSON lines.
            if rows.num_rows != len(self.lines):
                return None
            return pa.Table.from_batches(conform(self.topic, rows))
        except (pa.ArrowException, InvalidRecord):
            return None


def _plain(kind: pa.DataType) -> bool:
    """True for a type that Arrow reads from JSON as headrace does."""
    types = pa.types
    if types.is_struct(kind):
        return all(_plain(field.type) for field in kind)
    if types.is_list(kind):
        return _plain(kind.value_type)
    plain: tuple[Any, ...] = (types.is_string, types.is_boolean, types.is_int64, types.is_float64)
    zoned = types.is_timestamp(kind) and kind.tz is not None
    return zoned or types.is_decimal(kind) or any(is_of(kind) for is_of in plain)
