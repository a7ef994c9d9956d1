"""The log on Kafka."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from headrace.clock import Clock, to_micros
from headrace.errors import InvalidPosition, InvalidSetting, LogError
from headrace.log.conform import unknown_column
from headrace.log.declared import TopicRow, check_name, check_partition
from headrace.log.event_time import check_not_ahead, has_event_time, last_believed
from headrace.log.interface import Capability, Log
from headrace.log.kafka import shares
from headrace.log.kafka.address import KafkaAddress, parse_address
from headrace.log.kafka.client import Client
from headrace.log.kafka.committer import KafkaCommitter
from headrace.log.kafka.consumer import STRATEGIES, KafkaConsumer, Terms
from headrace.log.kafka.cuts import Record, TopicCuts
from headrace.log.kafka.cutter import Cutter
from headrace.log.kafka.groups import Groups
from headrace.log.kafka.journal import Journal
from headrace.log.kafka.lookup import find_offsets
from headrace.log.kafka.reader import scan
from headrace.log.kafka.topics import Topics, number_of
from headrace.log.position import EARLIEST, LATEST, Commit, Position
from headrace.log.producer import LogProducer
from headrace.log.record import Batch
from headrace.log.roles import Acks, CommitMode, Consumer, Producer
from headrace.log.settings import TopicSettings
from headrace.log.state import GroupState, Topic, TopicCommit, TopicState

_LONGEST_SESSION = timedelta(minutes=30)
"""Kafka's default maximum, and near the limit of its client."""


class KafkaLog(Log):
    """A log on a Kafka cluster. `url` and `repr` omit its secrets; `address` has them.

    `cluster` is Kafka's id of the cluster.
    """

    capabilities = frozenset(
        {
            Capability.SEQUENCES,
            Capability.TYPED_TOPICS,
            Capability.COMMITS,
            Capability.FRONTIERS,
        }
    )

    judges_rows = True

    def __init__(
        self,
        address: KafkaAddress | str,
        *,
        clock: Clock | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        given = parse_address(address, settings=settings) if isinstance(address, str) else address
        self.address = given
        self.url = str(self.address)
        self._client = Client(self.address, clock)
        self.cluster = self._client.check()
        self._topics = Topics(self._client)
        self._groups = Groups(self._client, self._topics)
        self._journal = Journal(self._client)
        self._cutter = Cutter(self._client, self._topics, self._journal)
        self._handles: weakref.WeakSet[Producer | Consumer] = weakref.WeakSet()

    def __repr__(self) -> str:
        return f"KafkaLog({self.url!r})"

    def close(self) -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(self._client.close)
            stack.callback(self._journal.close)
            stack.callback(self._cutter.close)
            for handle in list(self._handles):
                # Polled records may not have been processed, so a consumer does not commit.
                ends = handle.abandon if isinstance(handle, KafkaConsumer) else handle.close
                stack.callback(ends)

    @property
    def settings(self) -> Mapping[str, str]:
        return self.address.every_setting

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
        if not isinstance(settings, TopicSettings):
            settings = TopicSettings().change(settings or {})
        if settings.tier is not None:
            self.require(Capability.TIERING)
        if settings.index is not None:
            self.require(Capability.CONDITIONS)
        return self._topics.create(Topic(name, partitions, None, key, event_time, settings), schema)

    def ensure_topic(self, declared: Topic) -> Topic:
        """As for any log; an existing Kafka topic without a declaration gets this one."""
        super().ensure_topic(declared)
        return self._topics.adopt(declared)

    def foreign_topics(self, names: Iterable[str]) -> dict[str, int]:
        return self._topics.undeclared(names)

    def topics(self) -> list[Topic]:
        return [row.topic for row in self._topics.find_all(self._topics.names())]

    def topic(self, name: str) -> TopicState:
        state = self._topics.describe(name)
        return replace(state, frontier=self._known_cuts(self._topics.find(name)).last.frontier)

    def topic_ids(self, names: Iterable[str]) -> dict[str, int]:
        return {name: number_of(found) for name, found in self._topics.described(names).items()}

    def alter_topic(
        self,
        name: str,
        *,
        settings: Mapping[str, Any] | None = None,
        partitions: int | None = None,
        schema: str | pa.Schema | None = None,
    ) -> Topic:
        if settings and settings.get("tier") not in (None, "none"):
            self.require(Capability.TIERING)
        return self._topics.alter(name, settings, partitions, schema)

    def delete_topic(self, name: str) -> None:
        self._topics.delete(name)

    # Writing

    def producer(
        self,
        *,
        id: str | None = None,
        acks: Acks = "synced",
        linger: timedelta = timedelta(milliseconds=10),
        batch_bytes: int = 4 << 20,
    ) -> Producer:
        def committer() -> KafkaCommitter:
            return KafkaCommitter(self._client, self._topics, id=id, acks=acks)

        producer = LogProducer(committer, acks=acks, linger=linger, batch_bytes=batch_bytes)
        self._handles.add(producer)
        return producer

    # Reading

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
        row = self._topics.find(topic)
        if columns is not None and not columns:
            raise InvalidSetting("The list of columns is empty", hint="Omit columns to get all")
        for name in columns or ():
            if name not in row.schema.names:
                raise unknown_column(row.topic, name)
        wanted = list(range(row.topic.partitions) if partitions is None else partitions)
        by_commit = judged or isinstance(start, Commit) or isinstance(stop, Commit)
        cuts = self._cuts(row) if by_commit else self._known_cuts(row)
        first = self._offsets(row, wanted, start)
        end = self._offsets(row, wanted, stop)
        if isinstance(start, Commit) and any(first[p] < end[p] for p in wanted):
            # Retention may have removed rows since.
            oldest = find_offsets(self._client, row, wanted, EARLIEST)
            first = {p: max(offset, oldest[p]) for p, offset in first.items()}
        spans = [(partition, first[partition], end[partition]) for partition in wanted]
        again = self._again(row)
        return scan(self._client, row, spans, columns, again, cuts, judged=judged)

    def _cuts(self, row: TopicRow) -> TopicCuts:
        return self._journal.read().topics.get(row.id, TopicCuts())

    def _known_cuts(self, row: TopicRow) -> TopicCuts:
        """The cuts of a topic for a reader who can do without them, as one without the right to."""
        with contextlib.suppress(LogError):
            return self._cuts(row)
        return TopicCuts()

    def _offsets(
        self, row: TopicRow, partitions: Iterable[int], position: Position
    ) -> dict[int, int]:
        wanted = [check_partition(row, partition) for partition in partitions]
        if not isinstance(position, Commit):
            return find_offsets(self._client, row, wanted, position)
        ends = self._cuts(row).at(position.number).ends
        unknown = [p for p in wanted if p >= len(ends)]
        first = find_offsets(self._client, row, unknown, EARLIEST) if unknown else {}
        return first | {p: ends[p] for p in wanted if p < len(ends)}

    def _again(self, row: TopicRow) -> Any:
        ignored: set[str] = set()

        def look(odd: set[str]) -> TopicRow | None:
            if odd <= ignored:
                return None
            ignored.update(odd)
            return self._topics.find(row.name)

        return look

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
        if not topics:
            raise InvalidPosition("A consumer needs a topic", hint="log.consumer('orders')")
        if commit not in ("before", "after", "manual"):
            raise InvalidSetting(f"commit cannot be {commit!r}", hint="Use before, after or manual")
        terms = None
        if group is not None:
            terms = self._terms(group, assignor, instance, session, max_poll_interval)
        rows = [self._topics.find(name) for name in topics]
        consumer = KafkaConsumer(
            self._client, self._topics, rows, terms, start=start, commit=commit
        )
        self._handles.add(consumer)
        return consumer

    def _terms(
        self,
        group: str,
        assignor: str,
        instance: str | None,
        session: timedelta,
        max_poll_interval: timedelta,
    ) -> Terms:
        check_name(group, "group")
        if assignor not in STRATEGIES:
            raise InvalidSetting(
                f"There is no assignor {assignor!r}", hint=f"Use {' or '.join(STRATEGIES)}"
            )
        if session <= timedelta(0):
            raise InvalidSetting(f"A session of {session} is not positive", hint="Use some seconds")
        if session > _LONGEST_SESSION:
            raise InvalidSetting(
                f"A session of {session} is longer than Kafka allows", hint="Use up to 30m"
            )
        known = self._groups.find_settled(group)
        others = [
            member
            for member in (known.members if known else ())
            # A member with this instance name does not count: this one replaces it.
            if instance is None or member.group_instance_id != instance
        ]
        if known is not None and others and known.partition_assignor:
            present = known.partition_assignor.removeprefix("cooperative-")
            if present != assignor:
                raise InvalidSetting(
                    f"The members of group {group!r} use assignor {present!r}, not {assignor!r}",
                    hint=f"Use assignor={present!r}, or stop all of them first",
                )
        return Terms(group, assignor, instance, session, max_poll_interval, alone=not others)

    def offset_at(self, topic: str, partition: int, position: Position) -> int:
        row = self._topics.find(topic)
        return self._offsets(row, [partition], position)[partition]

    def offsets_at(self, topic: str, position: Position) -> tuple[int, ...]:
        row = self._topics.find(topic)
        found = self._offsets(row, range(row.topic.partitions), position)
        return tuple(found[partition] for partition in range(row.topic.partitions))

    # Commits and frontiers

    def cut(self, topics: Iterable[str], *, rows: int | None = None) -> int:
        return self._cutter.cut(topics, rows)

    def cut_on(self, topics: Iterable[str], *, rows: int | None = None) -> bool:
        return self._cutter.cut_on(topics, rows)

    def head(self) -> int:
        return self._journal.read().head

    def rollbacks(self) -> dict[int, int]:
        # A journal that was made again takes back all commits of earlier ones.
        made = self._journal.read().made
        return {} if made is None else {made: 1}

    def sync(self, upto: int) -> None:
        """Do nothing: all replicas have every record that a broker acknowledged."""

    def commit_time(self, commit: int) -> int:
        times = self._journal.read().times
        if not 0 < commit < len(times):
            raise InvalidPosition(
                f"Commit {commit} is not in the log", hint=f"The last one is {len(times) - 1}"
            )
        return times[commit]

    def commits(self, topic: str, after: int, limit: int) -> list[TopicCommit]:
        return self._cuts(self._topics.find(topic)).after(after, limit)

    def advance(self, topic: str, moment: datetime, *, ahead: bool = False) -> int | None:
        row = self._topics.find(topic)
        has_event_time(row.topic)
        point = to_micros(moment)
        if not ahead:
            bound = last_believed(row.topic, self._client.clock.now())
            check_not_ahead(row.topic, point, bound)
        # The rows that are there already must not be late by it.
        self._cutter.cut([topic])
        cuts = self._cuts(row)
        if cuts.last.lowest >= point:
            return None
        self._journal.append(Record(advance={row.id: point}))
        self._journal.read()
        return cuts.last.number

    def frontier(self, topic: str, commit: int | None = None) -> int | None:
        cuts = self._cuts(self._topics.find(topic))
        return (cuts.last if commit is None else cuts.at(commit)).frontier

    # Share groups

    def share_settings(self, group: str) -> dict[str, str]:
        """The configuration that was set for a share group; empty if none was."""
        return shares.configuration(self._client, check_name(group, "group"))

    def set_share_settings(self, group: str, configs: Mapping[str, str]) -> None:
        """Set some of the configuration of a share group, and return when it is in force."""
        shares.configure(self._client, check_name(group, "group"), configs)

    def share_member(self, topic: str, group: str, at_most: int) -> shares.ShareMember:
        """A new member of a share group, which is handed about `at_most` records at once."""
        return shares.ShareMember(self._client, self._topics.find(topic), group, at_most)

    # Groups

    def groups(self) -> list[str]:
        return self._groups.names()

    def group(self, name: str) -> GroupState:
        return self._groups.describe(name)

    def reset_group(self, name: str, topic: str, position: Position) -> dict[int, int]:
        return self._groups.reset(name, topic, position)

    def delete_group(self, name: str) -> None:
        self._groups.delete(name)
