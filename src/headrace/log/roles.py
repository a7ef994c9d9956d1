"""Those who write to a log and read from it: producers, transactions and consumers."""

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
    """The promise of `send`: the batch the record went into."""

    @abstractmethod
    def wait(self) -> Receipt:
        """Have the batch committed now, and return the log's answer."""

    @property
    @abstractmethod
    def done(self) -> bool:
        """Whether the answer is there."""


class Writer(ABC):
    """Takes records: a producer commits them by and by, a transaction all at once."""

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
        a dict, and its key is in it; a `value` of None with a `key` is a tombstone.

        A record is either refused with an error or taken, once. If the log is busy or full when
        its batch is due, it stays taken, and `flush` and `close` try again and tell.
        """


class Transaction(Writer):
    """All or nothing, over any topics and the offsets of a group."""

    @abstractmethod
    def append(
        self, topic: str, data: pa.RecordBatch | pa.Table, *, partition: int | None = None
    ) -> None:
        """Add whole Arrow batches."""

    @abstractmethod
    def commit_offsets(self, consumer: Consumer) -> None:
        """Have the consumer's group go on, once this commits, after what it has polled so far.

        The consumer is one with `commit="manual"`: another would commit by itself, too early.
        """

    @abstractmethod
    def commit(self) -> Receipt | None:
        """Make it all visible; None if there were no records in it."""

    @abstractmethod
    def abort(self) -> None:
        """Forget it all."""

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
        says which rows of a typed topic are any: of these only the key counts.
        """

    @abstractmethod
    def flush(self) -> None:
        """Return when everything sent is committed."""

    @abstractmethod
    def transaction(self) -> Transaction:
        """Begin a transaction; use it in a `with` block."""

    @property
    @abstractmethod
    def next_sequence(self) -> int:
        """The sequence number the log expects next of this producer's id."""

    @property
    @abstractmethod
    def last_receipt(self) -> Receipt | None:
        """The log's answer to the last commit under this id, be it of an earlier process.

        None if there was none, or if retention has taken it away since.
        """


class Consumer(Closing):
    """Reads topics from a position that it, or its group, keeps."""

    @abstractmethod
    def poll(self, timeout: timedelta = timedelta(0), max_records: int = 500) -> list[Record]:
        """The next records, waiting for the first of them up to `timeout`."""

    @abstractmethod
    def poll_batches(
        self, timeout: timedelta = timedelta(0), max_records: int = 100_000
    ) -> list[Batch]:
        """As `poll`, as Arrow."""

    @abstractmethod
    def commit(self) -> None:
        """Record for the group that everything polled so far is done."""

    @abstractmethod
    def rewind(self) -> None:
        """Go back to the group's committed offsets, as one must after an aborted transaction."""

    @property
    @abstractmethod
    def assignment(self) -> frozenset[Partition]:
        """The partitions this consumer reads now."""

    @property
    @abstractmethod
    def generation(self) -> int:
        """How often the group has been rebalanced, as far as this member knows."""

    @abstractmethod
    def position(self, topic: str, partition: int) -> int:
        """The offset that is read next."""

    @abstractmethod
    def seek(
        self, position: Position, topic: str | None = None, partition: int | None = None
    ) -> None:
        """Go on reading from `position` in the partitions named, or in all."""

    @abstractmethod
    def pause(self, *partitions: Partition) -> None:
        """Stop reading these (all, if none are named) and keep them."""

    @abstractmethod
    def resume(self, *partitions: Partition) -> None:
        """Undo `pause`."""

    @abstractmethod
    def __iter__(self) -> Iterator[Record]:
        """Records for ever, waiting for more. A record counts as handled when the next is asked
        for, so leaving the loop at any point loses nothing."""
