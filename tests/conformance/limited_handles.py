"""Producers, transactions and consumers of a log without optional capabilities."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from types import TracebackType
from typing import Any

import pyarrow as pa

from headrace.log import (
    Batch,
    Capability,
    Commit,
    Consumer,
    Delivery,
    Header,
    Log,
    Position,
    Producer,
    Receipt,
    Record,
    Transaction,
)
from headrace.log.assignment import Partition
from headrace.log.interface import lacking
from headrace.log.roles import CommitPart, Flags


def check_position(log: Log, *positions: Position) -> None:
    """Refuse positions that the log does not support."""
    if any(isinstance(position, Commit) for position in positions):
        log.require(Capability.COMMITS)


class LimitedProducer(Producer):
    def __init__(self, log: Log, inner: Producer) -> None:
        self._log = log
        self._inner = inner
        self.id = inner.id

    def send(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        headers: Sequence[Header] | None = None,
        partition: int | None = None,
    ) -> Delivery:
        return LimitedDelivery(self._inner.send(topic, value, key, headers, partition))

    def append(
        self,
        topic: str,
        data: pa.RecordBatch | pa.Table,
        *,
        partition: int | None = None,
        sequence: int | None = None,
        tombstones: Flags | None = None,
    ) -> Receipt:
        if sequence is not None:
            self._log.require(Capability.SEQUENCES)
        receipt = self._inner.append(topic, data, partition=partition, tombstones=tombstones)
        return replace(receipt, commit=None)

    def flush(self) -> None:
        self._inner.flush()

    def transaction(self) -> Transaction:
        return LimitedTransaction(self._inner.transaction())

    @property
    def next_sequence(self) -> int:
        self._log.require(Capability.SEQUENCES)
        return self._inner.next_sequence

    @property
    def last_receipt(self) -> Receipt | None:
        self._log.require(Capability.SEQUENCES)
        return self._inner.last_receipt

    def close(self) -> None:
        self._inner.close()


class LimitedDelivery(Delivery):
    def __init__(self, inner: Delivery) -> None:
        self._inner = inner

    def wait(self) -> Receipt:
        return replace(self._inner.wait(), commit=None)

    @property
    def done(self) -> bool:
        return self._inner.done


class LimitedTransaction(Transaction):
    def __init__(self, inner: Transaction) -> None:
        self._inner = inner

    def send(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        headers: Sequence[Header] | None = None,
        partition: int | None = None,
    ) -> Delivery:
        return LimitedDelivery(self._inner.send(topic, value, key, headers, partition))

    def append(
        self,
        topic: str,
        data: pa.RecordBatch | pa.Table,
        *,
        partition: int | None = None,
        tombstones: Flags | None = None,
    ) -> None:
        self._inner.append(topic, data, partition=partition, tombstones=tombstones)

    def commit_offsets(self, consumer: Consumer) -> None:
        inner = consumer.inner if isinstance(consumer, LimitedConsumer) else consumer
        self._inner.commit_offsets(inner)

    def attach(self, part: CommitPart) -> None:
        raise lacking("a limited log", Capability.CONDITIONS)

    def commit(self) -> Receipt | None:
        receipt = self._inner.commit()
        return None if receipt is None else replace(receipt, commit=None)

    def abort(self) -> None:
        self._inner.abort()


class LimitedConsumer(Consumer):
    def __init__(self, log: Log, inner: Consumer) -> None:
        self._log = log
        self.inner = inner

    def poll(self, timeout: timedelta = timedelta(0), max_records: int = 500) -> list[Record]:
        return [replace(r, commit=None) for r in self.inner.poll(timeout, max_records)]

    def poll_batches(
        self, timeout: timedelta = timedelta(0), max_records: int = 100_000
    ) -> list[Batch]:
        return [replace(b, commit=None) for b in self.inner.poll_batches(timeout, max_records)]

    def commit(self) -> None:
        self.inner.commit()

    def rewind(self) -> None:
        self.inner.rewind()

    @property
    def assignment(self) -> frozenset[Partition]:
        return self.inner.assignment

    @property
    def generation(self) -> int:
        return self.inner.generation

    def position(self, topic: str, partition: int) -> int:
        return self.inner.position(topic, partition)

    def seek(
        self, position: Position, topic: str | None = None, partition: int | None = None
    ) -> None:
        check_position(self._log, position)
        self.inner.seek(position, topic, partition)

    def pause(self, *partitions: Partition) -> None:
        self.inner.pause(*partitions)

    def resume(self, *partitions: Partition) -> None:
        self.inner.resume(*partitions)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.inner)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.inner.__exit__(kind, error, trace)

    def close(self) -> None:
        self.inner.close()
