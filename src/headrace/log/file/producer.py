"""Writing to the embedded log: record by record, in whole batches, or in transactions."""

from __future__ import annotations

import threading
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa

from headrace.errors import (
    HeadraceError,
    InvalidSetting,
    MisusedHandle,
    Retryable,
    TransactionTooLarge,
    UnknownTopic,
)
from headrace.log.file.appender import Appender, GroupOffsets, Identity, Piece, StaleTopic
from headrace.log.file.catalog import Catalog, one
from headrace.log.file.consumer import FileConsumer
from headrace.log.file.pending import Rows, waiting_rows
from headrace.log.file.split import (
    MAX_COMMIT_BYTES,
    Rotation,
    check_commit_size,
    commits_of,
    pieces_of,
)
from headrace.log.file.topics import TopicRow, find_topic
from headrace.log.interface import Acks, Consumer, Delivery, Producer, Receipt, Transaction
from headrace.log.names import check_name
from headrace.log.record import Header

_QUEUE = 8
"""Full batches that may wait behind `acks="none"` before `send` blocks."""

Make = Callable[[], list[Piece]]


class Waiting(Delivery):
    """One batch of sent records, over all topics; every `send` into it returns it."""

    def __init__(self, producer: FileProducer) -> None:
        self._producer = producer
        self.rows: dict[str, Rows] = {}
        self.size = 0
        self.sequence: int | None = None
        self.receipt: Receipt | None = None
        self.error: HeadraceError | None = None

    @property
    def done(self) -> bool:
        return self.receipt is not None or self.error is not None

    def wait(self) -> Receipt:
        if not self.done:
            self._producer.flush()
        if self.error is not None:
            raise self.error
        if self.receipt is None:
            raise MisusedHandle("The record is in a transaction that is not committed yet")
        return self.receipt


class FileProducer(Producer):
    """A producer of the embedded log. Safe for many threads.

    A batch is committed by the `send` that fills it, which is how a slow disk slows down whoever
    writes too fast, or by a thread in the background when `linger` has passed.
    """

    def __init__(
        self,
        catalog: Catalog,
        appender: Appender,
        after_roll: Callable[[set[int]], None],
        *,
        id: str | None,
        acks: Acks,
        linger: timedelta,
        batch_bytes: int,
    ) -> None:
        if acks not in ("none", "written", "synced"):
            raise InvalidSetting(f"acks cannot be {acks!r}", hint="Use none, written or synced")
        if not 1 <= batch_bytes <= MAX_COMMIT_BYTES:
            raise InvalidSetting(
                f"batch_bytes cannot be {batch_bytes}", hint=f"Choose 1 to {MAX_COMMIT_BYTES}"
            )
        self._catalog = catalog
        self._appender = appender
        self._after_roll = after_roll
        self._acks = acks
        self._linger = linger.total_seconds()
        self._batch_bytes = batch_bytes
        self._topics: dict[str, TopicRow] = {}
        self._rotation = Rotation()
        self._lock = threading.Lock()
        self._committing = threading.RLock()
        self._waiting = Waiting(self)
        self._full: deque[Waiting] = deque()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: HeadraceError | None = None
        self._closed = False
        self.id = check_name(id, "producer") if id is not None else f"anonymous-{uuid.uuid4()}"
        self._epoch = 0
        self._sequence: int | None = 0
        if id is not None:
            self._epoch, self._sequence = self._register(id)

    # Record by record

    def send(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        headers: Sequence[Header] | None = None,
        partition: int | None = None,
    ) -> Delivery:
        with self._lock:
            waiting = self._waiting
            rows = waiting.rows.get(topic)
            if rows is None:
                rows = self._begin(waiting, topic)
            waiting.size += rows.add(value, key, headers, partition)
            if waiting.size < self._batch_bytes:
                return waiting
            self._seal()
        if self._acks == "none" and len(self._full) < _QUEUE:
            self._wake.set()
        else:
            self._drain()
        return waiting

    def flush(self) -> None:
        with self._lock:
            self._seal()
        self._drain()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _begin(self, waiting: Waiting, topic: str) -> Rows:
        if self._closed:
            raise MisusedHandle("This producer is closed", hint="Make another: log.producer()")
        rows = waiting.rows[topic] = waiting_rows(self._topic(topic))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="headrace-linger", daemon=True)
            self._thread.start()
        self._wake.set()
        return rows

    def _seal(self) -> None:
        if self._waiting.size or self._waiting.rows:
            self._full.append(self._waiting)
            self._waiting = Waiting(self)

    def _drain(self) -> None:
        """Commit the full batches in order. One that may succeed later stays first in line."""
        with self._committing:
            while self._full:
                waiting = self._full[0]
                try:
                    waiting.receipt = self._commit_waiting(waiting)
                except Retryable:
                    raise
                except HeadraceError as error:
                    waiting.error = error
                    self._sequence = None
                    self._full.popleft()
                    raise
                self._full.popleft()

    def _commit_waiting(self, waiting: Waiting) -> Receipt:
        # The number stays with the batch, so that trying again after a lost answer adds nothing.
        if waiting.sequence is None:
            waiting.sequence = self.next_sequence

        def make() -> list[Piece]:
            return [
                piece for name, rows in waiting.rows.items() for piece in self.sort_rows(name, rows)
            ]

        receipt = self._commit(make, waiting.sequence)
        waiting.rows = {}
        return receipt

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.wait()
            self._wake.clear()
            self._stop.wait(self._linger)
            if self._stop.is_set():
                return
            try:
                with self._lock:
                    self._seal()
                self._drain()
            except Retryable:
                continue  # the batch is still there, and `flush` will try it again
            except HeadraceError as error:
                # Whoever sent is not here to be told; `flush` and `close` will tell them.
                self._failure = error

    # Whole batches

    def append(
        self,
        topic: str,
        data: pa.RecordBatch | pa.Table,
        *,
        partition: int | None = None,
        sequence: int | None = None,
    ) -> Receipt:
        if self._closed:
            raise MisusedHandle("This producer is closed", hint="Make another: log.producer()")
        self.flush()
        with self._committing:
            batches = [data] if isinstance(data, pa.RecordBatch) else data.to_batches()
            groups = list(commits_of(batches))
            if sequence is not None and not groups:
                groups = [[]]  # nothing to add, and yet a number that is used up
            if sequence is not None and len(groups) > 1:
                raise TransactionTooLarge(
                    f"Data of {data.nbytes:,} bytes needs {len(groups)} commits, "
                    "and a sequence number is for one",
                    hint=f"Append at most {MAX_COMMIT_BYTES:,} bytes with each sequence number",
                )
            receipts = [self._append(topic, group, partition, sequence) for group in groups]
            if not receipts:
                return Receipt(None, 0, ())
            acks = tuple(ack for receipt in receipts for ack in receipt.acks)
            last = receipts[-1]
            return Receipt(last.commit, last.timestamp, acks, last.duplicate)

    def _append(
        self, topic: str, batches: list[pa.RecordBatch], partition: int | None, sequence: int | None
    ) -> Receipt:
        def make() -> list[Piece]:
            row = self._topic(topic)
            return [p for b in batches for p in pieces_of(row, b, partition, self._rotation)]

        try:
            return self._commit(make, self.next_sequence if sequence is None else sequence)
        except BaseException:
            # Whether it got in is not known here; the log is asked before the next commit.
            self._sequence = None
            raise

    # Transactions

    def transaction(self) -> Transaction:
        if self._closed:
            raise MisusedHandle("This producer is closed", hint="Make another: log.producer()")
        return FileTransaction(self)

    def commit_transaction(self, make: Make, offsets: GroupOffsets | None) -> Receipt:
        """Commit what a transaction has gathered, after everything sent before it."""
        self.flush()
        with self._committing:
            try:
                return self._commit(make, self.next_sequence, offsets)
            except BaseException:
                self._sequence = None
                raise

    # Inside

    @property
    def next_sequence(self) -> int:
        if self._sequence is None:
            known = one(
                self._catalog.reader(), "SELECT sequence FROM producer WHERE id = ?", self.id
            )
            self._sequence = 0 if known is None else known[0] + 1
        return self._sequence

    def _commit(self, make: Make, sequence: int, offsets: GroupOffsets | None = None) -> Receipt:
        identity = Identity(self.id, self._epoch, sequence)
        while True:
            try:
                receipt, closed = self._appender.commit(
                    make(), synced=self._acks == "synced", identity=identity, offsets=offsets
                )
                break
            except StaleTopic as stale:
                self._topics.pop(stale.topic.name, None)
        self._sequence = max(sequence + 1, self._sequence or 0)
        if closed:
            self._after_roll(closed)
        return receipt

    def topic(self, name: str) -> TopicRow:
        """The topic as it was when this producer last looked."""
        return self._topic(name)

    def pieces(
        self, topic: str, data: pa.RecordBatch | pa.Table, partition: int | None
    ) -> list[Piece]:
        """Foreign rows sorted into partitions, as `append` would."""
        return pieces_of(self._topic(topic), data, partition, self._rotation)

    def sort_rows(self, name: str, rows: Rows) -> list[Piece]:
        """Waiting records sorted into partitions, as `send` would."""
        topic = self._topic(name)
        if topic.id != rows.topic.id:
            raise UnknownTopic(
                f"Topic {name!r} was deleted after records were sent to it; "
                "there is another of that name now",
                hint="Send them again if the new topic should have them",
                topic=name,
            )
        rows.topic = topic
        return rows.pieces(self._rotation)

    def _topic(self, name: str) -> TopicRow:
        row = self._topics.get(name)
        if row is None:
            row = self._topics[name] = find_topic(self._catalog.reader(), name)
        return row

    def _register(self, id: str) -> tuple[int, int]:
        """Take the id over from whoever had it; returns the new epoch and the next sequence."""
        with self._catalog.writing(synced=True) as db:
            db.execute(
                "INSERT INTO producer VALUES (?, 1, -1, NULL, 0) "
                "ON CONFLICT (id) DO UPDATE SET epoch = epoch + 1",
                (id,),
            )
            epoch, sequence = one(db, "SELECT epoch, sequence FROM producer WHERE id = ?", id) or (
                1,
                -1,
            )
            return epoch, sequence + 1

    def close(self) -> None:
        if self._closed:
            return
        try:
            self.flush()
        finally:
            self._closed = True
            self._stop.set()
            self._wake.set()
            if self._thread is not None:
                self._thread.join()


class FileTransaction(Transaction):
    """Gathers records and offsets, and commits them as one.

    Nothing of it is in the log before that, so an aborted transaction leaves no trace.
    """

    def __init__(self, producer: FileProducer) -> None:
        self._producer = producer
        self._rows: dict[str, Rows] = {}
        self._batches: list[tuple[str, pa.RecordBatch | pa.Table, int | None]] = []
        self._consumer: FileConsumer | None = None
        self._size = 0
        self._over = False
        self._delivery = Waiting(producer)

    def send(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        headers: Sequence[Header] | None = None,
        partition: int | None = None,
    ) -> Delivery:
        self._check_open()
        rows = self._rows.get(topic)
        if rows is None:
            rows = self._rows[topic] = waiting_rows(self._producer.topic(topic))
        self._grow(rows.add(value, key, headers, partition))
        return self._delivery

    def append(
        self, topic: str, data: pa.RecordBatch | pa.Table, *, partition: int | None = None
    ) -> None:
        self._check_open()
        self._producer.pieces(topic, data, partition)  # refuse bad data now, not at the end
        self._grow(data.nbytes)
        self._batches.append((topic, data, partition))

    def commit_offsets(self, consumer: Consumer) -> None:
        self._check_open()
        if not isinstance(consumer, FileConsumer):
            raise MisusedHandle("The consumer is of another log than the producer")
        consumer.check_group()
        self._consumer = consumer

    def commit(self) -> Receipt | None:
        self._check_open()
        check_commit_size(self._size)
        self._over = True

        def make() -> list[Piece]:
            pieces = []
            for name, rows in self._rows.items():
                pieces += self._producer.sort_rows(name, rows)
            for topic, data, partition in self._batches:
                pieces += self._producer.pieces(topic, data, partition)
            return pieces

        offsets = None if self._consumer is None else self._consumer.offsets_to_commit()
        if not self._rows and not self._batches and offsets is None:
            return None
        receipt = self._producer.commit_transaction(make, offsets)
        if self._consumer is not None and offsets is not None:
            self._consumer.offsets_committed(offsets)
        self._delivery.receipt = receipt
        return receipt if receipt.acks else None

    def abort(self) -> None:
        self._over = True
        self._delivery.error = MisusedHandle("The transaction was aborted")

    def _grow(self, size: int) -> None:
        self._size += size
        check_commit_size(self._size)

    def _check_open(self) -> None:
        if self._over:
            raise MisusedHandle(
                "The transaction is over", hint="Begin another: producer.transaction()"
            )
