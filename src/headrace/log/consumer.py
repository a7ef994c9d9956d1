"""The consumer, alone or as a member of a group.

This is the part common to all logs: which records were polled, which were handled, and when their
offsets are committed. Each log implements the assignment of partitions and the reading of records.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from datetime import timedelta

from headrace.clock import Clock, micros
from headrace.errors import InvalidSetting, MemberFenced, MisusedHandle
from headrace.forks import in_child
from headrace.log.assignment import Partition
from headrace.log.declared import TopicRow
from headrace.log.position import Position
from headrace.log.positions import Assigned, GroupOffsets, Place, Positions
from headrace.log.record import Batch, Record
from headrace.log.roles import CommitMode, Consumer


class PlacedConsumer(Consumer):
    """A consumer that keeps its own positions. It belongs to one thread."""

    def __init__(self, positions: Positions, clock: Clock, *, commit: CommitMode) -> None:
        self._places = positions
        self._clock = clock
        self._mode = commit
        self._lost = False
        self._closed = False
        self._inherited = False
        in_child(self, PlacedConsumer._inherit)

    # Implemented by each kind of log

    @property
    @abstractmethod
    def grouped(self) -> bool:
        """True if there is a group whose offsets can be committed."""

    @property
    @abstractmethod
    def home(self) -> str:
        """An identifier of the log, equal to that of its producers."""

    @abstractmethod
    def _look(self, max_records: int, timeout: int) -> None:
        """Follow a rebalance, or without a group new partitions, and look for new records."""

    @abstractmethod
    def _wait(self, span: int) -> None:
        """Return after `span` microseconds, or as soon as there may be new records."""

    @abstractmethod
    def _offset_of(self, topic: TopicRow, partition: int, position: Position) -> int:
        """The offset where reading from a position starts."""

    @abstractmethod
    def _committed(self, place: Place) -> int | None:
        """The group's committed offset in a partition."""

    @abstractmethod
    def _offsets(self, moved: dict[Place, int]) -> GroupOffsets:
        """Offsets that this member wants to commit."""

    @abstractmethod
    def _store(self, offsets: GroupOffsets, *, synced: bool) -> None:
        """Commit the group's offsets, if this member still owns the partitions."""

    @abstractmethod
    def _rejoin(self) -> None:
        """Join the group again after it has removed this member."""

    @abstractmethod
    def _end(self, *, commit: bool) -> None:
        """Leave the group and release everything."""

    # Reading

    def poll(self, timeout: timedelta = timedelta(0), max_records: int = 500) -> list[Record]:
        batches = self._poll(timeout, max_records)
        records = self._places.records(batches)
        self._hand_out(bool(records))
        if batches and not records:
            self._places.raise_news()
        return records

    def poll_batches(
        self, timeout: timedelta = timedelta(0), max_records: int = 100_000
    ) -> list[Batch]:
        self._places.read_values_again()
        batches = self._poll(timeout, max_records)
        self._hand_out(bool(batches))
        return batches

    def _hand_out(self, any: bool) -> None:
        """Mark all polled records as handled."""
        if self._mode == "before" and any:
            self._commit_before({p: m.cursor.position for p, m in self._places.assigned.items()})
        for mine in self._places.assigned.values():
            mine.handled = mine.cursor.position

    def __iter__(self) -> Iterator[Record]:
        try:
            while True:
                batches = self._poll(timedelta(seconds=1), 500)
                mine = [self._places.find(batch.topic, batch.partition) for batch in batches]
                moves = [one.moves for one in mine]
                for batch, one, move in zip(batches, mine, moves, strict=True):
                    if one.moves == move:
                        yield from self._one_by_one(batch, one)
        finally:
            # A caller that left the loop early gets the rest at the next read.
            self._places.put_back()

    def _one_by_one(self, batch: Batch, mine: Assigned) -> Iterator[Record]:
        records, error = batch.readable()
        if self._mode == "before" and records:
            place = (mine.cursor.topic.id, mine.cursor.partition)
            self._commit_before({place: records[-1].offset + 1})
            mine.handled = records[-1].offset + 1
        moves = mine.moves
        for record in records:
            if self._mode == "manual":
                # A commit in the loop's body includes the current record.
                mine.handled = record.offset + 1
            yield record
            if mine.moves != moves:
                return  # the caller has called seek, so the rest does not come next
            if self._mode == "after":
                mine.handled = record.offset + 1
        if error is not None:
            mine.stop_at(error, raised=True)
            raise error

    def _commit_before(self, reached: dict[Place, int]) -> None:
        """Commit records before handing them out; if that fails, they come again."""
        if not self.grouped:
            return
        offsets = self._offsets(reached)
        try:
            self._store(offsets, synced=True)
        except BaseException:
            self._places.put_back()
            raise
        self.offsets_committed(offsets)

    def _poll(self, timeout: timedelta, max_records: int) -> list[Batch]:
        self._check_process()
        if self._closed:
            raise MisusedHandle("This consumer is closed", hint="Create another: log.consumer()")
        if max_records < 1:
            raise InvalidSetting(f"max_records cannot be {max_records}", hint="Choose 1 or more")
        wait = micros(timeout)
        deadline = self._clock.monotonic() + wait
        if self._mode == "after":
            try:
                self._commit(synced=False)
            except MemberFenced:
                self._rejoin()
        while True:
            self._look(max_records, wait)
            self._places.raise_news()
            batches = self._places.take(max_records)
            if batches:
                return batches
            self._places.raise_errors()
            now = self._clock.monotonic()
            if now >= deadline:
                return []
            self._wait(deadline - now)

    # Positions

    @property
    def assignment(self) -> frozenset[Partition]:
        return self._places.names

    def position(self, topic: str, partition: int) -> int:
        return self._places.find(topic, partition).cursor.position

    def seek(
        self, position: Position, topic: str | None = None, partition: int | None = None
    ) -> None:
        for mine in self._places.select(topic, partition):
            cursor = mine.cursor
            mine.go_to(self._offset_of(cursor.topic, cursor.partition, position))

    def pause(self, *partitions: Partition) -> None:
        for mine in self._named(partitions):
            mine.paused = True

    def resume(self, *partitions: Partition) -> None:
        for mine in self._named(partitions):
            mine.paused = False

    def _named(self, partitions: Sequence[Partition]) -> list[Assigned]:
        if not partitions:
            return list(self._places.assigned.values())
        return [self._places.find(*partition) for partition in partitions]

    # Committing

    def commit(self) -> None:
        self.check_group()
        self._commit(synced=True)

    def check_group(self) -> None:
        """Check that there is a group whose offsets can be committed."""
        self._check_process()
        if not self.grouped:
            raise MisusedHandle(
                "A consumer without a group has no offsets to commit",
                hint="Give it a group: log.consumer(topic, group=...)",
            )

    def check_manual(self) -> None:
        """Check that only a transaction commits this consumer's offsets."""
        if self._mode != "manual":
            raise MisusedHandle(
                f'A consumer with commit="{self._mode}" commits its offsets itself, even if the '
                "transaction aborts",
                hint='Create it with commit="manual" and leave its offsets to the transaction',
            )

    def check_nothing_lost(self) -> None:
        """Check that no partition was given away with polled, uncommitted records.

        A transaction might hold results of these records, which the next owner will process again.
        """
        if self._lost:
            raise MemberFenced(
                "A partition was given to another member while records polled from it were not "
                "committed",
                hint="Call rewind() and continue: the new owner of the partition will poll "
                "these records again",
            )

    def offsets_to_commit(self) -> GroupOffsets | None:
        """The offsets handled since the last commit."""
        self.check_group()
        moved = {
            place: mine.handled
            for place, mine in self._places.assigned.items()
            if mine.committed != mine.handled
        }
        return self._offsets(moved) if moved else None

    def offsets_committed(self, offsets: GroupOffsets) -> None:
        """Note that these offsets are committed."""
        for place, offset in offsets.offsets.items():
            if place in self._places.assigned:
                self._places.assigned[place].committed = offset

    def rewind(self) -> None:
        self.check_group()
        self._lost = False
        for place, mine in self._places.assigned.items():
            # Without a commit yet, go back to where reading began. `start` would not do: the
            # latest offset now is not the one from then.
            mine.committed = self._committed(place)
            mine.go_to(mine.origin if mine.committed is None else mine.committed)

    def _commit(self, *, synced: bool) -> None:
        offsets = self.offsets_to_commit() if self.grouped else None
        if offsets is not None:
            self._store(offsets, synced=synced)
            self.offsets_committed(offsets)

    def _give_up(self, place: Place) -> None:
        mine = self._places.assigned.pop(place)
        self._lost |= self._mode == "manual" and mine.uncommitted

    # The end

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # After an error in the block, the last records may not have been handled.
        self._close(commit=kind is None)

    def close(self) -> None:
        self._close(commit=True)

    def abandon(self) -> None:
        """Close without committing the records polled last."""
        self._close(commit=False)

    def _close(self, *, commit: bool) -> None:
        if not self._closed and not self._inherited:  # the membership is the parent's
            self._closed = True
            self._end(commit=commit)

    # Forks

    def _check_process(self) -> None:
        """Check that this process created the consumer."""
        if self._inherited:
            raise MisusedHandle(
                "This consumer belongs to the process that this one was forked from",
                hint="Create another: log.consumer()",
            )

    def _inherit(self) -> None:
        self._inherited = True
