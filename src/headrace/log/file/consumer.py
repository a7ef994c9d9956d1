"""Reading the embedded log from a position that moves, alone or as a member of a group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from types import TracebackType

from headrace.clock import MILLISECOND, Clock, micros
from headrace.errors import (
    CorruptSegment,
    HeadraceError,
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
from headrace.log.file.coordinator import Place, Share
from headrace.log.file.cursor import Cursor
from headrace.log.file.reader import Reader, find_offset
from headrace.log.file.seat import Seat
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
        clock: Clock,
        topics: Sequence[TopicRow],
        seat: Seat | None,
        *,
        start: Position,
        commit: CommitMode,
    ) -> None:
        self._catalog = catalog
        self._reader = reader
        self._clock = clock
        self._topics = {topic.id: topic for topic in topics}
        self._seat = seat
        self._start = start
        self._mode = commit
        self._cursors: dict[Place, Cursor] = {}
        self._handled: dict[Place, int] = {}
        self._origins: dict[Place, int] = {}
        self._committed: dict[Place, int] = {}
        self._paused: set[Place] = set()
        self._stopped: set[Place] = set()
        self._deferred: dict[Place, HeadraceError] = {}
        self._lost: set[Place] = set()
        self._turn = 0
        self._closed = False
        if seat is not None:
            self._follow(seat.sync())
            return
        for topic in topics:
            for partition in range(topic.topic.partitions):
                self._open(topic, partition)

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
        if self._closed:
            raise MisusedHandle("This consumer is closed", hint="Make another: log.consumer()")
        deadline = self._clock.now() + micros(timeout)
        if self._seat is not None:
            self._seat.polled()
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
        return 0 if self._seat is None else self._seat.generation

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
        committed = None if self._seat is None else self._seat.committed(place)
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

    def check_group(self) -> Seat:
        """The consumer's seat, if there is a group whose offsets can be committed."""
        if self._seat is None:
            raise MisusedHandle(
                "A consumer without a group has no offsets to commit",
                hint="Give it a group: log.consumer(topic, group=...)",
            )
        return self._seat

    def offsets_to_commit(self) -> GroupOffsets | None:
        """What has been handled since the last commit, for a transaction to take along.

        If a partition was given away with something of it polled and not committed, there is no
        telling whether the transaction holds results of it, which its next owner will make too.
        """
        if self._lost:
            raise MemberFenced(
                f"{len(self._lost)} partitions were given to other members with records polled "
                "from them that are not committed",
                hint="Call rewind() and go on: what is not committed will be polled again, "
                "by whoever has its partition now",
            )
        return self._moved()

    def offsets_committed(self, offsets: GroupOffsets) -> None:
        """Hear that a transaction with these offsets is in the log."""
        self._committed.update(offsets.offsets)

    def rewind(self) -> None:
        seat = self.check_group()
        self._lost.clear()
        for place, cursor in self._cursors.items():
            # Without a commit yet it is back to where reading began, and not to `start` once
            # more: what is latest now was not so then.
            committed = seat.committed(place)
            if committed is not None:
                self._committed[place] = committed
            offset = self._origins[place] if committed is None else committed
            cursor.seek(offset)
            self._handled[place] = offset

    def _moved(self) -> GroupOffsets | None:
        moved = {p: at for p, at in self._handled.items() if self._committed.get(p) != at}
        return self.check_group().offsets(moved) if moved else None

    def _commit(self, *, synced: bool) -> None:
        if self._seat is None:
            return
        offsets = self._moved()
        if offsets is not None:
            self._seat.commit(offsets, synced=synced)
            self.offsets_committed(offsets)

    def _commit_or_rejoin(self) -> None:
        try:
            self._commit(synced=False)
        except MemberFenced:
            self._rejoin()

    # The group

    def _keep_place(self) -> None:
        if self._seat is None:
            return
        try:
            share = self._seat.keep()
            if share is not None:
                self._follow(share)
        except MemberFenced:
            self._rejoin()

    def _follow(self, share: Share) -> None:
        """Take the partitions that are this member's now, and let go of those that are not."""
        seat = self.check_group()
        leaving = share.leaving & self._cursors.keys()
        if leaving and self._mode == "after":
            self._commit(synced=False)
        for place in set(self._cursors) - share.owned | leaving:
            self._give_up(place)
        if share.leaving:
            seat.release(share.leaving)
        for topic, partition in sorted(share.owned - share.leaving):
            if (topic, partition) not in self._cursors:
                row = self._look_up(topic)
                if row is not None:
                    self._open(row, partition)

    def _give_up(self, place: Place) -> None:
        reached = self._committed.get(place, self._origins[place])
        if self._mode == "manual" and self._handled[place] != reached:
            self._lost.add(place)
        self._drop(place)

    def _look_up(self, topic: int) -> TopicRow | None:
        """A topic as it is now: it may have more partitions than when this consumer began, or
        have been deleted and made again."""
        row = topic_by_id(self._catalog.reader(), topic)
        if row is not None:
            others = {id: old for id, old in self._topics.items() if old.name != row.name}
            self._topics = {**others, topic: row}
        return row

    def _rejoin(self) -> None:
        """What was handed out and not committed will be handed out again, here or elsewhere."""
        seat = self.check_group()
        seat.rejoin()
        for place in list(self._cursors):
            self._give_up(place)
        self._follow(seat.sync())

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
        if self._closed:
            return
        self._closed = True
        try:
            if self._seat is not None:
                self._seat.stop()
                if commit and self._mode == "after":
                    self._commit(synced=False)
                self._seat.leave()
        except MemberFenced:
            return  # the group has gone on: there is nothing left to leave
        finally:
            self._reader.close()
