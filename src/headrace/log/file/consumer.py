"""Consumers of the embedded log, alone or in a group."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence

from headrace.clock import MILLISECOND, Clock
from headrace.errors import MemberFenced
from headrace.log.consumer import PlacedConsumer
from headrace.log.declared import TopicRow
from headrace.log.file.catalog import Catalog
from headrace.log.file.coordinator import Share
from headrace.log.file.lookup import find_offset
from headrace.log.file.membership import Membership
from headrace.log.file.offsets import committed_offset, store_offsets
from headrace.log.file.reader import Chunk, Reader, clip
from headrace.log.file.topics import topic_by_id
from headrace.log.position import EARLIEST, Position
from headrace.log.positions import GroupOffsets, Place, Positions
from headrace.log.record import Batch
from headrace.log.roles import CommitMode

_AHEAD = 32
_LOOK_AGAIN = 2 * MILLISECOND


class FileCursor:
    """Reads a partition from a position on, in batches of limited size."""

    def __init__(
        self,
        catalog: Catalog,
        reader: Reader,
        topic: TopicRow,
        partition: int,
        position: int,
        changes: Callable[[], int],
    ) -> None:
        self._catalog = catalog
        self.topic = topic
        self.partition = partition
        self.position = position
        self._reader = reader
        self._chunks: deque[Chunk] = deque()
        self._batch: Batch | None = None
        self._end = position
        self._changes = changes
        self._seen_changes: int | None = None

    def seek(self, position: int) -> None:
        self.position = position
        self._chunks.clear()
        self._batch = None
        self._seen_changes = None

    def take(self, rows: int) -> Batch | None:
        """The next rows, at most `rows`; None if there are none.

        After finding nothing, it does not query the catalog until the catalog has changed.
        """
        while self._batch is None:
            if not self._chunks:
                changes = self._changes()
                if changes == self._seen_changes:
                    return None
                self._chunks.extend(
                    self._reader.chunks(self.topic, self.partition, self.position, _AHEAD)
                )
                if not self._chunks:
                    self._seen_changes = changes
                    self.position = self._reader.past_gap(self.topic, self.partition, self.position)
                    return None
            chunk = self._chunks[0]
            if chunk.columns != self.topic.columns:
                # The topic's columns have changed since it was last read.
                with self._catalog.reading() as db:
                    self.topic = topic_by_id(db, self.topic.id) or self.topic
            batch = self._reader.load(self.topic, self.partition, chunk)
            self._chunks.popleft()
            if batch is not None:
                batch = clip(batch, self.position, chunk.end)
            if batch is None or not len(batch):
                self.position = chunk.end  # compaction removed everything here
                continue
            self._batch = batch
            self._end = chunk.end
        batch, rest = self._batch, None
        if len(batch) > rows:
            batch, rest = batch.slice(0, rows), batch.slice(rows, len(batch))
        self._batch = rest
        self.position = self._end if rest is None else int(rest.offsets[0])
        return batch


class FilePositions(Positions):
    """Positions that are read only when the catalog has changed."""

    def __init__(self, catalog: Catalog, topics: Sequence[TopicRow]) -> None:
        super().__init__(topics)
        self._catalog = catalog
        self._changes = 0

    def changes(self) -> int:
        """The catalog's number of changes at the last `take`."""
        return self._changes

    @property
    def topics(self) -> Collection[int]:
        """The ids of the topics that are read."""
        return list(self._topics)

    def look_up(self, topic: int) -> TopicRow | None:
        """The current row of a topic, which may have more partitions than before; None if it was
        deleted."""
        with self._catalog.reading() as db:
            row = topic_by_id(db, topic)
        if row is not None:
            self.replace(row)
        return row

    def take(self, max_records: int) -> list[Batch]:
        self._changes = self._catalog.changes()
        return super().take(max_records)


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
        self._positions = FilePositions(catalog, topics)
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
        offset = self._offset_of(topic, partition, start) if committed is None else committed
        changes = self._positions.changes
        cursor = FileCursor(self._catalog, self._reader, topic, partition, offset, changes)
        self._positions.start(cursor, committed)

    def _offset_of(self, topic: TopicRow, partition: int, position: Position) -> int:
        with self._catalog.reading() as db:
            return find_offset(db, topic, partition, position)

    # The group

    def _committed(self, place: Place) -> int | None:
        if self._membership is None:
            return None
        with self._catalog.reading() as db:
            return committed_offset(db, self._membership.group, *place)

    def _offsets(self, moved: dict[Place, int]) -> GroupOffsets:
        assert self._membership is not None
        return self._membership.offsets(moved)

    def _store(self, offsets: GroupOffsets, *, synced: bool) -> None:
        with self._catalog.writing(synced=synced) as db:
            store_offsets(db, offsets)

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
