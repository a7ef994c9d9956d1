"""Reading a log from a position that moves, alone or as a member of a group.

What every log has in common: what was polled, what was handled, and when a group hears of it.
Where partitions come from, and their records, is each log's own.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from datetime import timedelta
from types import TracebackType

from headrace.clock import Clock, micros
from headrace.errors import InvalidSetting, MemberFenced, MisusedHandle
from headrace.forks import in_child
from headrace.log.assignment import Partition
from headrace.log.declared import TopicRow
from headrace.log.group_offsets import GroupOffsets, Place
from headrace.log.position import Position
from headrace.log.positions import Assigned, Positions
from headrace.log.record import Batch, Record
from headrace.log.roles import CommitMode, Consumer


class PlacedConsumer(Consumer):
    """A consumer that keeps its places itself. It belongs to one thread."""

    def __init__(self, positions: Positions, clock: Clock, *, commit: CommitMode) -> None:
        self._places = positions
        self._clock = clock
        self._mode = commit
        self._lost = False
        self._closed = False
        self._inherited = False
        in_child(self, PlacedConsumer._inherit)

    # What each kind of log does in its own way

    @property
    @abstractmethod
    def grouped(self) -> bool:
        """Whether there is a group whose offsets can be committed."""

    @property
    @abstractmethod
    def home(self) -> str:
        """The log that this is a consumer of, as far as it can be told from others."""

    @abstractmethod
    def _look(self, max_records: int, timeout: int) -> None:
        """Follow a rebalance, or without a group the topics' growth, and hear of new records."""

    @abstractmethod
    def _wait(self, span: int) -> None:
        """Return after so many microseconds, or as soon as it is worth looking again."""

    @abstractmethod
    def _offset_of(self, topic: TopicRow, partition: int, position: Position) -> int:
        """The offset at which reading from a position begins."""

    @abstractmethod
    def _committed(self, place: Place) -> int | None:
        """The offset at which the group goes on in a partition."""

    @abstractmethod
    def _offsets(self, moved: dict[Place, int]) -> GroupOffsets:
        """Offsets that this member wants to commit."""

    @abstractmethod
    def _store(self, offsets: GroupOffsets, *, synced: bool) -> None:
        """Move the group's offsets, if this member still owns the partitions."""

    @abstractmethod
    def _rejoin(self) -> None:
        """Go on in the group after it has gone on without this member."""

    @abstractmethod
    def _end(self, *, commit: bool) -> None:
        """Leave the group and let go of everything."""

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
        """Count what was taken as handled."""
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
            # Whoever left the loop early gets the rest, when they read on.
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
                # A commit in the loop's body is meant to cover the record at hand.
                mine.handled = record.offset + 1
            yield record
            if mine.moves != moves:
                return  # somebody has sought elsewhere, so the rest is not what comes next
            if self._mode == "after":
                mine.handled = record.offset + 1
        if error is not None:
            mine.stop_at(error, told=True)
            raise error

    def _commit_before(self, reached: dict[Place, int]) -> None:
        """Commit what is about to be handed out; if that fails, it is not, and comes again."""
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
            raise MisusedHandle("This consumer is closed", hint="Make another: log.consumer()")
        if max_records < 1:
            raise InvalidSetting(f"max_records cannot be {max_records}", hint="Choose 1 or more")
        wait = micros(timeout)
        deadline = self._clock.monotonic() + wait
        if self._mode == "after":
            self._commit_or_rejoin()
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
        """Return if there is a group whose offsets can be committed."""
        self._check_process()
        if not self.grouped:
            raise MisusedHandle(
                "A consumer without a group has no offsets to commit",
                hint="Give it a group: log.consumer(topic, group=...)",
            )

    def check_manual(self) -> None:
        """Return if nobody but a transaction commits this consumer's offsets."""
        if self._mode != "manual":
            raise MisusedHandle(
                f'A consumer with commit="{self._mode}" commits by itself, also what a transaction '
                "that is aborted was to commit",
                hint='Make it with commit="manual" and leave its offsets to the transaction',
            )

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
        self.check_group()
        moved = {
            place: mine.handled
            for place, mine in self._places.assigned.items()
            if mine.committed != mine.handled
        }
        return self._offsets(moved) if moved else None

    def offsets_committed(self, offsets: GroupOffsets) -> None:
        """Hear that these offsets are in the log."""
        for place, offset in offsets.offsets.items():
            if place in self._places.assigned:
                self._places.assigned[place].committed = offset

    def rewind(self) -> None:
        self.check_group()
        self._lost = False
        for place, mine in self._places.assigned.items():
            # Without a commit yet it is back to where reading began, and not to `start` once
            # more: what is latest now was not so then.
            mine.committed = self._committed(place)
            mine.go_to(mine.origin if mine.committed is None else mine.committed)

    def _commit(self, *, synced: bool) -> None:
        offsets = self.offsets_to_commit() if self.grouped else None
        if offsets is not None:
            self._store(offsets, synced=synced)
            self.offsets_committed(offsets)

    def _commit_or_rejoin(self) -> None:
        try:
            self._commit(synced=False)
        except MemberFenced:
            self._rejoin()

    def _give_up(self, place: Place) -> None:
        mine = self._places.assigned.pop(place)
        self._lost |= self._mode == "manual" and mine.uncommitted

    # The end

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # After an error in the block nobody knows that the last records were handled.
        self._close(commit=kind is None)

    def close(self) -> None:
        self._close(commit=True)

    def abandon(self) -> None:
        """Close without committing what was polled last."""
        self._close(commit=False)

    def _close(self, *, commit: bool) -> None:
        if not self._closed and not self._inherited:  # the membership is the parent's
            self._closed = True
            self._end(commit=commit)

    # Forks

    def _check_process(self) -> None:
        """Return if this is the process that the consumer was made in."""
        if self._inherited:
            raise MisusedHandle(
                "This consumer belongs to the process that this one was forked from",
                hint="Make another: log.consumer()",
            )

    def _inherit(self) -> None:
        self._inherited = True
