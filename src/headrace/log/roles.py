"""The interfaces of producers, transactions and consumers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
import pyarrow as pa

from headrace.closing import Closing
from headrace.log.assignment import Partition
from headrace.log.position import Position
from headrace.log.record import Batch, Header, Record
from headrace.log.state import Receipt

Acks = Literal["none", "written", "synced"]
CommitMode = Literal["before", "after", "manual"]
Flags = np.ndarray[Any, np.dtype[np.bool_]]


class Delivery(ABC):
    """The future result of `send`: that of the record's batch."""

    @abstractmethod
    def wait(self) -> Receipt:
        """Commit the batch now, and return its receipt."""

    @property
    @abstractmethod
    def done(self) -> bool:
        """True if the batch was committed or has failed."""


class Writer(ABC):
    """Accepts records: a producer commits them in batches, a transaction all at once."""

    @abstractmethod
    def send(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        headers: Sequence[Header] | None = None,
        partition: int | None = None,
    ) -> Delivery:
        """Add one record.

        In a raw topic `key` and `value` are bytes or text. In a typed one `value` is the row as
        a dict, including its key; a `value` of None with a `key` is a tombstone.

        A record is either refused with an error or accepted, once. If the log is busy or full when
        its batch is due, it stays accepted, and `flush` and `close` try again and raise the error.
        """


class CommitPart:
    """A condition on a commit, or state that changes with it. The log that takes it makes it."""


class Transaction(Writer):
    """An atomic commit of records to any topics and of a group's offsets."""

    @abstractmethod
    def append(
        self,
        topic: str,
        data: pa.RecordBatch | pa.Table,
        *,
        partition: int | None = None,
        tombstones: Flags | None = None,
    ) -> None:
        """Add whole Arrow batches. `tombstones` marks rows of which only the key counts."""

    @abstractmethod
    def commit_offsets(self, consumer: Consumer) -> None:
        """Add the offsets of all that the consumer has polled so far to this transaction.

        The consumer needs `commit="manual"`: any other would commit its offsets itself, too early.
        """

    @abstractmethod
    def attach(self, part: CommitPart) -> None:
        """Add a condition, without which nothing is committed, or state that changes with it."""

    @abstractmethod
    def commit(self) -> Receipt | None:
        """Commit everything; return None if there were no records."""

    @abstractmethod
    def abort(self) -> None:
        """Discard everything."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.commit()
        else:
            self.abort()


class Producer(Closing, Writer):
    """Writes to the log. Closing it commits what was sent."""

    id: str

    @abstractmethod
    def append(
        self,
        topic: str,
        data: pa.RecordBatch | pa.Table,
        *,
        partition: int | None = None,
        sequence: int | None = None,
        tombstones: Flags | None = None,
    ) -> Receipt:
        """Commit whole Arrow batches now.

        Rows go to partitions by key; without a key, or with `partition`, all go to one. With a
        `sequence`, a repeated call adds nothing and returns the first one's receipt. `tombstones`
        marks the rows of a typed topic that are tombstones: of these only the key counts.
        """

    @abstractmethod
    def flush(self) -> None:
        """Commit everything sent."""

    @abstractmethod
    def transaction(self) -> Transaction:
        """Begin a transaction; use it in a `with` block."""

    @property
    @abstractmethod
    def next_sequence(self) -> int:
        """The next sequence number that the log expects under this id."""

    @property
    @abstractmethod
    def last_receipt(self) -> Receipt | None:
        """The receipt of the last commit under this id, even by an earlier process.

        None if there was none, or if retention has deleted it.
        """


class Consumer(Closing):
    """Reads topics and keeps its position, or its group's."""

    @abstractmethod
    def poll(self, timeout: timedelta = timedelta(0), max_records: int = 500) -> list[Record]:
        """The next records, waiting for the first of them up to `timeout`."""

    @abstractmethod
    def poll_batches(
        self, timeout: timedelta = timedelta(0), max_records: int = 100_000
    ) -> list[Batch]:
        """Like `poll`, but as Arrow batches."""

    @abstractmethod
    def commit(self) -> None:
        """Commit the group's offsets: everything polled so far is handled."""

    @abstractmethod
    def rewind(self) -> None:
        """Go back to the group's committed offsets; required after an aborted transaction."""

    @property
    @abstractmethod
    def assignment(self) -> frozenset[Partition]:
        """The partitions this consumer reads now."""

    @property
    @abstractmethod
    def generation(self) -> int:
        """The number of the group's rebalances, as far as this member knows."""

    @abstractmethod
    def position(self, topic: str, partition: int) -> int:
        """The next offset to read."""

    @abstractmethod
    def seek(
        self, position: Position, topic: str | None = None, partition: int | None = None
    ) -> None:
        """Continue reading at `position` in the named partitions, or in all."""

    @abstractmethod
    def pause(self, *partitions: Partition) -> None:
        """Stop reading these partitions (by default all), but stay their owner."""

    @abstractmethod
    def resume(self, *partitions: Partition) -> None:
        """Undo `pause`."""

    @abstractmethod
    def __iter__(self) -> Iterator[Record]:
        """Iterate over records forever, waiting for more. A record counts as handled when the next
        is requested, so leaving the loop at any point loses nothing."""
