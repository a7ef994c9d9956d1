"""Records that were sent and not yet committed: lists, until they are made Arrow all at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from headrace.errors import InvalidRecord
from headrace.log.conform import null_key, too_large
from headrace.log.file.appender import Piece
from headrace.log.file.split import Rotation, split_by, targets_of, with_tombstones
from headrace.log.file.topics import TopicRow, check_partition
from headrace.log.record import HEADERS_TYPE, RAW_SCHEMA, Header
from headrace.log.rows import RowReader, check_headers, raw_bytes


class RawRows:
    """Waiting records of a raw topic."""

    def __init__(self, topic: TopicRow) -> None:
        self.topic = topic
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._headers: dict[int, Sequence[Header]] = {}
        self._partitions: dict[int, int] = {}
        self._limit = topic.topic.settings.max_record_bytes
        self._keyed = topic.topic.settings.compacts

    def add(
        self,
        value: Any,
        key: Any,
        headers: Sequence[Header] | None,
        partition: int | None,
    ) -> int:
        """Take a record, or refuse it; returns its size. This is the hot path of `send`."""
        if value.__class__ is not bytes:
            value = raw_bytes(value)
        if key.__class__ is not bytes:
            key = raw_bytes(key)
            if key is None and self._keyed:
                raise null_key(self.topic.topic)
        size = (len(value) if value is not None else 0) + (len(key) if key is not None else 0)
        if headers:
            headers = check_headers(headers)
            size += sum(len(name) + len(data or b"") for name, data in headers)
        if size > self._limit:
            raise too_large(self.topic.topic, size)
        # From here on nothing is refused: a record leaves all it has to say, or nothing.
        if partition is not None:
            self._partitions[len(self._values)] = check_partition(self.topic, partition)
        if headers:
            self._headers[len(self._values)] = headers
        self._keys.append(key)
        self._values.append(value)
        return size

    def pieces(self, rotation: Rotation) -> list[Piece]:
        """The records sorted into partitions."""
        count = len(self._values)
        headers: Any = pa.nulls(count, HEADERS_TYPE)
        if self._headers:
            lists = [
                [{"key": name, "value": data} for name, data in self._headers.get(i, ())]
                for i in range(count)
            ]
            headers = pa.array(lists, HEADERS_TYPE)
        rows = pa.RecordBatch.from_arrays(
            [pa.array(self._keys, pa.binary()), pa.array(self._values, pa.binary()), headers],
            schema=RAW_SCHEMA,
        )
        return _split(self.topic, rows, self._partitions, rotation)


class TypedRows:
    """Waiting records of a typed topic."""

    def __init__(self, topic: TopicRow) -> None:
        self.topic = topic
        self._reader = RowReader(topic.topic)
        self._rows: list[list[Any]] = []
        self._dead: set[int] = set()
        self._partitions: dict[int, int] = {}

    def add(
        self,
        value: Any,
        key: Any,
        headers: Sequence[Header] | None,
        partition: int | None,
    ) -> int:
        """Take a row, or refuse it; returns its size, roughly."""
        if headers:
            raise InvalidRecord(
                f"Topic {self.topic.name!r} has columns, and no place for headers",
                hint="Make a column of what the headers say, or use a topic of raw bytes",
                topic=self.topic.name,
            )
        row = self._reader.read_key(key) if value is None else self._reader.read(value)
        if partition is not None:
            self._partitions[len(self._rows)] = check_partition(self.topic, partition)
        if value is None:
            self._dead.add(len(self._rows))
        self._rows.append(row)
        return sum(len(cell) if isinstance(cell, str | bytes) else 8 for cell in row)

    def pieces(self, rotation: Rotation) -> list[Piece]:
        """The records sorted into partitions."""
        schema = pa.schema([field.with_nullable(True) for field in self.topic.schema])
        columns = list(zip(*self._rows, strict=True))
        # Columns that the topic has gained since these rows were sent are null in them.
        columns += [(None,) * len(self._rows)] * (len(schema) - len(columns))
        arrays = [
            pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)
        ]
        flags = [i in self._dead for i in range(len(self._rows))] if self._dead else None
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        rows = with_tombstones(self.topic, batch, flags)
        return _split(self.topic, rows, self._partitions, rotation)


Rows = RawRows | TypedRows


def waiting_rows(topic: TopicRow) -> Rows:
    """An empty set of waiting records for a topic."""
    return RawRows(topic) if topic.columns is None else TypedRows(topic)


def _split(
    topic: TopicRow, rows: pa.RecordBatch, chosen: dict[int, int], rotation: Rotation
) -> list[Piece]:
    if topic.topic.partitions == 1:
        return [Piece(topic, 0, rows)]
    targets = targets_of(topic, rows, rotation)
    for index, partition in chosen.items():
        targets[index] = partition
    return split_by(topic, rows, targets)
