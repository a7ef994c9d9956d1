"""Producers: `send` commits in batches, `append` commits at once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pyarrow as pa

from headrace.errors import InvalidSetting, MisusedHandle, TransactionTooLarge
from headrace.log.committer import Committer
from headrace.log.declared import check_key
from headrace.log.outbox import Outbox
from headrace.log.roles import Acks, Flags, Transaction
from headrace.log.split import MAX_COMMIT_BYTES, Piece, check_commit_size, commits_of
from headrace.log.state import Receipt
from headrace.log.transaction import BufferedTransaction


class LogProducer(Outbox):
    """A producer for any log; its committer knows the log. Thread-safe."""

    def __init__(
        self,
        make_committer: Callable[[], Committer],
        *,
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
        if linger < timedelta(0):
            raise InvalidSetting(f"linger cannot be negative: {linger}", hint="0 means no delay")
        committer = make_committer()
        super().__init__(committer, wait=acks != "none", linger=linger, batch_bytes=batch_bytes)
        self.id = committer.id

    @property
    def next_sequence(self) -> int:
        return self._committer.next_sequence

    @property
    def last_receipt(self) -> Receipt | None:
        return self._committer.last_receipt

    def append(
        self,
        topic: str,
        data: pa.RecordBatch | pa.Table,
        *,
        partition: int | None = None,
        sequence: int | None = None,
        tombstones: Flags | None = None,
    ) -> Receipt:
        self.check_open()
        batches = self._committer.conformed(topic, data)
        if tombstones is not None and tombstones.any():
            return self._append_flagged(topic, batches, partition, sequence, tombstones)
        groups = list(commits_of(batches))
        if sequence is not None and not groups:
            groups = [[]]  # nothing to add, but the sequence number is used up
        if sequence is not None and len(groups) > 1:
            raise TransactionTooLarge(
                f"Data of {data.nbytes:,} bytes needs {len(groups)} commits, "
                "but a sequence number is for one",
                hint=f"Append at most {MAX_COMMIT_BYTES:,} bytes with each sequence number",
            )
        with self._committer.lock:
            if sequence is not None:
                self._check_sequence(sequence)
            self.flush()
            receipts = [self._append(topic, group, partition, sequence) for group in groups]
        if not receipts:
            return Receipt(None, 0, ())
        acks = tuple(ack for receipt in receipts for ack in receipt.acks)
        return Receipt(receipts[-1].commit, receipts[-1].timestamp, acks, receipts[-1].duplicate)

    def _append_flagged(
        self,
        topic: str,
        batches: list[pa.RecordBatch],
        partition: int | None,
        sequence: int | None,
        tombstones: Flags,
    ) -> Receipt:
        """Append rows, some of which are tombstones, in one commit."""
        check_key(self._committer.topic(topic))
        check_commit_size(sum(batch.nbytes for batch in batches))
        with self._committer.lock:
            if sequence is not None:
                self._check_sequence(sequence)
            self.flush()
            return self._append(topic, batches, partition, sequence, tombstones)

    def _append(
        self,
        topic: str,
        batches: list[pa.RecordBatch],
        partition: int | None,
        sequence: int | None,
        tombstones: Flags | None = None,
    ) -> Receipt:
        def make() -> list[Piece]:
            return self._committer.pieces(topic, batches, partition, tombstones)

        if sequence is None:
            return self._committer.commit_next(make)
        try:
            return self._committer.commit(make, sequence)
        except BaseException:
            self._committer.doubt()
            raise

    def _check_sequence(self, sequence: int) -> None:
        """Check that the caller's number cannot collide with one that this producer chose."""
        if sequence < 0:
            raise InvalidSetting(f"A sequence number cannot be {sequence}", hint="Start with 0")
        if self.waiting or sequence <= self._committer.last_own:
            raise MisusedHandle(
                f"Sequence number {sequence} is, or will be, used by a commit that this producer "
                "has numbered itself",
                hint="flush() what was sent, then use next_sequence; or use one producer for "
                "append(sequence=...) and another for the rest",
            )

    def transaction(self) -> Transaction:
        self.check_open()
        return BufferedTransaction(self._committer, self.flush)
