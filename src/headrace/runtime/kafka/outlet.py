"""Write rows to a topic from the tasks that read them, one transaction for each input partition.

A step that only publishes does not need the driver. A task has the rows of one input partition, so
each partition has its own transactional producer. The transaction ends with a record of the offset
it reached, among the fences of `headrace.log.kafka`. When rows come again, after a crash or a retry
of Spark, the task finds that offset and writes only what comes after it, even if batches are cut
differently. A producer fences off earlier producers of the same name.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaException
from pyspark.sql.types import LongType, StructField, StructType

from headrace.log.conform import conform
from headrace.log.kafka.address import KafkaAddress
from headrace.log.kafka.client import Client
from headrace.log.kafka.committer import TRANSACTIONAL
from headrace.log.kafka.fences import Fence, fence_message, read_fence
from headrace.log.kafka.topics import Topics
from headrace.log.kafka.wire import rows_of
from headrace.log.partitioner import key_bytes, partition_column
from headrace.log.state import Ack, Receipt
from headrace.plan import metadata

DELIVERED = StructType([StructField("rows", LongType())])
"""The output of a task: the number of its rows that are in the topic."""

_TRANSACTION_MS = 300_000
_QUEUE = {"queue_buffering_max_messages": 1_000_000, "linger_ms": 20, "batch_size": 1 << 20}


@dataclass(frozen=True)
class Outlet:
    """The destination of a batch: the topic, the writer, and the number of the commit."""

    address: KafkaAddress
    topic: str
    writer: str
    commit: int
    fenced: bool = True
    """Without it, a batch that comes again is written again: at least once."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows of a task, which are of one partition."""
        delivery: _Delivery | None = None
        for batch in batches:
            if batch.num_rows:
                delivery = delivery or _Delivery(self, _origin(batch))
                delivery.add(batch)
        if delivery is not None:
            yield pa.RecordBatch.from_pydict({"rows": [delivery.end()]})


class _Delivery:
    """The rows of one partition in one batch.

    Its producer ends with it: that of the next batch may be in another process, and would fence
    it off.
    """

    def __init__(self, outlet: Outlet, origin: tuple[str, int]) -> None:
        self._client = _client(outlet.address)
        self._topic = Topics(self._client).find(outlet.topic)
        self._name = f"{outlet.writer}.{origin[0]}.{origin[1]}"
        self._commit = outlet.commit
        self._origin = origin
        self._rows = 0
        self._began: int | None = None
        self._end = 0
        self._producer = self._client.transactional(
            f"{TRANSACTIONAL}{self._name}", transaction_timeout_ms=_TRANSACTION_MS, **_QUEUE
        )
        with self._or_nothing():
            self._written = _written(self._client, self._name, origin) if outlet.fenced else 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows to the transaction, unless the topic has them already."""
        assert _origin(batch) == self._origin, "a task has rows of several partitions"
        self._rows += batch.num_rows
        offsets = batch.column(metadata.OFFSET)
        if offsets[0].as_py() < self._written:
            batch = batch.filter(pc.greater_equal(offsets, self._written))
            offsets = batch.column(metadata.OFFSET)
        if batch.num_rows:
            with self._or_nothing():
                if self._began is None:
                    self._began = offsets[0].as_py()
                    self._producer.begin_transaction()
                origin = [metadata.TOPIC, metadata.PARTITION, metadata.OFFSET]
                self._send(batch.drop_columns(origin))
            self._end = offsets[-1].as_py() + 1

    def end(self) -> int:
        """Commit, and return the number of rows."""
        if self._began is not None:
            with self._or_nothing():
                reached = Ack(*self._origin, self._began, self._end)
                fence = fence_message(self._name, Fence(self._commit, Receipt(None, 0, (reached,))))
                self._produce(fence.topic, fence.value, fence.key, fence.partition)
                self._producer.commit_transaction(self._client.seconds)
        return self._rows

    def _send(self, batch: pa.RecordBatch) -> None:
        topic = self._topic.topic
        for rows in conform(topic, batch):
            values = rows_of(self._topic).encode(rows.select(self._topic.schema.names))
            keys: list[bytes | None] = [None] * len(values)
            if topic.key is None:
                # Rows of one input partition keep their order.
                targets = [self._origin[1] % topic.partitions] * len(values)
            else:
                found = key_bytes(rows.column(topic.key))
                keys = found.to_pylist()
                targets = partition_column(found, topic.partitions).tolist()
            for key, value, target in zip(keys, values, targets, strict=True):
                self._produce(topic.name, value, key, target)

    def _produce(self, topic: str, value: bytes | None, key: bytes | None, partition: int) -> None:
        while True:
            try:
                self._producer.produce(topic, value, key, partition)
                return
            except BufferError:  # the queue is full
                self._producer.poll(0.1)

    @contextlib.contextmanager
    def _or_nothing(self) -> Iterator[None]:
        """Abort the transaction if the block fails."""
        try:
            yield
        except KafkaException as error:
            self._give_up()
            raise self._client.failure(error, topic=self._topic.name) from None
        except BaseException:
            self._give_up()
            raise

    def _give_up(self) -> None:
        with contextlib.suppress(KafkaException):
            self._producer.purge()
            self._producer.abort_transaction(self._client.seconds)


def _written(client: Client, writer: str, origin: tuple[str, int]) -> int:
    """The offset up to which a writer has written. Earlier writers have to be fenced off."""
    fence = read_fence(client, writer)
    if fence is None:
        return 0
    ends = [ack.end for ack in fence.receipt.acks if (ack.topic, ack.partition) == origin]
    return max(ends, default=0)


@functools.lru_cache(maxsize=8)
def _client_of(process: int, servers: str, settings: tuple[tuple[str, str], ...]) -> Client:
    return Client(KafkaAddress(servers, dict(settings)))


def _client(address: KafkaAddress) -> Client:
    """The client of this process. Spark reuses its Python workers for many batches."""
    return _client_of(os.getpid(), address.servers, tuple(sorted(address.settings.items())))


def _origin(batch: pa.RecordBatch) -> tuple[str, int]:
    """The input partition of the rows."""
    return batch.column(metadata.TOPIC)[0].as_py(), batch.column(metadata.PARTITION)[0].as_py()
