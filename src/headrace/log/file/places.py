"""Rows found by their marks, and read where they are."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import apsw
import numpy as np

from headrace.errors import InvalidSetting
from headrace.log.conform import unknown_column
from headrace.log.declared import TopicRow
from headrace.log.file.marks import found_marks
from headrace.log.file.reader import Chunk, Reader
from headrace.log.matches import Match
from headrace.log.record import Batch

_ENDLESS = 1 << 62

_CHUNKS = """
    SELECT f.number, f.partition, f.offset, c.first, c.end, c.segment, c.position, c.length,
        c.checksum, c.number, m.time, s.columns, s.sparse, s.location
    FROM ({found}) f
    JOIN chunk c ON c.topic = ? AND c.partition = f.partition AND c.first = (
        SELECT max(x.first) FROM chunk x
        WHERE x.topic = ? AND x.partition = f.partition AND x.first <= f.offset)
    JOIN segment s ON s.id = c.segment JOIN commits m ON m.number = c.number
    ORDER BY f.number, f.partition, f.offset
"""


class Place(NamedTuple):
    """Where a row is."""

    partition: int
    offset: int
    chunk: Chunk


def check_columns(row: TopicRow, columns: Sequence[str] | None) -> None:
    """Check that a topic has the columns to read."""
    if columns is not None and not columns:
        raise InvalidSetting("columns is empty", hint="Name columns, or omit it for all")
    for name in columns or ():
        if name not in row.schema.names:
            raise unknown_column(row.topic, name)


def find_places(
    db: apsw.Connection,
    row: TopicRow,
    matches: Sequence[Match],
    after: int,
    upto: int | None,
    *,
    last: int,
) -> list[Place]:
    """The places of the rows that match, in the order of their commits."""
    parts, given = [], []
    for match in matches:
        sql, values = found_marks(db, row.id, match, after, _ENDLESS if upto is None else upto)
        parts.append(sql)
        given += values
    found = " UNION ".join(parts)  # a row that matches twice is found once
    if last:
        found += " ORDER BY number DESC, partition DESC, offset DESC LIMIT ?"
        given.append(last)
    rows = db.execute(_CHUNKS.format(found=found), (*given, row.id, row.id))
    return [Place(partition, offset, Chunk(*chunk)) for _, partition, offset, *chunk in rows]


def take(
    reader: Reader, row: TopicRow, places: Sequence[Place], columns: Sequence[str] | None
) -> Iterator[Batch]:
    """The rows at places. Those that compaction has removed meanwhile are left out."""
    for (partition, _), found in itertools.groupby(
        places, lambda place: (place.partition, place.chunk.first)
    ):
        here = list(found)
        batch = reader.load(row, partition, here[0].chunk, columns)
        if batch is None:
            continue
        offsets = np.array([place.offset for place in here])
        if not np.array_equal(batch.offsets, offsets):
            batch = batch.only(np.isin(batch.offsets, offsets))
        if len(batch):
            yield batch
