"""Store a group's offsets, alone or in the same commit as records."""

from __future__ import annotations

import apsw

from headrace.errors import MemberFenced
from headrace.log.file.catalog import one
from headrace.log.group_offsets import GroupOffsets


def store_offsets(db: apsw.Connection, offsets: GroupOffsets) -> None:
    """Store a group's offsets; raise `MemberFenced` if another member owns a partition.

    Offsets of a deleted topic are skipped.
    """
    for (topic, partition), offset in offsets.offsets.items():
        if one(db, "SELECT 1 FROM topic WHERE id = ?", topic) is None:
            continue
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
