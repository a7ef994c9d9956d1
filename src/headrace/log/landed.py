"""A broker's topics as they were copied into an embedded log, and the broker for everything else.

What a pipeline reads is in the folder, with commit numbers and frontiers, which a broker does not
have. What it writes goes to the broker, where others look for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from typing import Any

from headrace.log.interface import Log
from headrace.log.position import Position
from headrace.log.record import Batch
from headrace.log.roles import Consumer, Producer
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

    def create_topic(self, name: str, **declared: Any) -> Topic:
        return self._of(name).create_topic(name, **declared)

    def topics(self) -> list[Topic]:
        others = [topic for topic in self.outside.topics() if topic.name not in self._topics]
        return sorted([*self.inside.topics(), *others], key=lambda topic: topic.name)

    def topic(self, name: str) -> TopicState:
        return self._of(name).topic(name)

    def topic_ids(self, names: Iterable[str]) -> dict[str, int]:
        wanted = list(names)
        inside = self.inside.topic_ids(name for name in wanted if name in self._topics)
        return inside | self.outside.topic_ids(name for name in wanted if name not in self._topics)

    def alter_topic(self, name: str, **changes: Any) -> Topic:
        return self._of(name).alter_topic(name, **changes)

    def delete_topic(self, name: str) -> None:
        self._of(name).delete_topic(name)

    # Writing

    def producer(self, **settings: Any) -> Producer:
        return self.outside.producer(**settings)

    # Reading

    def read(self, topic: str, **part: Any) -> Iterator[Batch]:
        return self._of(topic).read(topic, **part)

    def consumer(self, *topics: str, **settings: Any) -> Consumer:
        return self.outside.consumer(*topics, **settings)

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
