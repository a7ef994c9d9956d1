"""Reading the embedded log from a position that moves, alone or as a member of a group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
from headrace.log.file.catalog import Catalog
from headrace.log.file.coordinator import Place, Share
from headrace.log.file.cursor import Cursor
from headrace.log.file.offsets import GroupOffsets
from headrace.log.file.reader import Reader, find_offset
from headrace.log.file.seat import Seat
from headrace.log.file.topics import TopicRow, topic_by_id
from headrace.log.interface import CommitMode, Consumer
from headrace.log.position import EARLIEST, Position
from headrace.log.record import Batch, Record

_LOOK_AGAIN = 2 * MILLISECOND


@dataclass
class _Assigned:
    """A partition that this consumer reads, and how far it is with it."""

    cursor: Cursor
    origin: int
    """Where reading began."""
    handled: int
    """Where the group goes on once this is committed."""
    committed: int | None
    paused: bool = False
    error: HeadraceError | None = None
    """Why nothing more can be read here, until somebody seeks."""

    @property
    def uncommitted(self) -> bool:
        return self.handled != (self.origin if self.committed is None else self.committed)

    def go_to(self, offset: int) -> None:
        self.cursor.seek(offset)
        self.handled = offset
        self.error = None


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
        self._assigned: dict[Place, _Assigned] = {}
        self._lost = False
        self._turn = 0
        self._told = -1
        self._seen_changes = catalog.changes()
        self._closed = False
        if seat is not None:
            self._follow(seat.sync())
            return
        for topic in topics:
            for partition in range(topic.topic.partitions):
                self._open(topic, partition, start)

    # Reading

    def poll(self, timeout: timedelta = timedelta(0), max_records: int = 500) -> list[Record]:
        batches = self.poll_batches(timeout, max_records)
        return [record for batch in batches for record in batch.records()]

    def poll_batches(
        self, timeout: timedelta = timedelta(0), max_records: int = 100_000
    ) -> list[Batch]:
        batches = self._poll(timeout, max_records)
        for mine in self._assigned.values():
            mine.handled = mine.cursor.position
        if self._mode == "before" and batches:
            self._commit(synced=True)
        return batches

    def __iter__(self) -> Iterator[Record]:
        try:
            while True:
                for batch in self._poll(timedelta(seconds=1), 500):
                    yield from self._one_by_one(batch)
        finally:
            # Whoever left the loop early gets the rest, when they read on.
            self._put_back()

    def _one_by_one(self, batch: Batch) -> Iterator[Record]:
        mine = self._assigned[self._place(batch.topic, batch.partition)]
        if self._mode == "before":
            mine.handled = int(batch.offsets[-1]) + 1
            self._commit(synced=True)
        for record in batch.records():
            if self._mode == "manual":
                # A commit in the loop's body is meant to cover the record at hand.
                mine.handled = record.offset + 1
            yield record
            if self._mode == "after":
                mine.handled = record.offset + 1

    def _poll(self, timeout: timedelta, max_records: int) -> list[Batch]:
        if self._closed:
            raise MisusedHandle("This consumer is closed", hint="Make another: log.consumer()")
        if max_records < 1:
            raise InvalidSetting(f"max_records cannot be {max_records}", hint="Choose 1 or more")
        deadline = self._clock.monotonic() + micros(timeout)
        if self._seat is not None:
            self._seat.polled()
        if self._mode == "after":
            self._commit_or_rejoin()
        while True:
            self._keep_place()
            batches = self._take(max_records)
            now = self._clock.monotonic()
            if batches:
                return batches
            if now >= deadline:
                self._raise_errors()
                return []
            self._clock.sleep(min(_LOOK_AGAIN, deadline - now))

    def _take(self, max_records: int) -> list[Batch]:
        """Batches from the partitions in turn, so that a busy one does not starve the others."""
        places = [p for p, mine in self._assigned.items() if not mine.paused and not mine.error]
        changes = self._catalog.changes()
        batches: list[Batch] = []
        left = max_records
        try:
            for index in range(len(places)):
                mine = self._assigned[places[(self._turn + index) % len(places)]]
                while left and (batch := self._read(mine, left, changes)) is not None:
                    batches.append(batch)
                    left -= len(batch)
        except BaseException:
            self._put_back()  # nobody gets to see these, so they come again
            raise
        self._turn += 1
        if not batches:
            self._raise_errors()
        return batches

    def _read(self, mine: _Assigned, rows: int, changes: int) -> Batch | None:
        try:
            return mine.cursor.take(rows, changes)
        except LogError as error:
            # This partition stops here; the others go on.
            mine.error = error
        except (OffsetOutOfRange, UnknownTopic) as error:
            mine.error = error
        return None

    def _raise_errors(self) -> None:
        """Tell what is wrong, again and again, for as long as there is nothing else to tell."""
        wrong = [m for m in self._assigned.values() if m.error is not None and not m.paused]
        if not wrong:
            return
        self._told += 1
        mine = wrong[self._told % len(wrong)]
        error = mine.error
        if not isinstance(error, CorruptSegment | OffsetOutOfRange | UnknownTopic):
            mine.error = None  # it may be better next time
        assert error is not None
        raise error

    def _put_back(self) -> None:
        for mine in self._assigned.values():
            if mine.cursor.position != mine.handled:
                mine.cursor.seek(mine.handled)

    # Positions

    @property
    def assignment(self) -> frozenset[Partition]:
        return frozenset((self._topics[t].name, partition) for t, partition in self._assigned)

    @property
    def generation(self) -> int:
        return 0 if self._seat is None else self._seat.generation

    def position(self, topic: str, partition: int) -> int:
        return self._assigned[self._place(topic, partition)].cursor.position

    def seek(
        self, position: Position, topic: str | None = None, partition: int | None = None
    ) -> None:
        for mine in self._select(topic, partition):
            cursor = mine.cursor
            mine.go_to(
                find_offset(self._catalog.reader(), cursor.topic, cursor.partition, position)
            )

    def pause(self, *partitions: Partition) -> None:
        for mine in self._named(partitions):
            mine.paused = True

    def resume(self, *partitions: Partition) -> None:
        for mine in self._named(partitions):
            mine.paused = False

    def _open(self, topic: TopicRow, partition: int, start: Position) -> None:
        place = (topic.id, partition)
        committed = None if self._seat is None else self._seat.committed(place)
        offset = committed
        if offset is None:
            offset = find_offset(self._catalog.reader(), topic, partition, start)
        cursor = Cursor(self._catalog, self._reader, topic, partition, offset)
        self._assigned[place] = _Assigned(cursor, offset, offset, committed)

    def _place(self, topic: str, partition: int) -> Place:
        for id, row in self._topics.items():
            if row.name == topic and (id, partition) in self._assigned:
                return (id, partition)
        raise UnknownPartition(
            f"This consumer does not read partition {partition} of {topic!r}",
            hint=f"It reads: {', '.join(f'{t}/{p}' for t, p in sorted(self.assignment)) or 'none'}",
        )

    def _select(self, topic: str | None, partition: int | None) -> list[_Assigned]:
        if topic is not None and partition is not None:
            return [self._assigned[self._place(topic, partition)]]
        return [
            mine
            for place, mine in self._assigned.items()
            if (topic is None or self._topics[place[0]].name == topic)
            and (partition is None or place[1] == partition)
        ]

    def _named(self, partitions: Sequence[Partition]) -> list[_Assigned]:
        if not partitions:
            return list(self._assigned.values())
        return [self._assigned[self._place(*partition)] for partition in partitions]

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

    def check_nothing_lost(self) -> None:
        """Return if no partition was given away with something of it polled and not committed.

        There would be no telling whether a transaction holds results of it, which its next owner
        will make too.
        """
        if self._lost:
            raise MemberFenced(
                "A partition was given to another member with records polled from it that are "
                "not committed",
                hint="Call rewind() and go on: what is not committed will be polled again, "
                "by whoever has its partition now",
            )

    def offsets_to_commit(self) -> GroupOffsets | None:
        """What has been handled since the last commit."""
        moved = {
            place: mine.handled
            for place, mine in self._assigned.items()
            if mine.committed != mine.handled
        }
        return self.check_group().offsets(moved) if moved else None

    def offsets_committed(self, offsets: GroupOffsets) -> None:
        """Hear that these offsets are in the log."""
        for place, offset in offsets.offsets.items():
            if place in self._assigned:
                self._assigned[place].committed = offset

    def rewind(self) -> None:
        seat = self.check_group()
        self._lost = False
        for place, mine in self._assigned.items():
            # Without a commit yet it is back to where reading began, and not to `start` once
            # more: what is latest now was not so then.
            mine.committed = seat.committed(place)
            mine.go_to(mine.origin if mine.committed is None else mine.committed)

    def _commit(self, *, synced: bool) -> None:
        offsets = None if self._seat is None else self.offsets_to_commit()
        if self._seat is not None and offsets is not None:
            self._seat.commit(offsets, synced=synced)
            self.offsets_committed(offsets)

    def _commit_or_rejoin(self) -> None:
        try:
            self._commit(synced=False)
        except MemberFenced:
            self._rejoin()

    # The group

    def _keep_place(self) -> None:
        """Follow a rebalance, or without a group the topics' growth."""
        try:
            if self._seat is None:
                self._find_new_partitions()
            elif (share := self._seat.keep()) is not None:
                self._follow(share)
        except MemberFenced:
            self._rejoin()

    def _find_new_partitions(self) -> None:
        changes = self._catalog.changes()
        if changes == self._seen_changes:
            return
        self._seen_changes = changes
        for topic in list(self._topics):
            row = self._look_up(topic)
            for partition in range(row.topic.partitions if row is not None else 0):
                if row is not None and (topic, partition) not in self._assigned:
                    self._open(row, partition, EARLIEST)

    def _follow(self, share: Share) -> None:
        """Take the partitions that are this member's now, and let go of those that are not."""
        seat = self.check_group()
        leaving = share.leaving & self._assigned.keys()
        if leaving and self._mode == "after":
            self._commit(synced=False)
        for place in set(self._assigned) - share.owned | leaving:
            self._give_up(place)
        if share.leaving:
            seat.release(share.leaving)
        for topic, partition in sorted(share.owned - share.leaving):
            if (topic, partition) not in self._assigned:
                row = self._look_up(topic)
                if row is not None:
                    self._open(row, partition, self._start)

    def _give_up(self, place: Place) -> None:
        mine = self._assigned.pop(place)
        self._lost |= self._mode == "manual" and mine.uncommitted

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
        for place in list(self._assigned):
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
