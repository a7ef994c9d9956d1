"""Records that were sent and not yet committed: kept in lists, then converted to Arrow at once.

Many threads may call `add` while another one takes the waiting records. Neither takes a lock, which
would cost as much as the rest of `send`: a record is added by one call that the interpreter does
not interrupt, so it is either taken or still waiting afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.errors import HeadraceError, InvalidRecord
from headrace.log.conform import null_key, too_large
from headrace.log.declared import TopicRow, check_partition, stored_schema
from headrace.log.record import HEADERS_TYPE, RAW_SCHEMA, Header
from headrace.log.roles import Delivery
from headrace.log.rows import check_headers, raw_bytes
from headrace.log.split import Piece, Rotation, split_by, targets_of
from headrace.log.state import Receipt


@dataclass(frozen=True, slots=True)
class _Special:
    """A raw value with headers or an explicit partition."""

    value: bytes | None
    headers: Sequence[Header]
    partition: int | None


class _Gathering:
    """Waiting records, in any form."""

    def __init__(self) -> None:
        self._waiting: list[Any] = []

    @property
    def empty(self) -> bool:
        """True if no record is waiting."""
        return not self._waiting

    def take(self) -> list[Any]:
        """Remove and return the waiting records."""
        taken = self._waiting[: len(self._waiting)]
        del self._waiting[: len(taken)]
        return taken


class RawRows(_Gathering):
    """Waiting records of a raw topic."""

    def __init__(self, topic: TopicRow) -> None:
        super().__init__()  # key, value, key, value, ...
        self._any_special = False
        self.topic = topic

    @property
    def topic(self) -> TopicRow:
        """The topic that records are checked against. It may be altered while they wait."""
        return self._topic

    @topic.setter
    def topic(self, topic: TopicRow) -> None:
        self._limit = topic.topic.settings.max_record_bytes
        self._keyed = topic.topic.settings.compacts
        self._topic = topic

    def add(
        self, value: Any, key: Any, headers: Sequence[Header] | None, partition: int | None
    ) -> int:
        """Add a record, or refuse it; return its size."""
        # The hot path of `send`: plain bytes.
        if (
            value.__class__ is bytes
            and key.__class__ is bytes
            and headers is None
            and partition is None
        ):
            size = len(value) + len(key)
            if size <= self._limit:
                self._waiting.extend((key, value))
                return size
        return self._add(raw_bytes(value), raw_bytes(key), headers, partition)

    def _add(
        self,
        value: bytes | None,
        key: bytes | None,
        headers: Sequence[Header] | None,
        partition: int | None,
    ) -> int:
        if key is None and self._keyed:
            raise null_key(self.topic.topic)
        headers = check_headers(headers or ())
        size = len(value or b"") + len(key or b"")
        size += sum(len(name) + len(data or b"") for name, data in headers)
        if size > self._limit:
            raise too_large(self.topic.topic, size)
        if partition is not None:
            check_partition(self.topic, partition)
        if headers or partition is not None:
            self._any_special = True
            self._waiting.extend((key, _Special(value, headers, partition)))
        else:
            self._waiting.extend((key, value))
        return size

    def pieces(self, taken: list[Any], topic: TopicRow, rotation: Rotation) -> list[Piece]:
        """Records that were taken, sorted into the topic's partitions."""
        keys, values = taken[0::2], taken[1::2]
        headers = pa.nulls(len(values), HEADERS_TYPE)
        chosen: dict[int, int] = {}
        if self._any_special:
            lists: list[Any] = [None] * len(values)
            for index, value in enumerate(values):
                if isinstance(value, _Special):
                    values[index] = value.value
                    lists[index] = [{"key": k, "value": v} for k, v in value.headers]
                    if value.partition is not None:
                        chosen[index] = value.partition
            headers = pa.array(lists, HEADERS_TYPE)
        rows = pa.RecordBatch.from_arrays(
            [pa.array(keys, pa.binary()), pa.array(values, pa.binary()), headers], schema=RAW_SCHEMA
        )
        return _split(topic, rows, chosen, rotation)


class TypedRows(_Gathering):
    """Waiting records of a typed topic."""

    def __init__(self, topic: TopicRow) -> None:
        super().__init__()  # row, True for a tombstone, partition or None
        self._topic = topic

    @property
    def topic(self) -> TopicRow:
        """The topic that rows are checked against. It may be altered while they wait."""
        return self._topic

    @topic.setter
    def topic(self, topic: TopicRow) -> None:
        self._topic = topic

    def add(
        self, value: Any, key: Any, headers: Sequence[Header] | None, partition: int | None
    ) -> int:
        """Add a row, or refuse it; return its size."""
        if headers:
            raise InvalidRecord(
                f"Topic {self.topic.name!r} is typed, so its records cannot have headers",
                hint="Put their values into columns, or use a topic of raw bytes",
                topic=self.topic.name,
            )
        reader = self._topic.reader
        row, size = reader.read_key(key) if value is None else reader.read(value)
        if partition is not None:
            check_partition(self.topic, partition)
        self._waiting.append((row, value is None, partition))
        return size

    def pieces(self, taken: list[Any], topic: TopicRow, rotation: Rotation) -> list[Piece]:
        """Records that were taken, sorted into the topic's partitions."""
        schema = stored_schema(topic.columns)
        rows, dead, partitions = zip(*taken, strict=True)
        # Columns added to the topic after a row was sent are null in it.
        width = len(schema) - 1
        padded = [row if len(row) == width else row + [None] * (width - len(row)) for row in rows]
        try:
            arrays = [
                pa.array(column, kind)
                for column, kind in zip(
                    (*zip(*padded, strict=True), dead), schema.types, strict=True
                )
            ]
        except (pa.ArrowException, ValueError) as error:
            raise InvalidRecord(
                f"Rows for topic {topic.name!r} do not fit it: {error}", topic=topic.name
            ) from error
        stored = pa.RecordBatch.from_arrays(arrays, schema=schema)
        chosen = {i: partition for i, partition in enumerate(partitions) if partition is not None}
        return _split(topic, stored, chosen, rotation)


Rows = RawRows | TypedRows


@dataclass(frozen=True)
class Taken:
    """Records to commit, and the topic that they were sent to."""

    rows: Rows
    topic: TopicRow
    records: list[Any]


def take_all(waiting: Iterable[Rows]) -> list[Taken]:
    """Take the waiting records of each topic."""
    return [Taken(rows, rows.topic, taken) for rows in waiting if (taken := rows.take())]


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
        targets[index] = check_partition(topic, partition)
    return split_by(topic, rows, targets)


class Outcome(Delivery):
    """A receipt or an error, once known. `wait` calls `hurry` to have the commit made now."""

    def __init__(self, hurry: Callable[[], None]) -> None:
        self._hurry = hurry
        self.receipt: Receipt | None = None
        self.error: HeadraceError | None = None

    @property
    def done(self) -> bool:
        return self.receipt is not None or self.error is not None

    def wait(self) -> Receipt:
        if not self.done:
            self._hurry()
        if self.error is not None:
            raise self.error
        return self.receipt or Receipt(None, 0, ())

    def end(self, receipt: Receipt | None, error: HeadraceError | None) -> None:
        """Set the outcome."""
        self.receipt, self.error = receipt, error


class Sent(Outcome):
    """A batch of sent records of any topics. Every `send` into it returns it."""

    def __init__(self, flush: Callable[[Outcome], None]) -> None:
        super().__init__(lambda: flush(self))
        self.taken: list[Taken] = []
        self.size = 0
        self.sequence: int | None = None
        self.refused: HeadraceError | None = None
        """The reason why some of its records cannot be committed. The others can."""

    def end(self, receipt: Receipt | None, error: HeadraceError | None) -> None:
        super().end(receipt, error)
        self.taken = []


class Either(Delivery):
    """A record in one of two batches; it is unknown which, so both must be committed."""

    def __init__(self, one: Sent, other: Sent) -> None:
        self._one, self._other = one, other

    @property
    def done(self) -> bool:
        return self._one.done and self._other.done

    def wait(self) -> Receipt:
        first, second = self._one.wait(), self._other.wait()
        return second if second.acks else first
