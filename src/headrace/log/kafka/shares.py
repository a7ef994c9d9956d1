"""Kafka's share groups: records handed out one at a time, each until it is acknowledged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from confluent_kafka import AcknowledgeType, KafkaException, Message
from confluent_kafka.admin import ConfigResource, ConfigSource, ResourceType

from headrace.closing import Closing
from headrace.errors import LogUnavailable, UnreadableRecord
from headrace.log.declared import TopicRow
from headrace.log.kafka.client import Client
from headrace.log.kafka.messages import batch_of
from headrace.log.record import Record

Place = tuple[int, int]
"""A partition and an offset."""

Answer = Literal["accept", "release", "reject"]

_TYPES = {
    "accept": AcknowledgeType.ACCEPT,
    "release": AcknowledgeType.RELEASE,
    "reject": AcknowledgeType.REJECT,
}


@dataclass(frozen=True, slots=True)
class Shared:
    """A record that was handed out, for the `deliveries`th time.

    `record` is None if its bytes are not a row of the topic: then `problem` says why.
    """

    partition: int
    offset: int
    deliveries: int
    record: Record | None
    problem: str = ""
    value: bytes | None = None


class ShareMember(Closing):
    """A member of a share group that reads one topic. It belongs to one thread at a time."""

    def __init__(self, client: Client, topic: TopicRow, group: str, at_most: int) -> None:
        self._client = client
        self._topic = topic
        self._consumer = client.share_consumer(
            group_id=group, share_acknowledgement_mode="explicit", max_poll_records=at_most
        )
        with client.translating():
            self._consumer.subscribe([topic.name])

    def poll(self, seconds: float) -> list[Shared]:
        """The next records. All that came before must have been acknowledged."""
        with self._client.translating():
            found = list(self._consumer.poll(seconds))
        for message in found:
            if (error := message.error()) is not None:
                raise self._client.failure(error, topic=self._topic.name)
        return [self._shared(message) for message in found]

    def _shared(self, message: Message) -> Shared:
        place = (int(message.partition() or 0), int(message.offset() or 0))
        deliveries = int(message.delivery_count() or 1)
        try:
            (record,) = batch_of(self._topic, [message]).records()
        except UnreadableRecord as error:
            return Shared(*place, deliveries, None, error.message, message.value())
        return Shared(*place, deliveries, record)

    def acknowledge(self, answers: Sequence[tuple[Place, Answer]]) -> set[int]:
        """Acknowledge records now, and return the partitions that refused.

        A partition refuses all of them if it handed out one again, whose lease had ended.
        """
        with self._client.translating():
            for place, answer in answers:
                self._consumer.acknowledge_offset(self._topic.name, *place, _TYPES[answer])
            done: Mapping[Any, KafkaException | None] = self._consumer.commit_sync(
                self._client.seconds
            )
        return {place.partition for place, error in done.items() if error is not None}

    def close(self) -> None:
        """Leave the group, which hands out what was not acknowledged again."""
        with self._client.translating():
            self._consumer.close()


def configure(client: Client, group: str, configs: Mapping[str, str]) -> None:
    """Set some of a group's configuration, and return when the broker shows it."""
    client.configure(ResourceType.GROUP, group, configs, group=group)
    for _ in client.moments():
        if configs.items() <= configuration(client, group).items():
            return
    raise LogUnavailable(f"The settings of group {group!r} are not in force yet", group=group)


def configuration(client: Client, group: str) -> dict[str, str]:
    """The configuration that was set for a group; empty if none was."""
    resource = ConfigResource(ResourceType.GROUP, group)
    (answer,) = client.admin.describe_configs([resource], request_timeout=client.seconds).values()
    found = client.wait(answer, group=group)
    return {
        name: entry.value
        for name, entry in found.items()
        if entry.value is not None and entry.source == ConfigSource.GROUP_CONFIG.value
    }
