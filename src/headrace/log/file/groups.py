"""Administration of consumer groups: describe them, reset their offsets, delete them."""

from __future__ import annotations

import json

import apsw

from headrace.clock import SECOND, Clock
from headrace.errors import GroupActive
from headrace.log.declared import check_name
from headrace.log.file.catalog import Catalog, many, one
from headrace.log.file.coordinator import (
    ALIVE,
    Coordinator,
    ensure_group,
    expire_members,
    find_group,
)
from headrace.log.file.lookup import find_offset, partition_range
from headrace.log.file.offsets import committed_offset, owner_of, store_offsets
from headrace.log.file.topics import find_topic, topic_by_id
from headrace.log.position import Position
from headrace.log.positions import GroupOffsets, Place
from headrace.log.state import GroupState, Lag, Member


class Groups:
    """All consumer groups of a log."""

    def __init__(self, catalog: Catalog, clock: Clock, coordinator: Coordinator) -> None:
        self._catalog = catalog
        self._clock = clock
        self._coordinator = coordinator

    def reset(self, name: str, topic: str, position: Position) -> dict[int, int]:
        """Set an inactive group's offsets in a topic to a position."""
        check_name(name, "group")
        with self._catalog.writing(synced=True) as db:
            row = find_topic(db, topic)
            group = ensure_group(db, name, "sticky")
            self._check_idle(db, name, group)
            offsets = {
                partition: find_offset(db, row, partition, position)
                for partition in range(row.topic.partitions)
            }
            places = {(row.id, partition): offset for partition, offset in offsets.items()}
            store_offsets(db, GroupOffsets(group, None, places))
        return offsets

    def names(self) -> list[str]:
        with self._catalog.reading() as db:
            return [name for (name,) in many(db, "SELECT name FROM consumer_group ORDER BY name")]

    def describe(self, name: str) -> GroupState:
        with self._catalog.reading() as db:
            group, generation, assignor = find_group(db, name)
            now = self._coordinator.pulse()
            members = []
            for id, instance, names, heartbeat in many(
                db,
                "SELECT id, instance, topics, heartbeat FROM member "
                f"WHERE consumer_group = ? AND {ALIVE} ORDER BY id",
                group,
                now.boot,
                now.beat,
            ):
                owned = many(
                    db,
                    "SELECT t.name, c.partition FROM claim c JOIN topic t ON t.id = c.topic "
                    "WHERE c.consumer_group = ? AND c.owner = ? ORDER BY t.name, c.partition",
                    group,
                    id,
                )
                topics = tuple(json.loads(names))
                partitions = tuple((name, partition) for name, partition in owned)
                members.append(Member(id, instance, topics, partitions, heartbeat))
            places = many(
                db,
                "SELECT topic, partition FROM group_offset WHERE consumer_group = ?1 "
                "UNION SELECT topic, partition FROM claim WHERE consumer_group = ?1",
                group,
            )
            lags = [lag for topic, p in places if (lag := self._lag(db, group, (topic, p)))]
        lags.sort(key=lambda lag: (lag.topic, lag.partition))
        return GroupState(name, generation, assignor, tuple(members), tuple(lags))

    def delete(self, name: str) -> None:
        with self._catalog.writing(synced=True) as db:
            group, _, _ = find_group(db, name)
            self._check_idle(db, name, group)
            for table in ("member", "claim", "group_offset"):
                db.execute(f"DELETE FROM {table} WHERE consumer_group = ?", (group,))
            db.execute("DELETE FROM consumer_group WHERE id = ?", (group,))

    def _check_idle(self, db: apsw.Connection, name: str, group: int) -> None:
        expire_members(db, group, self._coordinator.pulse())
        count = one(db, "SELECT count(*) FROM member WHERE consumer_group = ?", group)
        if count and count[0]:
            raise GroupActive(
                f"Group {name!r} has {count[0]} active members",
                hint="Stop its consumers first; a killed one counts until its session expires",
                group=name,
            )

    def _lag(self, db: apsw.Connection, group: int, place: Place) -> Lag | None:
        row = topic_by_id(db, place[0])
        if row is None:
            return None
        partition = place[1]
        first, end = partition_range(db, row, partition)
        committed = committed_offset(db, group, *place)
        at = first if committed is None else max(committed, first)
        owner = owner_of(db, group, *place)
        oldest = None
        if at < end:
            oldest = one(
                db,
                "SELECT m.time FROM chunk c JOIN commits m ON m.number = c.number "
                "WHERE c.topic = ? AND c.partition = ? AND c.first >= coalesce((SELECT max(first) "
                "FROM chunk WHERE topic = c.topic AND partition = c.partition AND first <= ?3), 0) "
                "AND c.end > ?3 ORDER BY c.first LIMIT 1",
                *place,
                at,
            )
        seconds = 0.0 if oldest is None else max(0, self._clock.now() - oldest[0]) / SECOND
        return Lag(row.name, partition, committed, end, end - at, seconds, owner)
