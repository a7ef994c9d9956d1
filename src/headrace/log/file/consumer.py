"""Reading the embedded log from a position that moves, alone or as a member of a group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from types import TracebackType

from headrace.clock import MILLISECOND, Clock, micros
from headrace.errors import InvalidSetting, MemberFenced, MisusedHandle
from headrace.log.assignment import Partition
from headrace.log.file.catalog import Catalog
from headrace.log.file.coordinator import Place, Share
from headrace.log.file.lookup import find_offset
from headrace.log.file.offsets import GroupOffsets
from headrace.log.file.positions import Assigned, Positions
from headrace.log.file.reader import Reader
from headrace.log.file.seat import Seat
from headrace.log.file.topics import TopicRow
from headrace.log.position import EARLIEST, Position
from headrace.log.record import Batch, Record
from headrace.log.roles import CommitMode, Consumer

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
        self._positions = Positions(catalog, reader, topics)
        self._seat = seat
        self._start = start
        self._mode = commit
        self._lost = False
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
        if self._mode == "before" and batches:
            reached = {p: m.cursor.position for p, m in self._positions.assigned.items()}
            self._commit_before(reached)
        for mine in self._positions.assigned.values():
            mine.handled = mine.cursor.position
        return batches

    def __iter__(self) -> Iterator[Record]:
        try:
            while True:
                batches = self._poll(timedelta(seconds=1), 500)
                mine = [self._positions.find(batch.topic, batch.partition) for batch in batches]
                moves = [one.moves for one in mine]
                for batch, one, move in zip(batches, mine, moves, strict=True):
                    if one.moves == move:
                        yield from self._one_by_one(batch, one)
        finally:
            # Whoever left the loop early gets the rest, when they read on.
            self._positions.put_back()

    def _one_by_one(self, batch: Batch, mine: Assigned) -> Iterator[Record]:
        if self._mode == "before":
            place = (mine.cursor.topic.id, mine.cursor.partition)
            self._commit_before({place: int(batch.offsets[-1]) + 1})
            mine.handled = int(batch.offsets[-1]) + 1
        moves = mine.moves
        for record in batch.records():
            if self._mode == "manual":
                # A commit in the loop's body is meant to cover the record at hand.
                mine.handled = record.offset + 1
            yield record
            if mine.moves != moves:
                return  # somebody has sought elsewhere, so the rest is not what comes next
            if self._mode == "after":
                mine.handled = record.offset + 1

    def _commit_before(self, reached: dict[Place, int]) -> None:
        """Commit what is about to be handed out; if that fails, it is not, and comes again."""
        if self._seat is None:
            return
        offsets = self._seat.offsets(reached)
        try:
            self._seat.commit(offsets, synced=True)
        except BaseException:
            self._positions.put_back()
            raise
        self.offsets_committed(offsets)

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
            self._positions.raise_news()
            batches = self._positions.take(max_records)
            if batches:
                return batches
            self._positions.raise_errors()
            now = self._clock.monotonic()
            if now >= deadline:
                return []
            self._clock.sleep(min(_LOOK_AGAIN, deadline - now))

    # Positions

    @property
    def assignment(self) -> frozenset[Partition]:
        return self._positions.names

    @property
    def generation(self) -> int:
        return 0 if self._seat is None else self._seat.generation

    def position(self, topic: str, partition: int) -> int:
        return self._positions.find(topic, partition).cursor.position

    def seek(
        self, position: Position, topic: str | None = None, partition: int | None = None
    ) -> None:
        db = self._catalog.reader()
        for mine in self._positions.select(topic, partition):
            mine.go_to(find_offset(db, mine.cursor.topic, mine.cursor.partition, position))

    def pause(self, *partitions: Partition) -> None:
        for mine in self._named(partitions):
            mine.paused = True

    def resume(self, *partitions: Partition) -> None:
        for mine in self._named(partitions):
            mine.paused = False

    def _named(self, partitions: Sequence[Partition]) -> list[Assigned]:
        if not partitions:
            return list(self._positions.assigned.values())
        return [self._positions.find(*partition) for partition in partitions]

    def _open(self, topic: TopicRow, partition: int, start: Position) -> None:
        committed = None if self._seat is None else self._seat.committed((topic.id, partition))
        offset = committed
        if offset is None:
            offset = find_offset(self._catalog.reader(), topic, partition, start)
        self._positions.open(topic, partition, offset, committed)

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
            for place, mine in self._positions.assigned.items()
            if mine.committed != mine.handled
        }
        return self.check_group().offsets(moved) if moved else None

    def offsets_committed(self, offsets: GroupOffsets) -> None:
        """Hear that these offsets are in the log."""
        for place, offset in offsets.offsets.items():
            if place in self._positions.assigned:
                self._positions.assigned[place].committed = offset

    def rewind(self) -> None:
        seat = self.check_group()
        self._lost = False
        for place, mine in self._positions.assigned.items():
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
        for topic in self._positions.topics:
            row = self._positions.look_up(topic)
            for partition in range(row.topic.partitions if row is not None else 0):
                if row is not None and (topic, partition) not in self._positions.assigned:
                    self._open(row, partition, EARLIEST)

    def _follow(self, share: Share) -> None:
        """Take the partitions that are this member's now, and let go of those that are not."""
        seat = self.check_group()
        leaving = share.leaving & self._positions.assigned.keys()
        if leaving and self._mode == "after":
            self._commit(synced=False)
        for place in set(self._positions.assigned) - share.owned | leaving:
            self._give_up(place)
        if share.leaving:
            seat.release(share.leaving)
        for topic, partition in sorted(share.owned - share.leaving):
            if (topic, partition) not in self._positions.assigned:
                row = self._positions.look_up(topic)
                if row is not None:
                    self._open(row, partition, self._start)

    def _give_up(self, place: Place) -> None:
        mine = self._positions.assigned.pop(place)
        self._lost |= self._mode == "manual" and mine.uncommitted

    def _rejoin(self) -> None:
        """What was handed out and not committed will be handed out again, here or elsewhere."""
        seat = self.check_group()
        seat.rejoin()
        for place in list(self._positions.assigned):
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

    def abandon(self) -> None:
        """Close without committing what was polled last."""
        self._end(commit=False)

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
