"""The journal of commits: the topic `_headrace.commits`, in which a log on Kafka keeps its order.

It has one partition, so the broker orders its records, and the offset of a record is the number of
its commit. The first record, 0, says when the journal was made.
"""

from __future__ import annotations

import threading
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import NewTopic, OffsetSpec

from headrace.errors import AccessDenied, LogError, LogUnavailable, UnknownTopic
from headrace.log.kafka.client import Client, fetch
from headrace.log.kafka.cuts import Index, Record
from headrace.log.kafka.failures import code_of

TOPIC = "_headrace.commits"

_VERSION = "headrace.journal"
_OURS = b"1"
_CONFIG = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "LogAppendTime",
}
_RIGHTS = (
    f"The order of commits is kept in the topic {TOPIC!r}: allow Create, Describe, Read and Write "
    "on it"
)


class Journal:
    """The commits of a cluster. Each `read` first reads the topic to its end."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._index = Index()
        self._next = 0
        self._consumer: Consumer | None = None
        self._producer: Producer | None = None
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close its consumer."""
        with self._lock:
            consumer, self._consumer = self._consumer, None
            if consumer is not None:
                consumer.close()

    def read(self) -> Index:
        """All commits up to now."""
        with self._lock:
            try:
                end = self._client.offsets([(TOPIC, 0)], OffsetSpec.latest())[TOPIC, 0][0]
            except UnknownTopic:
                if self._next:
                    raise _gone() from None
                return self._index
            except AccessDenied as error:
                raise _denied(error) from None
            if end < self._next:
                raise _gone()
            if self._next < end:
                self._read_on(end)
            return self._index

    def append(self, record: Record) -> None:
        """Append a record, and return when the broker has it."""
        with self._lock:
            if self._producer is None:
                self._make()
                self._producer = self._client.producer(
                    acks="all", enable_idempotence=True, linger_ms=0
                )
                self._client.introduce(self._producer, TOPIC)
            self._send(self._producer, record)

    def _send(self, producer: Producer, record: Record) -> None:
        errors: list[KafkaError] = []
        producer.produce(
            TOPIC,
            record.to_json(),
            partition=0,
            headers=[(_VERSION, _OURS)],
            on_delivery=lambda error, _: errors.append(error) if error else None,
        )
        if producer.flush(self._client.seconds):
            errors.append(KafkaError(KafkaError._TIMED_OUT))
        if errors:
            producer.purge()
            failure = self._client.failure(errors[0], topic=TOPIC)
            raise _denied(failure) if isinstance(failure, AccessDenied) else failure

    def _make(self) -> None:
        """Create the topic, if it is not there, and its first record, if it has none."""
        wanted = NewTopic(TOPIC, 1, replication_factor=-1, config=_CONFIG)
        seconds = self._client.seconds
        answer = self._client.admin.create_topics([wanted], request_timeout=seconds)[TOPIC]
        try:
            answer.result(seconds + 5)
        except KafkaException as error:
            # Without the right to create it, it may be there nevertheless.
            if code_of(error) != KafkaError.TOPIC_ALREADY_EXISTS and not self._is_there():
                failure = self._client.failure(error, topic=TOPIC)
                raise _denied(failure) if isinstance(failure, AccessDenied) else failure from None
        for _ in self._client.moments():
            if self._client.has_topic(TOPIC):
                break
        if not self._client.offsets([(TOPIC, 0)], OffsetSpec.latest())[TOPIC, 0][0]:
            # Of several that begin at once, the first is the one that counts.
            producer = self._client.producer(acks="all", enable_idempotence=True, linger_ms=0)
            self._client.introduce(producer, TOPIC)
            self._send(producer, Record(made=self._client.clock.now()))

    def _is_there(self) -> bool:
        try:
            return self._client.has_topic(TOPIC)
        except AccessDenied:
            return False

    def _read_on(self, end: int) -> None:
        if self._consumer is None:
            self._consumer = self._client.consumer()
            self._client.introduce(self._consumer, TOPIC)
            self._consumer.assign([TopicPartition(TOPIC, 0, self._next)])
        for _ in self._client.moments():
            for message in fetch(self._consumer, 10_000, 0.1):
                error = message.error()
                if error is None:
                    self._take(message)
                elif error.code() != KafkaError._PARTITION_EOF:
                    raise self._failure(error)
            if self._next >= end:
                return
        raise LogUnavailable(f"The topic {TOPIC!r} could not be read in time")

    def _failure(self, error: KafkaError) -> Exception:
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            return _gone()
        failure = self._client.failure(error, topic=TOPIC)
        return _denied(failure) if isinstance(failure, AccessDenied) else failure

    def _take(self, message: Any) -> None:
        if message.offset() != self._next:
            raise _gone()
        version = dict(message.headers() or ()).get(_VERSION)
        if version != _OURS:
            raise LogError(
                f"Commit {self._next} in {TOPIC!r} has the format {_text(version)}, and this "
                f"headrace knows {_text(_OURS)}",
                hint="A newer headrace has written it: install that one here too",
            )
        self._index.add(Record.from_json(message.value() or b""), message.timestamp()[1] * 1000)
        self._next += 1


def _text(version: bytes | None) -> str:
    return "none" if version is None else version.decode(errors="replace")


def _gone() -> LogError:
    return LogError(
        f"Commits that were read before are gone from the topic {TOPIC!r}: it was deleted, made "
        "again, or cut off",
        hint="Stored results are unchanged. headrace run --fresh computes everything in a new "
        "order of commits",
    )


def _denied(error: Exception) -> AccessDenied:
    return AccessDenied(str(error).split("\n")[0], hint=_RIGHTS)
