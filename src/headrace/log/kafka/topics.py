"""Topics on Kafka, and their declarations in an internal topic."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicDescription,
)

from headrace.errors import InvalidSchema, LogUnavailable, UnknownTopic
from headrace.log.declared import (
    TopicRow,
    check_compaction,
    check_more_partitions,
    check_name,
    check_partitions,
    columns_of,
    topic_exists,
    topic_schema,
    unknown_topic,
    widened,
)
from headrace.log.kafka.client import Client
from headrace.log.kafka.configs import from_configs, to_configs
from headrace.log.kafka.declarations import PREFIX, Declaration, Declarations
from headrace.log.kafka.failures import code_of
from headrace.log.kafka.wire import KafkaTopicRow, check_columns
from headrace.log.matches import check_same_index
from headrace.log.settings import TopicSettings
from headrace.log.state import PartitionState, Topic, TopicState


class Topics:
    """The topics of a cluster."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._declarations = Declarations(client)

    # Looking

    def names(self) -> list[str]:
        """All topics except internal ones."""
        with self._client.translating():
            found = self._client.admin.list_topics(timeout=self._client.seconds)
        return sorted(n for n in found.topics if not n.startswith(("__", PREFIX)))

    def find(self, name: str) -> TopicRow:
        """A topic by name."""
        found = self.find_all([check_name(name, "topic")])
        if not found:
            raise unknown_topic(name)
        return found[0]

    def find_all(self, names: Iterable[str]) -> list[TopicRow]:
        """Those of the named topics that exist."""
        described = self.described(names)
        if not described:
            return []
        declared = self._declarations.read()
        configs = self._configs(described)
        return [
            self._row(description, declared.get(name), configs[name])
            for name, description in described.items()
            if name in configs
        ]

    def undeclared(self, names: Iterable[str]) -> dict[str, int]:
        """The partitions of those of the named topics that exist without a declaration."""
        described = self.described(names)
        declared = self._declarations.read() if described else {}
        return {
            name: len(found.partitions)
            for name, found in described.items()
            if not _is_of(declared.get(name), found)
        }

    def described(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        """Kafka's descriptions of those of the named topics that exist."""
        wanted = list(names)
        if not wanted:
            return {}
        answers = self._client.admin.describe_topics(
            TopicCollection(wanted), request_timeout=self._client.seconds
        )
        found = {}
        for name, answer in answers.items():
            try:
                found[name] = self._client.wait(answer, topic=name)
            except UnknownTopic:
                continue
        return found

    def _configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        answers = self._client.admin.describe_configs(
            resources, request_timeout=self._client.seconds
        )
        found: dict[str, dict[str, str]] = {}
        for resource, answer in answers.items():
            try:
                entries = self._client.wait(answer, topic=resource.name)
            except UnknownTopic:
                continue
            found[resource.name] = {
                name: entry.value for name, entry in entries.items() if entry.value is not None
            }
        return found

    def _row(
        self, found: TopicDescription, declared: Declaration | None, configs: Mapping[str, str]
    ) -> TopicRow:
        if not _is_of(declared, found):
            declared = None
        columns = None if declared is None else declared.columns
        topic = Topic(
            found.name,
            len(found.partitions),
            None if columns is None else topic_schema(columns),
            None if declared is None else declared.key,
            None if declared is None else declared.event_time,
            _settings(declared, configs),
        )
        text = f"{topic.partitions} {columns} {topic.settings.to_text()}"
        version = zlib.crc32(text.encode())
        return KafkaTopicRow(number_of(found), version, columns, topic, self._client.address)

    def describe(self, name: str) -> TopicState:
        """The state of a topic and its partitions."""
        row = self.find(name)
        places = [(name, partition) for partition in range(row.topic.partitions)]
        first = self._client.offsets(places, OffsetSpec.earliest())
        end = self._client.offsets(places, OffsetSpec.latest())
        filled = [place for place in places if first[place][0] < end[place][0]]
        last = self._client.offsets(filled, OffsetSpec.max_timestamp()) if filled else {}
        times = {place: millis * 1000 for place, (_, millis) in last.items() if millis >= 0}
        states = [
            PartitionState(p[1], first[p][0], end[p][0], None, 0, None, times.get(p))
            for p in places
        ]
        return TopicState(row.topic, tuple(states), None)

    # Changing

    def create(self, topic: Topic, schema: str | pa.Schema | None) -> Topic:
        """Create a topic and declare it."""
        name = check_name(topic.name, "topic")
        check_partitions(topic.partitions)
        columns = columns_of(schema, topic.key, topic.event_time)
        check_columns(topic, columns)
        check_compaction(topic, columns)
        wanted = NewTopic(
            name, topic.partitions, replication_factor=-1, config=to_configs(topic.settings)
        )
        answer = self._client.admin.create_topics([wanted], request_timeout=self._client.seconds)
        try:
            answer[name].result(self._client.seconds + 5)
        except KafkaException as error:
            if code_of(error) == KafkaError.TOPIC_ALREADY_EXISTS:
                raise topic_exists(name) from None
            raise self._client.failure(error, topic=name) from None
        made = self._visible(name, topic.partitions)
        self._declare(made, topic, columns)
        return self.find(name).topic

    def adopt(self, topic: Topic) -> Topic:
        """Declare an existing topic, unless it already has a declaration."""
        described = self.described([check_name(topic.name, "topic")]).get(topic.name)
        if described is None:
            raise unknown_topic(topic.name)
        if not _is_of(self._declarations.read().get(topic.name), described):
            columns = columns_of(topic.schema, topic.key, topic.event_time)
            check_columns(topic, columns)
            self._declare(described, topic, columns)
        return self.find(topic.name).topic

    def alter(
        self,
        name: str,
        settings: Mapping[str, Any] | None,
        partitions: int | None,
        schema: str | pa.Schema | None,
    ) -> Topic:
        row = self.find(name)
        topic, columns = row.topic, row.columns
        changed = topic.settings.change(settings or {})
        check_same_index(name, topic.settings, changed)
        check_compaction(replace(topic, settings=changed), columns)
        if partitions is not None:
            check_more_partitions(topic, partitions)
        if schema is not None:
            columns = widened(row, schema)
            if changed.format == "avro" and columns != row.columns:
                raise InvalidSchema(
                    f"Topic {name!r} holds Avro and cannot get more columns: its records do "
                    "not store the schema that they were written with",
                    hint="Create another topic, or use format=json",
                )
        check_columns(replace(topic, settings=changed), columns)
        if partitions is not None and partitions > topic.partitions:
            answer = self._client.admin.create_partitions(
                [NewPartitions(name, partitions)], request_timeout=self._client.seconds
            )
            self._client.wait(answer[name], topic=name)
            self._visible(name, partitions)
        if changed != topic.settings:
            self._client.configure(ResourceType.TOPIC, name, to_configs(changed))
        made = self._visible(name, topic.partitions)
        self._declare(made, replace(topic, settings=changed), columns)
        return self.find(name).topic

    def delete(self, name: str) -> None:
        """Delete a topic and its declaration, and return when it is gone."""
        self.find(name)
        answer = self._client.admin.delete_topics([name], request_timeout=self._client.seconds)
        self._client.wait(answer[name], topic=name)
        for _ in self._client.moments():
            if name not in self.described([name]):
                break
        self._declarations.write(name, None)

    def _declare(self, found: TopicDescription, topic: Topic, columns: str | None) -> None:
        self._declarations.write(
            topic.name,
            Declaration(
                str(found.topic_id), columns, topic.key, topic.event_time, topic.settings.to_text()
            ),
        )

    def _visible(self, name: str, partitions: int) -> TopicDescription:
        """The topic, once the brokers know it and this number of partitions."""
        for _ in self._client.moments():
            found = self.described([name]).get(name)
            if (
                found is not None
                and len(found.partitions) >= partitions
                and all(partition.leader is not None for partition in found.partitions)
            ):
                return found
        raise LogUnavailable(f"Topic {name!r} was created but has no leader yet", topic=name)


def number_of(found: TopicDescription) -> int:
    """Kafka's id of a topic as a number."""
    high = int(found.topic_id.get_most_significant_bits())
    low = int(found.topic_id.get_least_significant_bits())
    return (high & (1 << 64) - 1) << 64 | low & (1 << 64) - 1


def _is_of(declared: Declaration | None, found: TopicDescription) -> bool:
    """True for a declaration of this topic, and not of a deleted one of its name."""
    return declared is not None and declared.topic_id == str(found.topic_id)


def _settings(declared: Declaration | None, configs: Mapping[str, str]) -> TopicSettings:
    if declared is None:
        return from_configs(None, configs)
    known = TopicSettings().to_text()
    # A newer headrace may have settings that this one does not know.
    kept = {name: text for name, text in (declared.settings or {}).items() if name in known}
    return from_configs(TopicSettings().change(kept), configs)
