"""A log without any optional capability, which refuses as the `Log` interface requires."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from headrace.log import (
    EARLIEST,
    LATEST,
    Batch,
    Capability,
    Consumer,
    Position,
    Producer,
    Topic,
    TopicCommit,
    TopicSettings,
    TopicState,
    UpkeepReport,
)
from headrace.log.file.log import FileLog
from headrace.log.matches import Match
from headrace.log.roles import Acks, CommitMode, CommitPart
from tests.conformance.limited_handles import LimitedConsumer, LimitedProducer, check_position


class LimitedLog(FileLog):
    """The embedded log without commit numbers, frontiers, sequences, columns, upkeep and tiers."""

    capabilities: frozenset[Capability] = frozenset()

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
        if settings.index is not None:
            self.require(Capability.CONDITIONS)
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
        judged: bool = False,
    ) -> Iterator[Batch]:
        check_position(self, start, stop)
        found = super().read(
            topic, start=start, stop=stop, partitions=partitions, columns=columns, judged=judged
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
        check_position(self, start)
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
        check_position(self, position)
        return super().offset_at(topic, partition, position)

    def head(self) -> int:
        self.require(Capability.COMMITS)
        return super().head()

    def commit_time(self, commit: int) -> int:
        self.require(Capability.COMMITS)
        return super().commit_time(commit)

    def commits(self, topic: str, after: int, limit: int) -> list[TopicCommit]:
        self.require(Capability.COMMITS)
        return super().commits(topic, after, limit)

    def advance(self, topic: str, moment: datetime, *, ahead: bool = False) -> int | None:
        self.require(Capability.FRONTIERS)
        return super().advance(topic, moment, ahead=ahead)

    def frontier(self, topic: str, commit: int | None = None) -> int | None:
        self.require(Capability.FRONTIERS)
        return super().frontier(topic, commit)

    def unless(self, topic: str, matches: Sequence[Match], *, after: int) -> CommitPart:
        self.require(Capability.CONDITIONS)
        return super().unless(topic, matches, after=after)

    def find(
        self,
        topic: str,
        matches: Sequence[Match],
        *,
        after: int = 0,
        upto: int | None = None,
        last: int = 0,
        columns: Sequence[str] | None = None,
    ) -> Iterator[Batch]:
        self.require(Capability.CONDITIONS)
        return super().find(topic, matches, after=after, upto=upto, last=last, columns=columns)

    def reset_group(self, name: str, topic: str, position: Position) -> dict[int, int]:
        check_position(self, position)
        return super().reset_group(name, topic, position)

    def upkeep(self, topic: str | None = None) -> list[UpkeepReport]:
        self.require(Capability.UPKEEP)
        return super().upkeep(topic)

    def compact(self, topic: str) -> UpkeepReport:
        self.require(Capability.UPKEEP)
        return super().compact(topic)
