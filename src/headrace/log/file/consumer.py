"""Reading the embedded log from a position that moves, alone or as a member of a group."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from datetime import timedelta
from types import TracebackType

from headrace.clock import MILLISECOND, Clock, micros
from headrace.errors import (
    CorruptSegment,
    HeadraceError,
    InvalidSetting,
    LogError,
    MemberFenced,
    MisusedHandle,
    OffsetOutOfRange,
    UnknownPartition,
    UnknownTopic,
)
from headrace.log.assignment import Partition
from headrace.log.file.appender import GroupOffsets
from headrace.log.file.catalog import Catalog
from headrace.log.file.cursor import Cursor
from headrace.log.file.groups import Coordinator, Membership, Place
from headrace.log.file.reader import Reader, find_offset
from headrace.log.file.topics import TopicRow, topic_by_id
from headrace.log.interface import CommitMode, Consumer
from headrace.log.position import Position
from headrace.log.record import Batch, Record

_LOOK_AGAIN = 2 * MILLISECOND


class FileConsumer(Consumer):
    """A consumer of the embedded log. It belongs to one thread."""

    def __init__(
        self,
        catalog: Catalog,
        reader: Reader,
        coordinator: Coordinator,
        clock: Clock,
        topics: Sequence[TopicRow],
        *,
        group: str | None,
        start: Position,
        commit: CommitMode,
        assignor: str,
        instance: str | None,
        session: timedelta,
        max_poll_interval: timedelta,
        heartbeats: bool,
    ) -> None:
        if commit not in ("before", "after", "manual"):
            raise InvalidSetting(f"commit cannot be {commit!r}", hint="Use before, after or manual")
        self._catalog = catalog
        self._reader = reader
        self._coordinator = coordinator
        self._clock = clock
        self._topics = {topic.id: topic for topic in topics}
        self._group_name = group
        self._start = start
        self._mode = commit
        self._assignor = assignor
        self._instance = instance
        self._session = micros(session)
        self._max_poll_interval = micros(max_poll_interval)
        self._cursors: dict[Place, Cursor] = {}
        self._handled: dict[Place, int] = {}
        self._origins: dict[Place, int] = {}
        self._committed: dict[Place, int] = {}
        self._paused: set[Place] = set()
        self._stopped: set[Place] = set()
        self._deferred: dict[Place, HeadraceError] = {}
        self._turn = 0
        self._generation = 0
        self._membership: Membership | None = None
        self._synced_at = 0
        self._polled_at = clock.now()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        if group is None:
            for topic in topics:
                for partition in range(topic.topic.partitions):
                    self._open(topic, partition)
        else:
            self._join()
            self._sync()
            if heartbeats:
                self._thread = threading.Thread(
                    target=self._beat, name="headrace-heartbeat", daemon=True
                )
                self._thread.start()

    # Reading

    def poll(self, timeout: timedelta = timedelta(0), max_records: int = 500) -> list[Record]:
        batches = self.poll_batches(timeout, max_records)
        return [record for batch in batches for record in batch.records()]

    def poll_batches(
        self, timeout: timedelta = timedelta(0), max_records: int = 100_000
    ) -> list[Batch]:
        batches = self._poll(timeout, max_records)
        self._mark_all()
        if self._mode == "before" and batches:
            self._commit(synced=True)
        return batches

    def __iter__(self) -> Iterator[Record]:
        try:
            while True:
                for batch in self._poll(timedelta(seconds=1), 500):
                    place = self._place(batch.topic, batch.partition)
                    if self._mode == "before":
                        self._handled[place] = int(batch.offsets[-1]) + 1
                        self._commit(synced=True)
                    for record in batch.records():
                        yield record
                        if self._mode != "before" and place in self._cursors:
                            self._handled[place] = record.offset + 1
                self._mark_all()
        finally:
            # Whoever left the loop early gets the rest, when they read on.
            for place, cursor in self._cursors.items():
                if cursor.position != self._handled[place]:
                    cursor.seek(self._handled[place])

    def _poll(self, timeout: timedelta, max_records: int) -> list[Batch]:
        if self._closed.is_set():
            raise MisusedHandle("This consumer is closed", hint="Make another: log.consumer()")
        self._polled_at = self._clock.now()
        deadline = self._polled_at + micros(timeout)
        if self._mode == "after":
            self._commit_or_rejoin()
        while True:
            self._keep_place()
            batches = self._take(max_records)
            now = self._clock.now()
            if batches or now >= deadline:
                return batches
            self._clock.sleep(min(_LOOK_AGAIN, deadline - now))

    def _take(self, max_records: int) -> list[Batch]:
        """Batches from the partitions in turn, so that a busy one does not starve the others."""
        self._raise_deferred()
        places = [p for p in self._cursors if p not in self._paused and p not in self._stopped]
        changes = self._catalog.changes()
        batches: list[Batch] = []
        left = max_records
        for index in range(len(places)):
            if not left:
                break
            place = places[(self._turn + index) % len(places)]
            try:
                while left and (batch := self._cursors[place].take(left, changes)) is not None:
                    batches.append(batch)
                    left -= len(batch)
            except (CorruptSegment, OffsetOutOfRange, UnknownTopic) as error:
                # This partition stops here until somebody seeks; the others go on.
                self._stopped.add(place)
                self._deferred[place] = error
            except LogError as error:
                self._deferred[place] = error  # it may be better next time
        self._turn += 1
        if not batches:
            self._raise_deferred()
        return batches

    def _raise_deferred(self) -> None:
        for place in self._deferred:
            raise self._deferred.pop(place)

    def _mark_all(self) -> None:
        for place, cursor in self._cursors.items():
            self._handled[place] = cursor.position

    # Positions

    @property
    def assignment(self) -> frozenset[Partition]:
        return frozenset((self._topics[t].name, partition) for t, partition in self._cursors)

    @property
    def generation(self) -> int:
        return self._generation

    def position(self, topic: str, partition: int) -> int:
        return self._cursors[self._place(topic, partition)].position

    def seek(
        self, position: Position, topic: str | None = None, partition: int | None = None
    ) -> None:
        for place in self._select(topic, partition):
            cursor = self._cursors[place]
            offset = find_offset(self._catalog.reader(), cursor.topic, cursor.partition, position)
            cursor.seek(offset)
            self._handled[place] = offset
            self._stopped.discard(place)
            self._deferred.pop(place, None)

    def pause(self, *partitions: Partition) -> None:
        self._paused.update(self._places(partitions))

    def resume(self, *partitions: Partition) -> None:
        self._paused.difference_update(self._places(partitions))

    def _open(self, topic: TopicRow, partition: int) -> None:
        place = (topic.id, partition)
        committed = None
        if self._membership is not None:
            committed = self._coordinator.committed(self._membership.group, *place)
        offset = committed
        if offset is None:
            offset = find_offset(self._catalog.reader(), topic, partition, self._start)
        self._origins[place] = offset
        self._cursors[place] = Cursor(self._reader, topic, partition, offset)
        self._handled[place] = offset
        if committed is not None:
            self._committed[place] = committed

    def _drop(self, place: Place) -> None:
        for kept in (self._cursors, self._handled, self._committed, self._origins, self._deferred):
            kept.pop(place, None)
        self._paused.discard(place)
        self._stopped.discard(place)

    def _place(self, topic: str, partition: int) -> Place:
        for id, row in self._topics.items():
            if row.name == topic and (id, partition) in self._cursors:
                return (id, partition)
        raise UnknownPartition(
            f"This consumer does not read partition {partition} of {topic!r}",
            hint=f"It reads: {', '.join(f'{t}/{p}' for t, p in sorted(self.assignment)) or 'none'}",
        )

    def _select(self, topic: str | None, partition: int | None) -> list[Place]:
        if topic is not None and partition is not None:
            return [self._place(topic, partition)]
        return [
            place
            for place in self._cursors
            if (topic is None or self._topics[place[0]].name == topic)
            and (partition is None or place[1] == partition)
        ]

    def _places(self, partitions: Sequence[Partition]) -> list[Place]:
        return [self._place(*p) for p in partitions] if partitions else list(self._cursors)

    # Committing

    def commit(self) -> None:
        self.check_group()
        self._commit(synced=True)

    def check_group(self) -> None:
        """Return if there is a group whose offsets can be committed."""
        if self._group_name is None:
            raise MisusedHandle(
                "A consumer without a group has no offsets to commit",
                hint="Give it a group: log.consumer(topic, group=...)",
            )

    def offsets_to_commit(self) -> GroupOffsets | None:
        """What has been handled since the last commit, for a transaction to take along."""
        assert self._membership is not None
        moved = {
            place: offset
            for place, offset in self._handled.items()
            if self._committed.get(place) != offset
        }
        if not moved:
            return None
        return GroupOffsets(self._membership.group, self._membership.member, moved)

    def offsets_committed(self, offsets: GroupOffsets) -> None:
        """Hear that a transaction with these offsets is in the log."""
        self._committed.update(offsets.offsets)

    def rewind(self) -> None:
        self.check_group()
        assert self._membership is not None
        for place, cursor in self._cursors.items():
            # Without a commit yet it is back to where reading began, and not to `start` once
            # more: what is latest now was not so then.
            committed = self._coordinator.committed(self._membership.group, *place)
            if committed is not None:
                self._committed[place] = committed
            offset = self._origins[place] if committed is None else committed
            cursor.seek(offset)
            self._handled[place] = offset

    def _commit(self, *, synced: bool) -> None:
        if self._membership is None:
            return
        offsets = self.offsets_to_commit()
        if offsets is not None:
            self._coordinator.commit(offsets, synced=synced)
            self.offsets_committed(offsets)

    def _commit_or_rejoin(self) -> None:
        try:
            self._commit(synced=False)
        except MemberFenced:
            self._rejoin()

    # The group

    def _join(self) -> None:
        assert self._group_name is not None
        self._membership = self._coordinator.join(
            self._group_name,
            list(self._topics.values()),
            self._assignor,
            self._instance,
            self._session,
        )

    def _keep_place(self) -> None:
        """Beat, and follow a rebalance. Most of the time this only reads."""
        if self._membership is None:
            return
        due = self._clock.now() - self._synced_at >= self._session // 3
        if due or self._coordinator.has_news(self._membership, self._generation):
            try:
                self._sync()
            except MemberFenced:
                self._rejoin()

    def _sync(self) -> None:
        assert self._membership is not None
        share = self._coordinator.sync(self._membership)
        self._synced_at = self._clock.now()
        self._generation = share.generation
        leaving = share.leaving & self._cursors.keys()
        if leaving and self._mode == "after":
            self._commit(synced=False)
        for place in set(self._cursors) - share.owned | leaving:
            self._drop(place)
        if share.leaving:
            self._coordinator.release(self._membership, share.leaving)
        for topic, partition in sorted(share.owned - share.leaving):
            if (topic, partition) not in self._cursors:
                row = self._look_up(topic)
                if row is not None:
                    self._open(row, partition)

    def _look_up(self, topic: int) -> TopicRow | None:
        """A topic as it is now: it may have more partitions than when this consumer began, or
        have been deleted and made again."""
        row = topic_by_id(self._catalog.reader(), topic)
        if row is not None:
            others = {id: old for id, old in self._topics.items() if old.name != row.name}
            self._topics = {**others, topic: row}
        return row

    def _rejoin(self) -> None:
        """Come back as a new member after the group has gone on without this one.

        What was handed out and not committed will be handed out again, here or elsewhere. A
        static member does not come back if its name is in use by its successor.
        """
        assert self._membership is not None
        if self._instance is not None and self._coordinator.has_instance(
            self._membership.group, self._instance
        ):
            raise MemberFenced(
                f"Another consumer has taken the instance name {self._instance!r}",
                hint="Each running consumer needs an instance name of its own",
            )
        for place in list(self._cursors):
            self._drop(place)
        self._join()
        self._sync()

    def _beat(self) -> None:
        """Stay in the group while the caller works on what it polled, within limits."""
        while not self._closed.wait(self._session / 3 / 1_000_000):
            if self._clock.now() - self._polled_at > self._max_poll_interval:
                continue
            try:
                if self._membership is not None:
                    self._coordinator.heartbeat(self._membership)
            except LogError:
                continue  # the next poll will meet the same trouble, and tell

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # After an error in the block nobody knows that the last records were handled.
        self._end(commit=kind is None)

    def close(self) -> None:
        self._end(commit=True)

    def _end(self, *, commit: bool) -> None:
        if self._closed.is_set():
            return
        self._closed.set()
        if self._thread is not None:
            self._thread.join()
        try:
            if self._membership is not None:
                if commit and self._mode == "after":
                    try:
                        self._commit(synced=False)
                    except MemberFenced:
                        return
                self._coordinator.leave(self._membership, static=self._instance is not None)
        finally:
            self._reader.close()
