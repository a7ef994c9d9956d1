"""Recovery at the first open after the machine went down.

A process that dies leaves nothing to repair: bytes that were written and not recorded are ignored.
But when the machine goes down, commits that were only `written` may keep their metadata and lose
their bytes. No `synced` commit can be among or after them, so recovery rolls the log back to the
commit before the first damaged one. The history is shorter, but consistent. The bytes of synced
commits that the catalog has beside their records (see `tails`) are first written to the segments.

Only proven damage rolls commits back: bytes that differ from their checksum, a file that ends too
early, a missing file whose name was never synced. A file that cannot be read proves nothing. Then
the log does not open and nothing changes, so that one can try again.
"""

from __future__ import annotations

import logging

import apsw

from headrace.clock import Clock
from headrace.log.file.catalog import Catalog, many, one
from headrace.log.file.disk import Disk, unreadable
from headrace.log.file.layout import Checksum
from headrace.log.file.queue.rows import roll_back_queues
from headrace.log.file.segments import Segments
from headrace.log.file.storage import LocalSegment

log = logging.getLogger(__name__)


def recover(catalog: Catalog, segments: Segments, disk: Disk, clock: Clock) -> int:
    """Make the log consistent if the machine was down; return the number of lost commits."""
    boot = disk.boot()
    with catalog.reading() as db:
        known = one(db, "SELECT value FROM setting WHERE name = 'boot'")
    if catalog.read_only or (boot and known and known[0] == boot):
        return 0
    with catalog.writing(synced=True) as db:
        known = one(db, "SELECT value FROM setting WHERE name = 'boot'")
        if boot and known and known[0] == boot:
            return 0  # another process was faster
        segments.restore_tails(db)
        damaged = _first_damaged(db, segments, disk)
        lost = 0
        if damaged is not None:
            lost = _forget_from(db, damaged)
            segments.cut(db, clock.now())
        _begin_history(db, damaged)
        db.execute("UPDATE setting SET value = ? WHERE name = 'boot'", (boot,))
    if damaged is not None:
        log.warning(
            "the machine went down before %d unsynced commits had reached the disk; "
            "the log in %s was rolled back to commit %d",
            lost,
            catalog.folder,
            damaged - 1,
        )
    return lost


def _begin_history(db: apsw.Connection, damaged: int | None) -> None:
    """Record the first commit that may differ from what readers saw before the rollback.

    Commits that the catalog itself has lost leave no trace in it, and their numbers are used
    again; so without damage, it is the next commit.
    """
    epoch, following = one(
        db, "SELECT coalesce((SELECT max(epoch) FROM rollback), 0) + 1, number + 1 FROM head"
    ) or (1, 1)
    first = following if damaged is None else damaged
    db.execute("DELETE FROM rollback WHERE first >= ?", (first,))  # the new one includes them
    db.execute("INSERT INTO rollback VALUES (?, ?)", (epoch, first))


def _first_damaged(db: apsw.Connection, segments: Segments, disk: Disk) -> int | None:
    """The first commit with a damaged chunk among those that were never synced."""
    worst: int | None = None
    for segment, topic, partition, synced in many(
        db, "SELECT id, topic, partition, synced FROM segment WHERE synced < length"
    ):
        path = segments.path(topic, partition, segment)
        for position, length, digest, number in many(
            db,
            "SELECT position, length, checksum, number FROM chunk "
            "WHERE segment = ? AND position + length > ? ORDER BY number",
            segment,
            synced,
        ):
            if not _intact(LocalSegment(disk, path), position, length, digest, named=synced > 0):
                worst = number if worst is None else min(worst, number)
                break
    return worst


def _intact(file: LocalSegment, position: int, length: int, digest: int, *, named: bool) -> bool:
    """True if the bytes match their checksum. `named`: the file's name was synced."""
    checksum = Checksum()
    try:
        checksum.read(file, position, length)
    except FileNotFoundError:
        # A power cut does not remove a name that was synced. The file was deleted, and readers
        # will report that.
        return named
    except OSError as error:
        raise unreadable(error, file.path) from error
    return checksum.value == digest


def _forget_from(db: apsw.Connection, number: int) -> int:
    """Roll back a commit and all after it; return their number."""
    lost = one(db, "SELECT count(*) FROM commits WHERE number >= ?", number)
    db.execute(
        "UPDATE partition SET end = lost.first FROM (SELECT topic, partition, min(first) AS first "
        "FROM chunk WHERE number >= ? GROUP BY topic, partition) AS lost "
        "WHERE partition.topic = lost.topic AND partition.partition = lost.partition",
        (number,),
    )
    db.execute("DELETE FROM chunk WHERE number >= ?", (number,))
    db.execute("DELETE FROM topic_commit WHERE number >= ?", (number,))
    db.execute("DELETE FROM mark WHERE number >= ?", (number,))
    db.execute(
        "UPDATE producer SET sequence = lost.first - 1 FROM (SELECT producer AS id, "
        "min(sequence) AS first FROM commits WHERE number >= ? GROUP BY producer) AS lost "
        "WHERE producer.id = lost.id",
        (number,),
    )
    db.execute("DELETE FROM commits WHERE number >= ?", (number,))
    db.execute(
        "UPDATE group_offset SET offset = min(offset, (SELECT end FROM partition p "
        "WHERE p.topic = group_offset.topic AND p.partition = group_offset.partition))"
    )
    roll_back_queues(db)
    return int(lost[0]) if lost else 0
