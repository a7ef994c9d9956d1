"""The commit protocol: records become part of the log all at once or not at all.

1. Encode each partition's rows as an Arrow message, without holding a lock.
2. Take the catalog's write lock. Its holder alone may write to the open segments.
3. Write the messages at the recorded ends of the segments, over any bytes that a crash left there.
4. Record the rows' offsets, the commit number, the topics' frontiers, the producer's sequence,
   the group's offsets and the commit's other parts, whose conditions were checked in step 2.
5. For a `synced` commit, sync every segment with unsynced bytes, not only those just written: this
   commit makes the metadata of earlier commits durable too.
6. Commit the catalog's transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import apsw
import pyarrow as pa
import pyarrow.compute as pc

from headrace.clock import Clock, micros
from headrace.log.declared import TOMBSTONE, TopicRow
from headrace.log.event_time import check_not_ahead, last_believed, time_column, times_of
from headrace.log.file.catalog import Catalog, one
from headrace.log.file.clock_watch import ClockWatch, trusted_now
from headrace.log.file.disk import Disk
from headrace.log.file.identity import Identity, earlier_receipt
from headrace.log.file.layout import Checksum, Message, encode
from headrace.log.file.marks import record_marks
from headrace.log.file.offsets import store_offsets
from headrace.log.file.parts import FilePart
from headrace.log.file.segments import Segments
from headrace.log.file.topics import frontier_at
from headrace.log.positions import GroupOffsets
from headrace.log.split import Piece
from headrace.log.state import Ack, Receipt, believed


@dataclass(frozen=True)
class _Commit:
    """A commit in progress: its number and time, and the topics in which it closed segments.

    `time` never goes back from one commit to the next, so commits are ordered by time. `clock` is
    for ages and bounds; it differs from `time` only after a clock was far ahead.
    """

    db: apsw.Connection
    number: int
    time: int
    clock: int
    closed: set[int]


class Appender:
    """Makes commits. One per process is enough; it is thread-safe."""

    def __init__(self, catalog: Catalog, segments: Segments, disk: Disk, clock: Clock) -> None:
        self._catalog = catalog
        self._segments = segments
        self._disk = disk
        self._clock = clock
        self._watch = ClockWatch(clock)

    def commit(
        self,
        pieces: Sequence[Piece],
        *,
        synced: bool,
        identity: Identity | None = None,
        offsets: GroupOffsets | None = None,
        parts: Sequence[FilePart] = (),
    ) -> tuple[Receipt, set[int]]:
        """Commit; return the receipt and the topics in which a segment was closed.

        A commit with group offsets is always synced: recovery after a power cut takes back
        unsynced records, but not the offsets committed with them. So is one with a part that
        recovery does not take back either.
        """
        synced = synced or offsets is not None or any(part.lasting for part in parts)
        pieces = [_timed(piece, self._clock.now()) for piece in pieces]
        messages = [encode(p.rows, p.topic.topic.settings.compression) for p in pieces]
        self._disk.step("encoded")
        closed: set[int] = set()
        with self._catalog.writing(synced=synced) as db:
            if identity is not None and (known := earlier_receipt(db, identity)) is not None:
                return known, closed
            for topic in {p.topic.id: p.topic for p in pieces}.values():
                check_unchanged(db, topic)
            for part in parts:
                part.check(db)
            commit = self._next(db, closed)
            acks = [
                self._place(commit, piece, message)
                for piece, message in zip(pieces, messages, strict=True)
            ]
            _record(commit, pieces, identity)
            if offsets is not None:
                store_offsets(db, offsets)
            for part in parts:
                part.record(db, commit.number if pieces else None, commit.time, acks)
            self._disk.step("recorded")
        self._disk.step("committed")
        return Receipt(commit.number if pieces else None, commit.time, tuple(acks)), closed

    def advance(self, topic: TopicRow, moment: int, *, ahead: bool) -> int | None:
        """Commit a topic's new frontier, without rows; None if the frontier is there already."""
        with self._catalog.writing(synced=True) as db:
            check_unchanged(db, topic)
            before = frontier_at(db, topic.id, None)
            if before is not None and moment <= before:
                return None
            commit = self._next(db, set())
            bound = last_believed(topic.topic, commit.clock)
            if not ahead:
                check_not_ahead(topic.topic, moment, bound)
            _record_head(commit, None)
            db.execute(
                "INSERT INTO topic_commit VALUES (?, ?, 0, ?, ?, NULL, 0, ?)",
                (topic.id, commit.number, before, moment, bound),
            )
        return commit.number

    def _next(self, db: apsw.Connection, closed: set[int]) -> _Commit:
        """The next commit."""
        number, last = one(db, "SELECT number + 1, time FROM head") or (1, 0)
        now = self._clock.now()
        if number == 1:
            last = now  # the first commit has no predecessor
        self._watch.look(now, last)
        return _Commit(db, number, max(now, last), trusted_now(now, last), closed)

    def _place(self, commit: _Commit, piece: Piece, message: Message) -> Ack:
        """Append a message to its partition's open segment, and record it."""
        topic, partition, size = piece.topic, piece.partition, sum(map(len, message))
        end, segment, position = self._room(commit, topic, partition, size)
        checksum = Checksum()
        path = self._segments.path(topic.id, partition, segment)
        self._disk.write(path, checksum.passing(message), position)
        self._disk.step("wrote")
        rows = piece.rows.num_rows
        db = commit.db
        db.execute(
            "INSERT INTO chunk VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (topic.id, partition, end, end + rows, rows,
             segment, position, size, checksum.value, commit.number),
        )  # fmt: skip
        db.execute("UPDATE segment SET length = ? WHERE id = ?", (position + size, segment))
        db.execute(
            "UPDATE partition SET end = ?, segment = ? WHERE topic = ? AND partition = ?",
            (end + rows, segment, topic.id, partition),
        )
        record_marks(db, topic, commit.number, partition, piece.rows, range(end, end + rows))
        return Ack(topic.name, partition, end, end + rows)

    def _room(
        self, commit: _Commit, topic: TopicRow, partition: int, size: int
    ) -> tuple[int, int, int]:
        """The partition's end, a segment with room for `size` bytes, and the segment's length."""
        db, now, settings = commit.db, commit.clock, topic.topic.settings
        end, segment, columns, length, created = one(
            db,
            "SELECT p.end, s.id, s.columns, s.length, s.created FROM partition p "
            "LEFT JOIN segment s ON s.id = p.segment WHERE p.topic = ? AND p.partition = ?",
            topic.id,
            partition,
        ) or (0, None, None, 0, 0)
        if segment is not None and (
            columns != topic.columns
            or length + size > settings.segment_bytes
            # abs: the segment may have been created by a clock that was far ahead.
            or (settings.segment_age and abs(now - created) >= micros(settings.segment_age))
        ):
            self._segments.close(db, segment, now)
            commit.closed.add(topic.id)
            segment = None
        if segment is None:
            segment, length = self._segments.create(db, topic.id, partition, topic.columns, now)
        return end, segment, length


def _timed(piece: Piece, now: int) -> Piece:
    """Set missing event times to the arrival time, if the topic's settings say so."""
    topic = piece.topic.topic
    column = time_column(topic)
    if column is None or topic.settings.missing_time != "arrival":
        return piece
    times = piece.rows.column(column)
    if not times.null_count:
        return piece
    place = piece.rows.schema.get_field_index(column)
    deleted = piece.rows.column(TOMBSTONE.name)
    moment = pa.scalar(now, pa.int64()).cast(times.type)
    filled = pc.if_else(deleted, times, pc.fill_null(times, moment))
    rows = piece.rows.set_column(place, piece.rows.schema.field(place), filled)
    return replace(piece, rows=rows)


def _record(commit: _Commit, pieces: Sequence[Piece], identity: Identity | None) -> None:
    """Record the commit, each topic's frontier and the producer's sequence."""
    db, number, now = commit.db, commit.number, commit.clock
    if pieces:
        _record_head(commit, identity)
    by_topic: dict[int, list[Piece]] = {}
    for piece in pieces:
        by_topic.setdefault(piece.topic.id, []).append(piece)
    for id, mine in by_topic.items():
        topic = mine[0].topic.topic
        before = after = frontier_at(db, id, None)
        oldest, misplaced, bound = None, 0, last_believed(topic, now)
        if topic.event_time is not None:
            seen = [_event_times(times_of(topic, piece.rows), bound) for piece in mine]
            misplaced = sum(times.misplaced for times in seen)
            oldest = min((t.oldest for t in seen if t.oldest is not None), default=None)
            match topic.settings.frontier:
                case "events":
                    newest = [before, *(times.newest for times in seen)]
                case "arrival":
                    newest = [before, now]
                case _:
                    newest = [before]
            after = max((moment for moment in newest if moment is not None), default=None)
        rows = sum(piece.rows.num_rows for piece in mine)
        db.execute(
            "INSERT INTO topic_commit VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (id, number, rows, before, after, oldest, misplaced, bound),
        )
    if identity is not None:
        db.execute(
            "INSERT OR REPLACE INTO producer VALUES (?, ?, ?, ?, ?)",
            (identity.producer, identity.epoch, identity.sequence,
             number if pieces else None, now),
        )  # fmt: skip


def _record_head(commit: _Commit, identity: Identity | None) -> None:
    db, number, time = commit.db, commit.number, commit.time
    db.execute("UPDATE head SET number = ?, time = ?", (number, time))
    db.execute(
        "INSERT INTO commits VALUES (?, ?, ?, ?, ?)",
        (number, time, identity and identity.producer, identity and identity.sequence,
         commit.clock if commit.clock < time else None),
    )  # fmt: skip


def check_unchanged(db: apsw.Connection, topic: TopicRow) -> None:
    """Raise `StaleTopic` if the topic has changed since its row was read."""
    found = one(db, "SELECT version FROM topic WHERE id = ?", topic.id)
    if found is None or found[0] != topic.version:
        raise StaleTopic(topic)


class StaleTopic(Exception):
    """The topic has changed since work on it began; start again with the current one."""

    def __init__(self, topic: TopicRow) -> None:
        super().__init__(topic.name)
        self.topic = topic


@dataclass(frozen=True)
class _Times:
    """The range of a piece's valid event times, and the number of rows without one."""

    oldest: int | None
    newest: int | None
    misplaced: int


def _event_times(column: pa.Array, bound: int | None) -> _Times:
    """The range of the valid event times. Rows without one count as misplaced."""
    times = column.cast(pa.int64())
    misplaced = times.null_count
    oldest, newest = _span(times)
    first, last = believed(bound)
    if oldest is not None and newest is not None and not first <= oldest <= newest <= last:
        good = times.filter(pc.and_(pc.less_equal(first, times), pc.less_equal(times, last)))
        misplaced = len(times) - len(good)
        oldest, newest = _span(good)
    return _Times(oldest, newest, misplaced)


def _span(times: pa.Array) -> tuple[int | None, int | None]:
    span = pc.min_max(times)
    return span["min"].as_py(), span["max"].as_py()
