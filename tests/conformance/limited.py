"""A log that lacks every capability a log may lack, and says so as `Log` asks it to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from types import TracebackType
from typing import Any

import pyarrow as pa

from headrace.log import (
    EARLIEST,
    LATEST,
    Batch,
    Capability,
    Commit,
    Consumer,
    Delivery,
    Header,
    Position,
    Producer,
    Receipt,
    Record,
    Topic,
    TopicSettings,
    TopicState,
    Transaction,
    UpkeepReport,
)
from headrace.log.file.log import FileLog
from headrace.log.interface import Acks, CommitMode, Partition


class LimitedLog(FileLog):
    """The embedded log without commit numbers, frontiers, sequences, columns, upkeep and tiers."""

    capabilities: frozenset[Capability] = frozenset()

    def check_position(self, *positions: Position) -> None:
        if any(isinstance(position, Commit) for position in positions):
            self.require(Capability.COMMITS)

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        schema: str | pa.Schema | None = None,
        key: str | None = None,
        event_time: str | None = None,
        settings: TopicSettings | Mapping[str, Any] | None = None,
    ) -> Topic:
        if schema is not None:
            self.require(Capability.TYPED_TOPICS)
        if not isinstance(settings, TopicSettings):
            settings = TopicSettings().change(settings or {})
        if settings.tier is not None:
            self.require(Capability.TIERING)
        return super().create_topic(
            name, partitions=partitions, key=key, event_time=event_time, settings=settings
        )

    def alter_topic(
        self,
        name: str,
        *,
        settings: Mapping[str, Any] | None = None,
        partitions: int | None = None,
        schema: str | pa.Schema | None = None,
    ) -> Topic:
        if schema is not None:
            self.require(Capability.TYPED_TOPICS)
        if "tier" in (settings or {}):
            self.require(Capability.TIERING)
        return super().alter_topic(name, settings=settings, partitions=partitions)

    def topic(self, name: str) -> TopicState:
        return replace(super().topic(name), frontier=None)

    def producer(
        self,
        *,
        id: str | None = None,
        acks: Acks = "synced",
        linger: timedelta = timedelta(milliseconds=5),
        batch_bytes: int = 1 << 20,
    ) -> Producer:
        inner = super().producer(id=id, acks=acks, linger=linger, batch_bytes=batch_bytes)
        return LimitedProducer(self, inner)

    def read(
        self,
        topic: str,
        *,
        start: Position = EARLIEST,
        stop: Position = LATEST,
        partitions: Iterable[int] | None = None,
        columns: Sequence[str] | None = None,
    ) -> Iterator[Batch]:
        self.check_position(start, stop)
        found = super().read(
            topic, start=start, stop=stop, partitions=partitions, columns=columns
        )
        return (replace(batch, commit=None) for batch in found)

    def consumer(
        self,
        *topics: str,
        group: str | None = None,
        start: Position = EARLIEST,
        commit: CommitMode = "after",
        assignor: str = "sticky",
        instance: str | None = None,
        session: timedelta = timedelta(seconds=10),
        max_poll_interval: timedelta = timedelta(minutes=5),
    ) -> Consumer:
        self.check_position(start)
        inner = super().consumer(
            *topics,
            group=group,
            start=start,
            commit=commit,
            assignor=assignor,
            instance=instance,
            session=session,
            max_poll_interval=max_poll_interval,
        )
        return LimitedConsumer(self, inner)

    def offset_at(self, topic: str, partition: int, position: Position) -> int:
        self.check_position(position)
        return super().offset_at(topic, partition, position)

    def head(self) -> int:
        self.require(Capability.COMMITS)
        return super().head()

    def commit_time(self, commit: int) -> int:
        self.require(Capability.COMMITS)
        return super().commit_time(commit)

    def commits(self, topic: str, after: int, limit: int) -> list[int]:
        self.require(Capability.COMMITS)
        return super().commits(topic, after, limit)

    def frontier(self, topic: str, commit: int | None = None) -> int | None:
        self.require(Capability.FRONTIERS)
        return super().frontier(topic, commit)

    def reset_group(self, name: str, topic: str, position: Position) -> dict[int, int]:
        self.check_position(position)
        return super().reset_group(name, topic, position)

    def upkeep(self, topic: str | None = None) -> list[UpkeepReport]:
        self.require(Capability.UPKEEP)
        return super().upkeep(topic)

    def compact(self, topic: str) -> UpkeepReport:
        self.require(Capability.UPKEEP)
        return super().compact(topic)


class LimitedProducer(Producer):
    def __init__(self, log: LimitedLog, inner: Producer) -> None:
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
    ) -> Receipt:
        if sequence is not None:
            self._log.require(Capability.SEQUENCES)
        return replace(self._inner.append(topic, data, partition=partition), commit=None)

    def flush(self) -> None:
        self._inner.flush()

    def transaction(self) -> Transaction:
        return LimitedTransaction(self._inner.transaction())

    @property
    def next_sequence(self) -> int:
        self._log.require(Capability.SEQUENCES)
        return self._inner.next_sequence

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
        self, topic: str, data: pa.RecordBatch | pa.Table, *, partition: int | None = None
    ) -> None:
        self._inner.append(topic, data, partition=partition)

    def commit_offsets(self, consumer: Consumer) -> None:
        inner = consumer.inner if isinstance(consumer, LimitedConsumer) else consumer
        self._inner.commit_offsets(inner)

    def commit(self) -> Receipt | None:
        receipt = self._inner.commit()
        return None if receipt is None else replace(receipt, commit=None)

    def abort(self) -> None:
        self._inner.abort()


class LimitedConsumer(Consumer):
    def __init__(self, log: LimitedLog, inner: Consumer) -> None:
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
        self._log.check_position(position)
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
