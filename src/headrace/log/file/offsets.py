"""A group's offsets: stored alone or in the same commit as records, by the partition's owner."""

from __future__ import annotations

import apsw

from headrace.errors import MemberFenced
from headrace.log.file.catalog import one
from headrace.log.positions import GroupOffsets

_PLACE = "consumer_group = ? AND topic = ? AND partition = ?"


def store_offsets(db: apsw.Connection, offsets: GroupOffsets) -> None:
    """Store a group's offsets; raise `MemberFenced` if another member owns a partition.

    Offsets of a deleted topic are skipped.
    """
    for (topic, partition), offset in offsets.offsets.items():
        if one(db, "SELECT 1 FROM topic WHERE id = ?", topic) is None:
            continue
        member = offsets.member
        if member is not None and member != owner_of(db, offsets.group, topic, partition):
            raise MemberFenced(
                f"Partition {partition} no longer belongs to this member, "
                "so its offset was not committed",
                hint="The member's session expired without a heartbeat, or the partition was "
                "given to another member. Poll again to rejoin",
                partition=partition,
            )
        db.execute(
            "INSERT OR REPLACE INTO group_offset VALUES (?, ?, ?, ?)",
            (offsets.group, topic, partition, offset),
        )


def committed_offset(db: apsw.Connection, group: int, topic: int, partition: int) -> int | None:
    """The group's committed offset in a partition."""
    found = one(db, f"SELECT offset FROM group_offset WHERE {_PLACE}", group, topic, partition)
    return None if found is None else int(found[0])


def owner_of(db: apsw.Connection, group: int, topic: int, partition: int) -> str | None:
    """The member that owns a partition; None if no member does."""
    found = one(db, f"SELECT owner FROM claim WHERE {_PLACE}", group, topic, partition)
    return None if found is None else found[0]
