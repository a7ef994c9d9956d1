"""Marks: where the rows of a topic are, by the values of the column that its `index` names.

A commit writes a mark for each value of each of its rows, and the marks of rows that retention,
compaction, a rollback or the deletion of their topic removes go in the same transaction. So a
condition on later commits is a look-up under the write lock, and rows are found without a scan.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import apsw
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import ConditionFailed
from headrace.log.declared import TopicRow, unknown_topic
from headrace.log.file.catalog import one
from headrace.log.file.parts import FilePart
from headrace.log.matches import Match
from headrace.log.state import Ack

_ENOUGH = 1000
"""Marks to count when choosing the group of a match that has the fewest."""

_ENDLESS = 1 << 62


def values_of(column: pa.Array) -> Iterator[tuple[int, str]]:
    """Each value in a column of strings or of lists of them, with the index of its row."""
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        rows = pc.list_parent_indices(column).to_pylist()
        column = pc.list_flatten(column)
    else:
        rows = range(len(column))
    for row, value in zip(rows, column.to_pylist(), strict=True):
        if value is not None:
            yield row, value


def record_marks(
    db: apsw.Connection,
    topic: TopicRow,
    number: int,
    partition: int,
    rows: pa.RecordBatch,
    offsets: Sequence[int],
) -> None:
    """Write the marks of a commit's rows."""
    name = topic.topic.settings.index
    if name is not None:
        db.executemany(
            "INSERT OR IGNORE INTO mark VALUES (?, ?, ?, ?, ?)",
            (
                (topic.id, value, number, partition, offsets[row])
                for row, value in values_of(rows.column(name))
            ),
        )


def remove_marks(
    db: apsw.Connection,
    topic: TopicRow,
    number: int,
    partition: int,
    rows: pa.RecordBatch,
    offsets: Sequence[int],
) -> None:
    """Remove the marks of rows of a commit."""
    name = topic.topic.settings.index
    if name is not None:
        db.executemany(
            "DELETE FROM mark WHERE topic = ? AND value = ? AND number = ? AND partition = ? "
            "AND offset = ?",
            (
                (topic.id, value, number, partition, offsets[row])
                for row, value in values_of(rows.column(name))
            ),
        )


def remove_marks_before_first(db: apsw.Connection, topic: TopicRow) -> None:
    """Remove the marks of rows that retention has deleted."""
    if topic.topic.settings.index is not None:
        db.execute(
            "DELETE FROM mark WHERE topic = ?1 AND offset < (SELECT first FROM partition p "
            "WHERE p.topic = ?1 AND p.partition = mark.partition)",
            (topic.id,),
        )


def found_marks(
    db: apsw.Connection, topic: int, match: Match, after: int, upto: int = _ENDLESS
) -> tuple[str, list[int | str]]:
    """A query of the marks of rows that match, with its values."""
    groups = [sorted(group) for group in match]
    if len(groups) > 1:  # the rarest group first, for the others are looked up row by row
        groups.sort(key=lambda group: _count(db, topic, group, after, upto))
    first, *others = groups
    sql = (
        f"SELECT m.number, m.partition, m.offset FROM mark m WHERE m.topic = ? "
        f"AND m.value IN ({_marks(first)}) AND m.number > ? AND m.number <= ?"
    )
    given: list[int | str] = [topic, *first, after, upto]
    for group in others:
        sql += (
            f" AND EXISTS (SELECT 1 FROM mark o WHERE o.topic = m.topic "
            f"AND o.value IN ({_marks(group)}) AND o.number = m.number "
            "AND o.partition = m.partition AND o.offset = m.offset)"
        )
        given += group
    return sql, given


class Unless(FilePart):
    """The condition that no row of a topic that matches was committed after a commit."""

    def __init__(self, topic: TopicRow, matches: Sequence[Match], after: int) -> None:
        self._topic = topic
        self._matches = matches
        self._after = after

    def check(self, db: apsw.Connection) -> None:
        topic = self._topic
        if one(db, "SELECT 1 FROM topic WHERE id = ?", topic.id) is None:
            raise unknown_topic(topic.name, [])
        found = [self._first(db, match) for match in self._matches]
        commits = [number for number in found if number is not None]
        if commits:
            raise ConditionFailed(
                f"Commit {min(commits)} has a row in topic {topic.name!r} that matches, after "
                f"commit {self._after}",
                hint="Nothing was committed. Read what has come and decide again",
                topic=topic.name,
                commit=min(commits),
                after=self._after,
            )

    def record(
        self, db: apsw.Connection, commit: int | None, time: int, acks: Sequence[Ack]
    ) -> None:
        """A condition changes nothing."""

    def _first(self, db: apsw.Connection, match: Match) -> int | None:
        sql, given = found_marks(db, self._topic.id, match, self._after)
        found = one(db, f"SELECT min(number) FROM ({sql})", *given)
        return None if found is None else found[0]


def _count(db: apsw.Connection, topic: int, group: list[str], after: int, upto: int) -> int:
    found = one(
        db,
        f"SELECT count(*) FROM (SELECT 1 FROM mark WHERE topic = ? AND value IN ({_marks(group)}) "
        "AND number > ? AND number <= ? LIMIT ?)",
        topic, *group, after, upto, _ENOUGH,
    )  # fmt: skip
    return int(found[0]) if found else 0


def _marks(values: Iterable[object]) -> str:
    return ", ".join("?" for _ in values)
