"""Deduplication by a reader: records that were written twice are read once.

A step in real time writes some records again after a crash. Each record has an id, and only the
first record of an id counts.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator

from headrace.errors import UnknownColumn
from headrace.log.record import Record

REMEMBERED = 1_000_000


class OnceBy:
    """Finds the first record of each id. It remembers the newest `remembered` ids."""

    def __init__(self, column: str, remembered: int = REMEMBERED) -> None:
        self._column = column
        self._remembered = remembered
        self._seen: dict[Hashable, None] = {}

    def is_first(self, record: Record) -> bool:
        """True if no record with the same id came before. A record without an id is first."""
        row = record.value
        if row is None:
            return True
        if not isinstance(row, dict) or self._column not in row:
            raise UnknownColumn(
                f"Records of topic {record.topic!r} have no column {self._column!r}",
                hint=f"They have: {', '.join(row)}" if isinstance(row, dict) else "They are bytes",
            )
        known = row[self._column]
        if known is None:
            return True
        if known in self._seen:
            return False
        self._seen[known] = None
        if len(self._seen) > self._remembered:
            del self._seen[next(iter(self._seen))]
        return True


def once_by(
    records: Iterable[Record], column: str, *, remembered: int = REMEMBERED
) -> Iterator[Record]:
    """The first record of each value in a column, such as an alert's id.

    This reader remembers the last `remembered` ids, in memory. A reader that has to know them after
    its own crash stores them with its results, for example by an upsert on the id.
    """
    once = OnceBy(column, remembered)
    return filter(once.is_first, records)
