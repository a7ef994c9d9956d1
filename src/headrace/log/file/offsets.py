"""A group's offsets, committed by themselves or along with records."""

from __future__ import annotations

import apsw

from headrace.errors import MemberFenced
from headrace.log.file.catalog import one
from headrace.log.group_offsets import GroupOffsets


def store_offsets(db: apsw.Connection, offsets: GroupOffsets) -> None:
    """Move a group's offsets, unless its partitions have gone to somebody else.

    Those of a topic that was deleted have nothing to move in any more.
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
