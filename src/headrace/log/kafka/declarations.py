"""Topic declarations that Kafka cannot store itself: the topic `_headrace.topics`."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import NewTopic, OffsetSpec

from headrace.errors import LogError, LogUnavailable, UnknownTopic
from headrace.log.kafka.client import Client, fetch
from headrace.log.kafka.failures import code_of

TOPIC = "_headrace.topics"
PREFIX = "_headrace."
"""The prefix of our internal topics."""


@dataclass(frozen=True)
class Declaration:
    """A topic's declaration; `columns` is DDL, and `settings` are texts."""

    topic_id: str
    columns: str | None = None
    key: str | None = None
    event_time: str | None = None
    settings: Mapping[str, str] | None = None

    def to_json(self) -> bytes:
        return json.dumps(asdict(self) | {"settings": dict(self.settings or {})}).encode()


class Declarations:
    """All declarations. Each `read` first reads their topic to its end."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: dict[str, Declaration] = {}
        self._next = 0
        self._producer: Producer | None = None
        self._lock = threading.Lock()

    def read(self) -> Mapping[str, Declaration]:
        """All current declarations, by topic."""
        with self._lock:
            try:
                first = self._offset(OffsetSpec.earliest())
                end = self._offset(OffsetSpec.latest())
            except UnknownTopic:
                self._known, self._next = {}, 0
                return {}
            if not first <= self._next <= end:
                self._known, self._next = {}, first  # the topic was deleted and recreated
            if self._next < end:
                self._read_on(end)
            return dict(self._known)

    def _offset(self, spec: OffsetSpec) -> int:
        return self._client.offsets([(TOPIC, 0)], spec)[TOPIC, 0][0]

    def _read_on(self, end: int) -> None:
        with self._client.reader(TopicPartition(TOPIC, 0, self._next)) as reader:
            for _ in self._client.moments():
                for message in fetch(reader, 1000, 0.1):
                    error = message.error()
                    if error is None:
                        self._take(message.key(), message.value())
                        self._next = (message.offset() or 0) + 1
                    elif error.code() == KafkaError._PARTITION_EOF:
                        self._next = max(self._next, message.offset() or 0)
                    else:
                        raise self._client.failure(error, topic=TOPIC)
                if self._next >= end:
                    return
        raise LogUnavailable(f"The topic {TOPIC!r} could not be read in time")

    def _take(self, key: Any, value: Any) -> None:
        name = bytes(key or b"").decode(errors="replace")
        if value is None:
            self._known.pop(name, None)
            return
        try:
            found = json.loads(value)
            self._known[name] = Declaration(*(found[field.name] for field in fields(Declaration)))
        except (ValueError, KeyError, TypeError) as error:
            raise LogError(
                f"The declaration of topic {name!r} in {TOPIC!r} cannot be parsed: {error!r}",
                hint="Another program has written to that topic. Write a null under this key "
                "and declare the topic again",
                topic=name,
            ) from error

    def write(self, name: str, declaration: Declaration | None) -> None:
        """Store a topic's declaration, or delete it with None."""
        make_own_topic(self._client, TOPIC, 1)
        if self._producer is None:
            self._producer = self._client.producer(acks="all", enable_idempotence=True)
            self._client.introduce(self._producer, TOPIC)
        producer = self._producer
        errors: list[KafkaError] = []
        producer.produce(
            TOPIC,
            None if declaration is None else declaration.to_json(),
            name.encode(),
            partition=0,
            on_delivery=lambda error, _: errors.append(error) if error else None,
        )
        if producer.flush(self._client.seconds):
            errors.append(KafkaError(KafkaError._TIMED_OUT))
        if errors:
            producer.purge()
            raise self._client.failure(errors[0], topic=TOPIC)


def make_own_topic(client: Client, name: str, partitions: int) -> None:
    """Create one of our internal compacted topics, if it does not exist."""
    wanted = NewTopic(
        name,
        partitions,
        replication_factor=-1,
        config={
            "cleanup.policy": "compact",
            "segment.bytes": str(1 << 20),
            "segment.ms": str(3_600_000),
            "min.cleanable.dirty.ratio": "0.1",
        },
    )
    answer = client.admin.create_topics([wanted], request_timeout=client.seconds)[name]
    try:
        answer.result(client.seconds + 5)
    except KafkaException as error:
        if code_of(error) != KafkaError.TOPIC_ALREADY_EXISTS:
            raise client.failure(error, topic=name) from None
    for _ in client.moments():
        if client.has_topic(name):  # the creation is answered before all brokers know the topic
            break
