"""Records that repeat others, dropped by a reader: what was written twice is read once.

What runs in real time writes some records again after a crash. Each of them has an id that says
what it is of, and only the first of an id is news.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator

from headrace.errors import UnknownColumn
from headrace.log.record import Record

REMEMBERED = 1_000_000


class OnceBy:
    """Tells the first record of each id. Of more ids than are remembered, the oldest go first."""

    def __init__(self, column: str, remembered: int = REMEMBERED) -> None:
        self._column = column
        self._remembered = remembered
        self._seen: dict[Hashable, None] = {}

    def is_first(self, record: Record) -> bool:
        """Whether no record of the same id came before. Those without an id repeat nothing."""
        row = record.value
        if row is None:
            return True
        if not isinstance(row, dict) or self._column not in row:
            raise UnknownColumn(
                f"Records of topic {record.topic!r} have no column {self._column!r} to go by",
                hint=f"There are: {', '.join(row)}" if isinstance(row, dict) else "They are bytes",
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
    """The records of which each is the first with its value in a column, such as an alert's id.

    So many ids are remembered, by this reader and as long as it reads. One that has to know them
    after a crash of its own keeps them with whatever it does: an upsert by the id does.
    """
    once = OnceBy(column, remembered)
    return filter(once.is_first, records)
