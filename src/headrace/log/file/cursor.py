"""A consumer's position in one partition of the embedded log."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from headrace.log.declared import TopicRow
from headrace.log.file.catalog import Catalog
from headrace.log.file.reader import Chunk, Reader, clip
from headrace.log.file.topics import topic_by_id
from headrace.log.record import Batch

_AHEAD = 32


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
