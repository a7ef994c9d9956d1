"""Conversion of records to Kafka's messages, and of fetched messages to Arrow."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Message

from headrace.errors import UnreadableRecord, WrongType
from headrace.log.dead_letter import NO_KEY
from headrace.log.declared import TOMBSTONE, TopicRow
from headrace.log.event_time import time_column
from headrace.log.kafka.debezium import FORMAT as DEBEZIUM
from headrace.log.kafka.rows_bytes import Garbage
from headrace.log.kafka.rows_debezium import key_text
from headrace.log.kafka.wire import rows_of
from headrace.log.partitioner import key_bytes, key_of_bytes
from headrace.log.record import HEADERS_TYPE, RAW_SCHEMA, Batch, Fault, Header
from headrace.log.split import Piece
from headrace.schema.python_rows import UNREADABLE, unreadable_column

_BATCH_BYTES = 16 << 20
_LAST_MILLIS = (2**63 - 1) // 1000

Again = Callable[[set[str]], TopicRow | None]


class Outgoing(NamedTuple):
    """A message to send."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: list[Header] | None


def outgoing(piece: Piece) -> Iterator[Outgoing]:
    """Yield the messages of a piece, in order."""
    topic, rows = piece.topic, piece.rows
    name, partition = topic.name, piece.partition
    if topic.columns is None:
        for row in rows.to_pylist():
            headers = [(h["key"], h["value"]) for h in row["headers"] or ()]
            yield Outgoing(name, partition, row["key"], row["value"], headers or None)
        return
    dead = rows.column(TOMBSTONE.name).to_pylist()
    keys: Sequence[bytes | None] = [None] * rows.num_rows
    if topic.topic.key is not None:
        keys = key_bytes(rows.column(topic.topic.key)).to_pylist()
    values = _encoded(topic, rows.select(topic.schema.names))
    for key, value, gone in zip(keys, values, dead, strict=True):
        yield Outgoing(name, partition, key, None if gone else value, None)


def _encoded(topic: TopicRow, rows: pa.RecordBatch) -> list[bytes]:
    try:
        return rows_of(topic).encode(rows)
    except UNREADABLE as error:
        column = unreadable_column(rows)
        raise WrongType(
            f"Column {column!r} of topic {topic.name!r} has a value that cannot be written as "
            f"{topic.topic.settings.format}: {error}",
            hint="Times range from the year 1 to 9999, and texts must be UTF-8",
            topic=topic.name,
            column=column,
        ) from error


def batches(
    topic: TopicRow,
    messages: Sequence[Message],
    columns: Sequence[str] | None,
    again: Again = lambda _: None,
) -> Iterator[Batch]:
    """Messages of one partition as Arrow, in batches of a bounded size.

    If rows have unknown columns, `again` looks up the current topic.
    """
    start = 0
    while start < len(messages):
        end = start + fitting(messages[start:])
        yield batch_of(topic, messages[start:end], columns, again)
        start = end


def fitting(messages: Sequence[Message]) -> int:
    """The number of messages that fit in one batch."""
    if sum(map(len, messages)) < _BATCH_BYTES:
        return len(messages)
    size = 0
    for index, message in enumerate(messages):
        size += len(message)
        if size >= _BATCH_BYTES:
            return index + 1
    return len(messages)


def batch_of(
    topic: TopicRow,
    messages: Sequence[Message],
    columns: Sequence[str] | None = None,
    again: Again = lambda _: None,
    faults: dict[int, Fault] | None = None,
) -> Batch:
    """Messages of one partition as one batch.

    With `faults`, a message that is not a row of the topic is entered there, by its offset, and its
    row is null. Else it is an error.
    """
    rows = len(messages)
    times = _micros(messages)
    tombstones = None
    if topic.columns is None:
        data = _raw(messages)
    else:
        odd: set[str] = set()
        data, tombstones = _typed(topic, messages, odd, faults)
        if odd and (new := again(odd)) is not None:
            topic = new
            data, tombstones = _typed(topic, messages, odd, faults)
    if columns is not None:
        data = data.select(list(columns))
    first = messages[0]
    return Batch(
        topic.name,
        int(first.partition() or 0),
        np.fromiter(map(Message.offset, messages), np.int64, rows),
        data,
        tombstones,
        topic.columns is None,
        topic.topic.key,
        int(times[-1]),
        None,
        times,
    )


def _raw(messages: Sequence[Message]) -> pa.RecordBatch:
    headers: list[Any] = [
        None if not (found := m.headers()) else [{"key": k, "value": v} for k, v in found]
        for m in messages
    ]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([m.key() for m in messages], pa.binary()),
            pa.array([m.value() for m in messages], pa.binary()),
            pa.array(headers, HEADERS_TYPE),
        ],
        schema=RAW_SCHEMA,
    )


def _typed(
    topic: TopicRow, messages: Sequence[Message], odd: set[str], faults: dict[int, Fault] | None
) -> tuple[pa.RecordBatch, np.ndarray[Any, np.dtype[np.bool_]] | None]:
    values = [message.value() for message in messages]
    alive = [index for index, value in enumerate(values) if value is not None]
    deleted = len(alive) < len(messages)
    tombstones = np.ones(len(messages), np.bool_)
    tombstones[alive] = False
    keys: dict[int, Any] = {}
    if deleted and topic.topic.key is not None:
        keys = _keys(topic, messages, np.flatnonzero(tombstones).tolist(), faults)
        # What deletes no row is a dead letter.
        tombstones[[place for place in np.flatnonzero(tombstones) if place not in keys]] = False

    def decode(places: list[int]) -> list[pa.Array]:
        return rows_of(topic).decode(
            [values[place] for place in places],
            odd,
            lambda index: messages[places[index]].headers() or (),
        )

    if faults is None:
        try:
            found = decode(alive)
        except Garbage as garbage:
            raise _unreadable(topic, messages[alive[garbage.index]], garbage.detail) from None
    else:
        alive, found = _readable(decode, alive, messages, faults)
    _give_times(topic, found, [messages[index] for index in alive])
    if topic.topic.settings.format == DEBEZIUM and topic.topic.key is not None:
        index = topic.schema.names.index(topic.topic.key)
        found[index] = pa.array([key_text(messages[i].key()) for i in alive], pa.string())
    schema = pa.schema([field.with_nullable(True) for field in topic.schema])
    if len(alive) == len(messages):
        return pa.RecordBatch.from_arrays(found, schema=schema), None
    # A null value is a tombstone, which has only its key.
    places = np.full(len(messages), -1, np.int64)
    places[alive] = np.arange(len(alive))
    take = pa.array(places, mask=places < 0)
    spread = [column.take(take) for column in found]
    if keys:
        index = topic.schema.names.index(topic.topic.key)
        known = spread[index].to_pylist()
        for place, key in keys.items():
            known[place] = key
        spread[index] = pa.array(known, schema.field(index).type)
    data = pa.RecordBatch.from_arrays(spread, schema=schema)
    return data, tombstones if deleted else None


def _readable(
    decode: Callable[[list[int]], list[pa.Array]],
    places: list[int],
    messages: Sequence[Message],
    faults: dict[int, Fault],
) -> tuple[list[int], list[pa.Array]]:
    """The places of the messages that are rows, and their columns. The others are `faults`.

    Messages that do not decode together are halved until a bad one is alone.
    """
    try:
        return places, decode(places)
    except Garbage as garbage:
        if len(places) == 1:
            message = messages[places[0]]
            faults[message.offset() or 0] = Fault(garbage.reason, message.value())
            return [], decode([])
        # Those before the bad one are good.
        middle = garbage.index or len(places) // 2
    low, first = _readable(decode, places[:middle], messages, faults)
    high, second = _readable(decode, places[middle:], messages, faults)
    parts = zip(first, second, strict=True)
    return low + high, [pa.concat_arrays([one, other]) for one, other in parts]


def _keys(
    topic: TopicRow,
    messages: Sequence[Message],
    places: Sequence[int],
    faults: dict[int, Fault] | None,
) -> dict[int, Any]:
    """The keys of tombstones."""
    found = {}
    for place in places:
        if faults is not None and messages[place].key() is None:
            faults[messages[place].offset() or 0] = Fault(NO_KEY, None)
            continue
        try:
            found[place] = _key(topic, messages[place])
        except UnreadableRecord as error:
            if faults is None:
                raise
            faults[error.details["offset"]] = Fault(error.details["reason"], None)
    return found


def _micros(messages: Sequence[Message]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The times of messages; other producers may have set any number of milliseconds."""
    millis = np.fromiter((m.timestamp()[1] for m in messages), np.int64, len(messages))
    found: np.ndarray[Any, np.dtype[np.int64]] = np.clip(millis, 0, _LAST_MILLIS) * 1000
    return found


def _give_times(topic: TopicRow, columns: list[pa.Array], messages: Sequence[Message]) -> None:
    """Use the arrival time for rows without an event time, if the topic says so."""
    declared = topic.topic
    column = time_column(declared)
    if column is None or declared.settings.missing_time != "arrival":
        return
    index = topic.schema.names.index(column)
    kind = topic.schema.field(index).type
    found = pa.array(_micros(messages)).cast(kind)
    columns[index] = pc.coalesce(columns[index], found)


def _key(topic: TopicRow, message: Message) -> Any:
    data: Any = message.key()
    if topic.topic.settings.format == DEBEZIUM:
        return key_text(data)
    try:
        return key_of_bytes(data or b"", topic.schema.field(topic.topic.key).type)
    except (ValueError, pa.ArrowException) as error:
        raise _unreadable(topic, message, f"its key: {error}") from None


def _unreadable(topic: TopicRow, message: Message, reason: str) -> UnreadableRecord:
    partition, offset = message.partition(), message.offset()
    return UnreadableRecord(
        f"The record at offset {offset} in partition {partition} of topic {topic.name!r} does not "
        f"match its schema: {reason}",
        hint=f"Read on at offset {(offset or 0) + 1}; a pipeline sends such records to its "
        "dead letters",
        topic=topic.name,
        partition=partition,
        offset=offset,
        reason=reason,
    )


class KafkaCursor:
    """A buffer of the messages fetched from a partition, handed out in batches of any size."""

    def __init__(self, topic: TopicRow, partition: int, position: int, again: Again) -> None:
        self.topic = topic
        self.partition = partition
        self.position = position
        self.fetched = position
        """The next offset to fetch."""
        self.sought = False
        """True if Kafka's client still has to seek to `fetched`."""
        self.paused = False
        """True if Kafka's client has paused the partition."""
        self.waiting: deque[Message] = deque()
        self._again = again

    def seek(self, position: int) -> None:
        self.position = self.fetched = position
        self.waiting.clear()
        self.sought = True

    def put(self, message: Message) -> None:
        """Add a fetched message, unless it was fetched before a seek."""
        offset = message.offset() or 0
        if not self.sought and offset >= self.fetched:
            self.waiting.append(message)
            self.fetched = offset + 1

    def crash_point(self, offset: int) -> None:
        """Record that the partition has nothing more before this offset."""
        if not self.sought:
            self.fetched = max(self.fetched, offset)
            if not self.waiting:
                self.position = max(self.position, self.fetched)

    def take(self, rows: int) -> Batch | None:
        some = list(islice(self.waiting, rows))
        some = some[: fitting(some)]
        if not some:
            return None
        try:
            batch = batch_of(self.topic, some, again=self._look_again)
        except UnreadableRecord as error:
            # Return the records before it; the next call raises the error.
            some = [m for m in some if (m.offset() or 0) < error.details["offset"]]
            if not some:
                raise
            batch = batch_of(self.topic, some, again=self._look_again)
        for _ in some:
            self.waiting.popleft()
        self.position = int(batch.offsets[-1]) + 1 if self.waiting else self.fetched
        return batch

    def _look_again(self, odd: set[str]) -> TopicRow | None:
        new = self._again(odd)
        if new is not None:
            self.topic = new
        return new
