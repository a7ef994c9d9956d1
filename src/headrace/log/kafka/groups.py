"""Kafka's consumer groups: members, offsets and lag."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import ConsumerGroupDescription, OffsetSpec

from headrace.clock import SECOND
from headrace.errors import HeadraceError
from headrace.log.declared import check_name
from headrace.log.kafka.client import Client, fetch
from headrace.log.kafka.failures import code_of, group_active, unknown_group
from headrace.log.kafka.lookup import at, committed, find_offsets
from headrace.log.kafka.topics import Topics
from headrace.log.position import Position
from headrace.log.state import GroupState, Lag, Member

_BUSY = {KafkaError.NON_EMPTY_GROUP, KafkaError.UNKNOWN_MEMBER_ID, KafkaError.REBALANCE_IN_PROGRESS}
_SETTLES = SECOND
"""The longest wait for a group to settle: for members to join, or a transaction to end."""


class Groups:
    """All consumer groups of a cluster."""

    def __init__(self, client: Client, topics: Topics) -> None:
        self._client = client
        self._topics = topics

    def names(self) -> list[str]:
        answer = self._client.admin.list_consumer_groups(request_timeout=self._client.seconds)
        found = self._client.wait(answer)
        return sorted(
            group.group_id for group in found.valid if group.state != ConsumerGroupState.DEAD
        )

    def find(self, name: str) -> ConsumerGroupDescription | None:
        """Kafka's description of a group, or None if there is no such group."""
        check_name(name, "group")
        try:
            found = self._client.ask(
                lambda: self._client.admin.describe_consumer_groups(
                    [name], request_timeout=self._client.seconds
                )[name]
            )
        except (KafkaException, TimeoutError) as error:
            if code_of(error) == KafkaError.GROUP_ID_NOT_FOUND:
                return None
            raise self._client.failure(error, group=name) from None
        return None if found.state == ConsumerGroupState.DEAD else found

    def find_settled(self, name: str) -> ConsumerGroupDescription | None:
        """As `find`, but waits while members join and their assignor is not known yet."""
        end = self._client.clock.monotonic() + _SETTLES
        for _ in self._client.moments():
            found = self.find(name)
            settled = found is None or not found.members or found.partition_assignor
            if settled or self._client.clock.monotonic() > end:
                break
        return found

    def describe(self, name: str) -> GroupState:
        found = self.find(name)
        if found is None:
            raise unknown_group(name)
        members = tuple(sorted(map(_member, found.members), key=lambda member: member.id))
        assignor = (found.partition_assignor or "").removeprefix("cooperative-")
        return GroupState(name, None, assignor, members, self._lags(name, members))

    def _committed(
        self, name: str, owned: Iterable[tuple[str, int]]
    ) -> dict[tuple[str, int], TopicPartition]:
        """The committed offset of a group in each partition.

        The offsets of a committed transaction appear a moment later, so this waits a while for
        pending transactions; one that stays open does not count.

        A request for all partitions omits those that have only pending offsets, so the partitions
        that members own are requested by name.
        """
        end = self._client.clock.monotonic() + _SETTLES
        for _ in self._client.moments():
            stable = self._client.clock.monotonic() < end
            found = self._offsets(name, None, stable=stable)
            missing = [TopicPartition(*place) for place in owned if place not in found]
            if missing:
                found |= self._offsets(name, missing, stable=stable)
            if not any(map(_unstable, found.values())):
                break
        return found

    def _offsets(
        self, name: str, places: list[TopicPartition] | None, *, stable: bool
    ) -> dict[tuple[str, int], TopicPartition]:
        """The committed offsets of some partitions, or of all; if `stable`, with an error where a
        transaction is pending."""
        try:
            found = self._client.ask(
                lambda: self._client.admin.list_consumer_group_offsets(
                    [ConsumerGroupTopicPartitions(name, places)],
                    require_stable=stable,
                    request_timeout=self._client.seconds,
                )[name]
            )
        except (KafkaException, TimeoutError) as error:
            raise self._client.failure(error, group=name) from None
        return {(p.topic, p.partition): p for p in found.topic_partitions or ()}

    def _lags(self, name: str, members: tuple[Member, ...]) -> tuple[Lag, ...]:
        owners = {place: member.id for member in members for place in member.partitions}
        done = self._committed(name, owners)
        rows = {
            row.name: row
            for row in self._topics.find_all({topic for topic, _ in done.keys() | owners.keys()})
        }
        places = sorted(
            (topic, partition)
            for topic, partition in done.keys() | owners.keys()
            if topic in rows and partition < rows[topic].topic.partitions
        )
        first = self._client.some_offsets(places, OffsetSpec.earliest())
        ends = self._client.some_offsets(places, OffsetSpec.latest())
        found: dict[tuple[str, int], tuple[int | None, int, int]] = {}
        for place in places:
            start, end = first[place], ends[place]
            if isinstance(start, HeadraceError) or isinstance(end, HeadraceError):
                continue  # the topic was just deleted
            offset = committed(rows[place[0]], done[place]) if place in done else None
            if offset is None and place not in owners:
                continue  # the offset is of a deleted topic of this name
            found[place] = (offset, max(start[0], offset or 0), end[0])
        behind = {place: reached for place, (_, reached, end) in found.items() if reached < end}
        waiting = self._times(behind)
        now = self._client.clock.now()
        return tuple(
            Lag(
                *place,
                offset,
                end,
                max(0, end - reached) if place in waiting or reached >= end else 0,
                max(0, now - waiting[place]) / SECOND if place in waiting else 0.0,
                owners.get(place),
            )
            for place, (offset, reached, end) in found.items()
        )

    def _times(self, places: dict[tuple[str, int], int]) -> dict[tuple[str, int], int]:
        """The append time of the record at an offset, or of the next one, by partition.

        A partition that has only transaction markers left is missing.
        """
        found: dict[tuple[str, int], int] = {}
        left = set(places)
        if not left:
            return found
        starts = [TopicPartition(*place, offset) for place, offset in places.items()]
        with self._client.reader(*starts) as reader:
            for _ in self._client.moments():
                for message in fetch(reader, 1000, 0.05):
                    place = (message.topic() or "", message.partition() or 0)
                    if message.error() is None:
                        found.setdefault(place, max(0, message.timestamp()[1]) * 1000)
                    left.discard(place)
                if not left:
                    break
        return found

    # Changing

    def reset(self, name: str, topic: str, position: Position) -> dict[int, int]:
        check_name(name, "group")
        row = self._topics.find(topic)
        offsets = find_offsets(self._client, row, range(row.topic.partitions), position)
        known = self.find(name)
        if known is not None and known.members:
            raise group_active(name)
        places = [at(row, partition, offset) for partition, offset in offsets.items()]
        self._change(
            name,
            lambda: self._client.admin.alter_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(name, places)], request_timeout=self._client.seconds
            )[name],
        )
        return offsets

    def delete(self, name: str) -> None:
        if self.find(name) is None:
            raise unknown_group(name)
        self._change(
            name,
            lambda: self._client.admin.delete_consumer_groups(
                [name], request_timeout=self._client.seconds
            )[name],
        )

    def _change(self, name: str, call: Callable[[], Future[Any]]) -> None:
        try:
            self._client.ask(call)
        except (KafkaException, TimeoutError) as error:
            if code_of(error) in _BUSY:
                raise group_active(name) from None
            raise self._client.failure(error, group=name) from None


def _unstable(place: TopicPartition) -> bool:
    return place.error is not None and code_of(place.error) == KafkaError.UNSTABLE_OFFSET_COMMIT


def _member(found: Any) -> Member:
    """A member from Kafka's description, which omits topics of which it has no partition."""
    places = () if found.assignment is None else found.assignment.topic_partitions
    partitions = tuple(sorted((place.topic, place.partition) for place in places))
    topics = tuple(sorted({topic for topic, _ in partitions}))
    return Member(found.member_id, found.group_instance_id, topics, partitions, None)
