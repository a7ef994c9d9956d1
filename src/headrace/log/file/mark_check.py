"""Check that every value of an indexed column has its mark, and every mark its value."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import apsw
import xxhash

from headrace.log.file.catalog import many
from headrace.log.file.disk import Disk
from headrace.log.file.layout import OFFSET, Checksum, decode, stored_schema
from headrace.log.file.marks import values_of
from headrace.log.file.storage import segment_file, segment_path
from headrace.log.file.topics import all_topics
from headrace.log.state import Flaw


def mark_flaws(db: apsw.Connection, folder: Path) -> Iterator[Flaw]:
    """The indexed topics whose marks differ from their rows, in a log without other flaws."""
    for topic in all_topics(db):
        column = topic.topic.settings.index
        if column is None:
            continue
        try:
            rows = _Sum(_values(db, folder, topic.id, column))
        except OSError:
            continue  # a segment was compacted or deleted meanwhile
        marks = _Sum(
            (tuple(row))
            for row in db.execute(
                "SELECT value, number, partition, offset FROM mark WHERE topic = ?", (topic.id,)
            )
        )
        if rows != marks:
            yield Flaw(
                f"the index of topic {topic.name!r}",
                f"it has {marks.count:,} marks, and the topic's rows have {rows.count:,} values "
                f"in {column!r}" + (", others than it has" if marks.count == rows.count else ""),
                "Copy the rows to another topic with the same index, or restore the log from a "
                "backup",
            )


class _Sum:
    """The number of marks and a sum that does not depend on their order."""

    def __init__(self, marks: Iterator[tuple[str, int, int, int]]) -> None:
        self.count = self.hashes = 0
        for mark in marks:
            self.count += 1
            self.hashes += xxhash.xxh3_64_intdigest(repr(mark).encode())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Sum) and (self.count, self.hashes) == (other.count, other.hashes)

    __hash__ = None  # type: ignore[assignment]


def _values(
    db: apsw.Connection, folder: Path, topic: int, column: str
) -> Iterator[tuple[str, int, int, int]]:
    """Each value that a row has in the column, once, as its mark."""
    disk = Disk()
    with contextlib.closing(disk):
        for segment, partition, columns, sparse, location in many(
            db,
            "SELECT id, partition, columns, sparse, location FROM segment WHERE topic = ?",
            topic,
        ):
            file = segment_file(disk, segment_path(folder, topic, partition, segment), location)
            schema = stored_schema(columns, bool(sparse))
            for position, length, first, number in many(
                db, "SELECT position, length, first, number FROM chunk WHERE segment = ?", segment
            ):
                rows = decode(Checksum().read(file, position, length), schema)
                place = rows.schema.get_field_index(OFFSET.name)
                offsets = rows.column(place).to_pylist() if place >= 0 else None
                for row, value in dict.fromkeys(values_of(rows.column(column))):
                    yield value, number, partition, offsets[row] if offsets else first + row
