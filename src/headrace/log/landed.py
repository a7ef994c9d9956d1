"""A broker's topics as they were copied into an embedded log, and the broker for everything else.

What a pipeline reads is in the folder, with commit numbers and frontiers, which a broker does not
have. What it writes goes to the broker, where others look for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from headrace.log.interface import Log
from headrace.log.position import EARLIEST, LATEST, Position
from headrace.log.record import Batch
from headrace.log.roles import Acks, CommitMode, Consumer, Producer
from headrace.log.settings import TopicSettings
from headrace.log.state import GroupState, Topic, TopicCommit, TopicState, UpkeepReport


class LandedLog(Log):
    """The topics named are `inside`, all others `outside`, which it does not close."""

    def __init__(self, inside: Log, outside: Log, topics: Collection[str]) -> None:
        self.inside = inside
        self.outside = outside
        self._topics = frozenset(topics)
        self.url = inside.url
        self.capabilities = inside.capabilities

    @property
    def home(self) -> str:
        return self.outside.home

    def _of(self, topic: str) -> Log:
        return self.inside if topic in self._topics else self.outside

    def close(self) -> None:
        self.inside.close()

    # Topics

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
        return self._of(name).create_topic(
            name,
            partitions=partitions,
            schema=schema,
            key=key,
            event_time=event_time,
            settings=settings,
        )

    def topics(self) -> list[Topic]:
        others = [topic for topic in self.outside.topics() if topic.name not in self._topics]
        return sorted([*self.inside.topics(), *others], key=lambda topic: topic.name)

    def topic(self, name: str) -> TopicState:
        return self._of(name).topic(name)

    def topic_ids(self, names: Iterable[str]) -> dict[str, int]:
        wanted = list(names)
        inside = self.inside.topic_ids(name for name in wanted if name in self._topics)
        return inside | self.outside.topic_ids(name for name in wanted if name not in self._topics)

    def alter_topic(
        self,
        name: str,
        *,
        settings: Mapping[str, Any] | None = None,
        partitions: int | None = None,
        schema: str | pa.Schema | None = None,
    ) -> Topic:
        return self._of(name).alter_topic(
            name, settings=settings, partitions=partitions, schema=schema
        )

    def delete_topic(self, name: str) -> None:
        self._of(name).delete_topic(name)

    # Writing

    def producer(
        self,
        *,
        id: str | None = None,
        acks: Acks = "synced",
        linger: timedelta = timedelta(milliseconds=10),
        batch_bytes: int = 4 << 20,
    ) -> Producer:
        return self.outside.producer(id=id, acks=acks, linger=linger, batch_bytes=batch_bytes)

    # Reading

    def read(
        self,
        topic: str,
        *,
        start: Position = EARLIEST,
        stop: Position = LATEST,
        partitions: Iterable[int] | None = None,
        columns: Sequence[str] | None = None,
    ) -> Iterator[Batch]:
        return self._of(topic).read(
            topic, start=start, stop=stop, partitions=partitions, columns=columns
        )

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
        return self.outside.consumer(
            *topics,
            group=group,
            start=start,
            commit=commit,
            assignor=assignor,
            instance=instance,
            session=session,
            max_poll_interval=max_poll_interval,
        )

    def offset_at(self, topic: str, partition: int, position: Position) -> int:
        return self._of(topic).offset_at(topic, partition, position)

    # Commits and frontiers

    def head(self) -> int:
        return self.inside.head()

    def rollbacks(self) -> dict[int, int]:
        return self.inside.rollbacks()

    def sync(self, upto: int) -> None:
        self.inside.sync(upto)

    def commit_time(self, commit: int) -> int:
        return self.inside.commit_time(commit)

    def commits(self, topic: str, after: int, limit: int) -> list[TopicCommit]:
        return self.inside.commits(topic, after, limit)

    def advance(self, topic: str, moment: datetime, *, ahead: bool = False) -> int | None:
        return self.inside.advance(topic, moment, ahead=ahead)

    def frontier(self, topic: str, commit: int | None = None) -> int | None:
        return self.inside.frontier(topic, commit)

    # Groups

    def groups(self) -> list[str]:
        return self.outside.groups()

    def group(self, name: str) -> GroupState:
        return self.outside.group(name)

    def reset_group(self, name: str, topic: str, position: Position) -> dict[int, int]:
        return self.outside.reset_group(name, topic, position)

    def delete_group(self, name: str) -> None:
        self.outside.delete_group(name)

    # Upkeep

    def upkeep(self, topic: str | None = None) -> list[UpkeepReport]:
        return self.inside.upkeep(topic)

    def compact(self, topic: str) -> UpkeepReport:
        return self.inside.compact(topic)
