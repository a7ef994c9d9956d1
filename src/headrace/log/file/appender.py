"""The commit protocol: how records become part of the log, all at once or not at all.

1. Each partition's rows are encoded as an Arrow message and checksummed. No lock is held.
2. The catalog's write lock is taken, and with it the right to write to the open segments.
3. The messages are written at the recorded ends of the segments. Whatever lies there is what a
   crash left, and is overwritten.
4. The rows' offsets, the commit number, the topics' frontiers, the producer's sequence and a
   group's offsets are recorded.
5. For a `synced` commit, every segment with bytes that may not be on the device is synced: not
   only those just written, for this commit makes the metadata of earlier ones durable too.
6. The catalog's transaction commits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import apsw
import pyarrow as pa
import pyarrow.compute as pc

from headrace.clock import Clock, micros
from headrace.errors import MemberFenced, OutOfOrderSequence, ProducerFenced
from headrace.log.file.catalog import Catalog, many, one
from headrace.log.file.disk import Disk
from headrace.log.file.layout import Checksum, Message, encode, header
from headrace.log.file.segment import SEGMENTS, segment_path
from headrace.log.file.topics import TopicRow, frontier_at
from headrace.log.state import Ack, Receipt

_UNSYNCED_BYTES = 1 << 30


@dataclass(frozen=True)
class Piece:
    """Rows for one partition, in the columns of its segments."""

    topic: TopicRow
    partition: int
    rows: pa.RecordBatch


@dataclass(frozen=True)
class Identity:
    """Who commits, and which commit of theirs it is."""

    producer: str
    epoch: int
    sequence: int


@dataclass(frozen=True)
class GroupOffsets:
    """Where a group goes on: an offset by topic number and partition.

    `member` is None where nobody has to own the partitions, as when offsets are reset.
    """

    group: int
    member: str | None
    offsets: Mapping[tuple[int, int], int]


@dataclass(frozen=True)
class _Commit:
    """A commit under way: its number and time, and the topics it closed segments of."""

    db: apsw.Connection
    number: int
    time: int
    closed: set[int]


class Appender:
    """Makes commits. One per process is enough; it is safe for many threads."""

    def __init__(self, folder: Path, catalog: Catalog, disk: Disk, clock: Clock) -> None:
        self._folder = folder
        self._catalog = catalog
        self._disk = disk
        self._clock = clock

    def commit(
        self,
        pieces: Sequence[Piece],
        *,
        synced: bool,
        identity: Identity | None = None,
        offsets: GroupOffsets | None = None,
    ) -> tuple[Receipt, set[int]]:
        """The receipt, and the topics in which a segment was closed on the way."""
        messages = [encode(p.rows, p.topic.topic.settings.compression) for p in pieces]
        self._disk.step("encoded")
        closed: set[int] = set()
        with self._catalog.writing(synced=synced) as db:
            if identity is not None and (known := _already(db, identity)) is not None:
                return known, closed
            for topic in {p.topic.id: p.topic for p in pieces}.values():
                _check_unchanged(db, topic)
            number, last = one(db, "SELECT number + 1, time FROM head") or (1, 0)
            time = max(self._clock.now(), last)
            commit = _Commit(db, number, time, closed)
            acks = [
                self._place(commit, piece, message)
                for piece, message in zip(pieces, messages, strict=True)
            ]
            _record(commit, pieces, identity)
            if offsets is not None:
                store_offsets(db, offsets)
            self._disk.step("recorded")
            if synced:
                self.sync_segments(db)
        self._disk.step("committed")
        return Receipt(number if pieces else None, time, tuple(acks)), closed

    def sync_segments(self, db: apsw.Connection) -> None:
        """Have every byte that the catalog speaks of on the device.

        A segment of which nothing was ever synced may not even be in its folder for sure.
        """
        unsynced = many(
            db, "SELECT id, topic, partition, synced FROM segment WHERE synced < length"
        )
        for id, topic, partition, _ in unsynced:
            self._disk.sync(segment_path(self._folder, topic, partition, id))
            self._disk.step("synced a segment")
        if any(synced == 0 for *_, synced in unsynced):
            self._disk.sync_folder(self._folder / SEGMENTS)
        db.execute("UPDATE segment SET synced = length WHERE synced < length")

    def sync_closed(self) -> None:
        """Sync the closed segments if there is much in them that never was.

        This bounds what a crash of the machine can take from commits that were only `written`,
        and what recovery has to read. No lock is held meanwhile: closed segments do not change.
        """
        closed = many(
            self._catalog.reader(),
            "SELECT id, topic, partition, length FROM segment "
            "WHERE synced < length AND closed IS NOT NULL AND location IS NULL",
        )
        if sum(length for *_, length in closed) < _UNSYNCED_BYTES:
            return
        for id, topic, partition, _ in closed:
            self._disk.sync(segment_path(self._folder, topic, partition, id))
        self._disk.sync_folder(self._folder / SEGMENTS)
        with self._catalog.writing() as db:
            db.executemany(
                "UPDATE segment SET synced = length WHERE id = ?", [(id,) for id, *_ in closed]
            )

    def close_segment(self, db: apsw.Connection, segment: int, time: int) -> None:
        """Let nothing more be written to a segment."""
        db.execute("UPDATE segment SET closed = ? WHERE id = ?", (time, segment))
        db.execute("UPDATE partition SET segment = NULL WHERE segment = ?", (segment,))

    def create_segment(
        self,
        db: apsw.Connection,
        topic: int,
        partition: int,
        columns: str | None,
        time: int,
        *,
        sparse: bool = False,
    ) -> tuple[int, int]:
        """Begin a segment file; returns its number and the length of its header."""
        head = header(columns, sparse)
        db.execute(
            "INSERT INTO segment (topic, partition, columns, sparse, length, created) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            (topic, partition, columns, sparse, head.size, time),
        )
        segment = db.last_insert_rowid()
        path = segment_path(self._folder, topic, partition, segment)
        self._disk.create(path)
        self._disk.write(path, [head], 0)
        self._disk.step("created a segment")
        return segment, head.size

    def _place(self, commit: _Commit, piece: Piece, message: Message) -> Ack:
        """Write a message at the end of its partition's open segment, and record it."""
        topic, partition, size = piece.topic, piece.partition, sum(map(len, message))
        end, segment, position = self._room(commit, topic, partition, size)
        checksum = Checksum()
        path = segment_path(self._folder, topic.id, partition, segment)
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
        return Ack(topic.name, partition, end, end + rows)

    def _room(
        self, commit: _Commit, topic: TopicRow, partition: int, size: int
    ) -> tuple[int, int, int]:
        """The partition's end, and a segment with room for so many bytes and its length."""
        db, time, settings = commit.db, commit.time, topic.topic.settings
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
            or (settings.segment_age and time - created >= micros(settings.segment_age))
        ):
            self.close_segment(db, segment, time)
            commit.closed.add(topic.id)
            segment = None
        if segment is None:
            segment, length = self.create_segment(db, topic.id, partition, topic.columns, time)
        return end, segment, length


def _record(commit: _Commit, pieces: Sequence[Piece], identity: Identity | None) -> None:
    """What the whole commit has to say, beside where its rows are."""
    db, number, time = commit.db, commit.number, commit.time
    if pieces:
        db.execute("UPDATE head SET number = ?, time = ?", (number, time))
        db.execute(
            "INSERT INTO commits VALUES (?, ?, ?, ?)",
            (number, time, identity and identity.producer, identity and identity.sequence),
        )
    by_topic: dict[int, list[Piece]] = {}
    for piece in pieces:
        by_topic.setdefault(piece.topic.id, []).append(piece)
    for id, mine in by_topic.items():
        before = after = frontier_at(db, id, None)
        if mine[0].topic.topic.event_time is not None:
            seen = (before, *(_newest(piece, time) for piece in mine))
            after = max((moment for moment in seen if moment is not None), default=None)
        db.execute(
            "INSERT INTO topic_commit VALUES (?, ?, ?, ?, ?)",
            (id, number, sum(piece.rows.num_rows for piece in mine), before, after),
        )
    if identity is not None:
        db.execute(
            "INSERT OR REPLACE INTO producer VALUES (?, ?, ?, ?, ?)",
            (identity.producer, identity.epoch, identity.sequence,
             number if pieces else None, time),
        )  # fmt: skip


def store_offsets(db: apsw.Connection, offsets: GroupOffsets) -> None:
    """Move a group's offsets, unless its partitions have gone to somebody else."""
    for (topic, partition), offset in offsets.offsets.items():
        if offsets.member is not None:
            owner = one(
                db,
                "SELECT owner FROM claim WHERE consumer_group = ? AND topic = ? AND partition = ?",
                offsets.group,
                topic,
                partition,
            )
            if owner is None or owner[0] != offsets.member:
                raise MemberFenced(
                    f"Partition {partition} is no longer this member's, "
                    "so its offset was not committed",
                    hint="The group has gone on without this member: it was silent for longer "
                    "than its session, or its partition was given away. Poll again to rejoin",
                    partition=partition,
                )
        db.execute(
            "INSERT OR REPLACE INTO group_offset VALUES (?, ?, ?, ?)",
            (offsets.group, topic, partition, offset),
        )


def _already(db: apsw.Connection, identity: Identity) -> Receipt | None:
    """The receipt of this very commit, if it was made before."""
    known = one(db, "SELECT epoch, sequence FROM producer WHERE id = ?", identity.producer)
    epoch, sequence = known or (identity.epoch, -1)
    if epoch > identity.epoch:
        raise ProducerFenced(
            f"A newer producer {identity.producer!r} has started",
            hint="Only one producer with an id can write; stop this one",
            producer=identity.producer,
        )
    if identity.sequence > sequence + 1:
        raise OutOfOrderSequence(
            f"Producer {identity.producer!r} sent sequence {identity.sequence}, "
            f"and {sequence + 1} is next",
            hint="A batch before this one is missing; send it first",
            expected=sequence + 1,
        )
    if identity.sequence == sequence + 1:
        return None
    made = one(
        db,
        "SELECT number, time FROM commits WHERE producer = ? AND sequence = ?",
        identity.producer,
        identity.sequence,
    )
    if made is None:  # so long ago that retention has taken it away
        return Receipt(None, 0, (), duplicate=True)
    acks = tuple(
        Ack(*row)
        for row in many(
            db,
            "SELECT t.name, c.partition, c.first, c.end FROM topic_commit k "
            "JOIN topic t ON t.id = k.topic JOIN partition p ON p.topic = k.topic "
            "JOIN chunk c ON c.topic = k.topic AND c.partition = p.partition "
            "AND c.number = k.number WHERE k.number = ? ORDER BY t.name, c.partition",
            made[0],
        )
    )
    return Receipt(made[0], made[1], acks, duplicate=True)


def _check_unchanged(db: apsw.Connection, topic: TopicRow) -> None:
    found = one(db, "SELECT version FROM topic WHERE id = ?", topic.id)
    if found is None or found[0] != topic.version:
        raise StaleTopic(topic)


class StaleTopic(Exception):
    """The topic was altered or replaced after its rows were made ready; make them ready again."""

    def __init__(self, topic: TopicRow) -> None:
        super().__init__(topic.name)
        self.topic = topic


def _newest(piece: Piece, time: int) -> int | None:
    """The highest event time in a piece that its topic's skew believes."""
    topic = piece.topic.topic
    times = piece.rows.column(topic.event_time).cast(pa.int64())
    newest: int | None = pc.max(times).as_py()
    if newest is None or topic.settings.skew is None:
        return newest
    limit = time + micros(topic.settings.skew)
    if newest > limit:
        newest = pc.max(times.filter(pc.less_equal(times, limit))).as_py()
    return newest
