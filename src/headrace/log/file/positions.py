"""The positions of a consumer of the embedded log."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from headrace.log.declared import TopicRow
from headrace.log.file.catalog import Catalog
from headrace.log.file.cursor import FileCursor
from headrace.log.file.reader import Reader
from headrace.log.file.topics import topic_by_id
from headrace.log.positions import Positions
from headrace.log.record import Batch


class FilePositions(Positions):
    """Positions that are read only when the catalog has changed."""

    def __init__(self, catalog: Catalog, reader: Reader, topics: Sequence[TopicRow]) -> None:
        super().__init__(topics)
        self._catalog = catalog
        self._reader = reader
        self._changes = 0

    @property
    def topics(self) -> Collection[int]:
        """The ids of the topics that are read."""
        return list(self._topics)

    def open(self, topic: TopicRow, partition: int, offset: int, committed: int | None) -> None:
        """Start to read a partition at an offset."""
        cursor = FileCursor(
            self._catalog, self._reader, topic, partition, offset, lambda: self._changes
        )
        self.start(cursor, committed)

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
