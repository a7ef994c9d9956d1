"""Transactions, buffered in memory and committed at once.

Nothing is in the log before the commit, so an aborted transaction leaves no trace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from headrace.errors import HeadraceError, MisusedHandle, Retryable, UserError
from headrace.log.committer import Committer
from headrace.log.consumer import PlacedConsumer
from headrace.log.declared import check_key, check_partition
from headrace.log.pending import Outcome, Rows, Taken, take_all, waiting_rows
from headrace.log.positions import GroupOffsets
from headrace.log.record import Header
from headrace.log.roles import CommitPart, Consumer, Delivery, Flags, Transaction
from headrace.log.split import Piece, check_commit_size
from headrace.log.state import Receipt


def _too_early() -> None:
    raise MisusedHandle(
        "The record is in a transaction that is not committed yet", hint="Commit it first"
    )


class BufferedTransaction(Transaction):
    """Buffers records and offsets, and commits them as one, after a `flush` of earlier records."""

    def __init__(self, committer: Committer, flush: Callable[[], None]) -> None:
        self._committer = committer
        self._flush = flush
        self._rows: dict[str, Rows] = {}
        self._batches: list[tuple[str, list[pa.RecordBatch], int | None, Flags | None]] = []
        self._taken: list[Taken] = []
        self._consumer: PlacedConsumer | None = None
        self._offsets: GroupOffsets | None = None
        self._parts: list[CommitPart] = []
        self._size = 0
        self._over = False
        self._outcome = Outcome(_too_early)

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
            rows = self._rows[topic] = waiting_rows(self._committer.topic(topic))
        try:
            size = rows.add(value, key, headers, partition)
        except UserError:
            size = self._committer.add(rows, value, key, headers, partition)
        self._grow(size)
        return self._outcome

    def append(
        self,
        topic: str,
        data: pa.RecordBatch | pa.Table,
        *,
        partition: int | None = None,
        tombstones: Flags | None = None,
    ) -> None:
        self._check_open()
        batches = self._committer.conformed(topic, data)
        if partition is not None:
            check_partition(self._committer.topic(topic), partition)
        if tombstones is not None and tombstones.any():
            check_key(self._committer.topic(topic))
        self._grow(sum(batch.nbytes for batch in batches))
        self._batches.append((topic, batches, partition, tombstones))

    def commit_offsets(self, consumer: Consumer) -> None:
        self._check_open()
        if not isinstance(consumer, PlacedConsumer) or consumer.home != self._committer.home:
            raise MisusedHandle(
                "The consumer belongs to another log than the producer",
                hint="A transaction is in one log: create both from the same one",
            )
        consumer.check_group()
        consumer.check_manual()
        consumer.check_nothing_lost()
        self._consumer, self._offsets = consumer, consumer.offsets_to_commit()

    def attach(self, part: CommitPart) -> None:
        self._check_open()
        self._committer.check_part(part)
        self._parts.append(part)

    def commit(self) -> Receipt | None:
        self._check_open()
        check_commit_size(self._size)
        self._taken += take_all(self._rows.values())
        if not (self._taken or self._batches or self._parts) and self._offsets is None:
            return self._end(Receipt(None, 0, ()))
        try:
            receipt = self._commit()
        except Retryable:
            raise  # nothing of it is in the log, so the caller can try again
        except HeadraceError as error:
            self._over = True
            self._outcome.end(None, error)
            raise
        if self._consumer is not None and self._offsets is not None:
            self._consumer.offsets_committed(self._offsets)
        return self._end(receipt)

    def abort(self) -> None:
        self._over = True
        self._outcome.end(None, MisusedHandle("The transaction was aborted"))

    def _commit(self) -> Receipt:
        def make() -> list[Piece]:
            pieces = [piece for taken in self._taken for piece in self._committer.pieces_of(taken)]
            for appended in self._batches:
                pieces += self._committer.pieces(*appended)
            return pieces

        if self._consumer is not None:
            self._consumer.check_nothing_lost()
        with self._committer.lock:
            self._flush()
            return self._committer.commit_next(make, self._offsets, self._parts, whole=True)

    def _end(self, receipt: Receipt) -> Receipt | None:
        self._over = True
        self._outcome.end(receipt, None)
        return receipt if receipt.acks else None

    def _grow(self, size: int) -> None:
        self._size += size
        check_commit_size(self._size)

    def _check_open(self) -> None:
        if self._over:
            raise MisusedHandle(
                "The transaction has ended", hint="Begin another: producer.transaction()"
            )
