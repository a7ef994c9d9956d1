"""Consumers of the embedded log, alone or in a group."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.clock import MILLISECOND, Clock
from headrace.errors import MemberFenced
from headrace.log.consumer import PlacedConsumer
from headrace.log.declared import TopicRow
from headrace.log.file.catalog import Catalog
from headrace.log.file.coordinator import Share
from headrace.log.file.lookup import find_offset
from headrace.log.file.membership import Membership
from headrace.log.file.positions import FilePositions
from headrace.log.file.reader import Reader
from headrace.log.group_offsets import GroupOffsets, Place
from headrace.log.position import EARLIEST, Position
from headrace.log.roles import CommitMode

_LOOK_AGAIN = 2 * MILLISECOND


class FileConsumer(PlacedConsumer):
    """A consumer of the embedded log. It belongs to one thread."""

    def __init__(
        self,
        catalog: Catalog,
        reader: Reader,
        clock: Clock,
        topics: Sequence[TopicRow],
        membership: Membership | None,
        *,
        start: Position,
        commit: CommitMode,
    ) -> None:
        self._positions = FilePositions(catalog, reader, topics)
        super().__init__(self._positions, clock, commit=commit)
        self._catalog = catalog
        self._reader = reader
        self._membership = membership
        self._start = start
        self._seen_changes = catalog.changes()
        if membership is not None:
            self._follow(membership, membership.sync())
            return
        for topic in topics:
            for partition in range(topic.topic.partitions):
                self._open(topic, partition, start)

    @property
    def home(self) -> str:
        return str(self._catalog.folder.resolve())

    @property
    def grouped(self) -> bool:
        return self._membership is not None

    @property
    def generation(self) -> int:
        return 0 if self._membership is None else self._membership.generation

    # Reading

    def _look(self, max_records: int, timeout: int) -> None:
        try:
            if self._membership is None:
                self._find_new_partitions()
                return
            self._membership.polled()
            if (share := self._membership.keep()) is not None:
                self._follow(self._membership, share)
        except MemberFenced:
            self._rejoin()

    def _wait(self, span: int) -> None:
        self._clock.sleep(min(_LOOK_AGAIN, span))

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

    def _open(self, topic: TopicRow, partition: int, start: Position) -> None:
        committed = self._committed((topic.id, partition))
        offset = committed
        if offset is None:
            offset = self._offset_of(topic, partition, start)
        self._positions.open(topic, partition, offset, committed)

    def _offset_of(self, topic: TopicRow, partition: int, position: Position) -> int:
        with self._catalog.reading() as db:
            return find_offset(db, topic, partition, position)

    # The group

    def _committed(self, place: Place) -> int | None:
        return None if self._membership is None else self._membership.committed(place)

    def _offsets(self, moved: dict[Place, int]) -> GroupOffsets:
        assert self._membership is not None
        return self._membership.offsets(moved)

    def _store(self, offsets: GroupOffsets, *, synced: bool) -> None:
        assert self._membership is not None
        self._membership.commit(offsets, synced=synced)

    def _follow(self, membership: Membership, share: Share) -> None:
        """Open the partitions this member owns now, and release those it must give up."""
        leaving = share.leaving & self._positions.assigned.keys()
        if leaving and self._mode == "after":
            self._commit(synced=False)
        for place in set(self._positions.assigned) - share.owned | leaving:
            self._give_up(place)
        if share.leaving:
            membership.release(share.leaving)
        for topic, partition in sorted(share.owned - share.leaving):
            if (topic, partition) not in self._positions.assigned:
                row = self._positions.look_up(topic)
                if row is not None:
                    self._open(row, partition, self._start)

    def _rejoin(self) -> None:
        """Rejoin the group. Uncommitted records will be polled again, here or elsewhere."""
        assert self._membership is not None
        self._membership.rejoin()
        for place in list(self._positions.assigned):
            self._give_up(place)
        self._follow(self._membership, self._membership.sync())

    def _end(self, *, commit: bool) -> None:
        try:
            if self._membership is not None:
                self._membership.stop()
                if commit and self._mode == "after":
                    self._commit(synced=False)
                self._membership.leave()
        except MemberFenced:
            return  # the group has already removed this member
        finally:
            self._reader.close()
