"""Assign partitions to members: a rebalance records the target of each in the catalog."""

from __future__ import annotations

import json
from collections.abc import Collection

import apsw

from headrace.log.assignment import ASSIGNORS
from headrace.log.file.catalog import many, one


def _subscriptions(db: apsw.Connection, group: int) -> dict[str, list[str]]:
    return {
        member: json.loads(topics)
        for member, topics in many(
            db, "SELECT id, topics FROM member WHERE consumer_group = ?", group
        )
    }


def _partitions(db: apsw.Connection, names: Collection[str]) -> dict[str, tuple[int, int]]:
    """Topic id and partition count by name, for topics that exist."""
    count = "SELECT count(*) FROM partition p WHERE p.topic = t.id"
    found = {}
    for name in names:
        row = one(db, f"SELECT t.id, ({count}) FROM topic t WHERE t.name = ?", name)
        if row is not None:
            found[name] = (row[0], row[1])
    return found


def partitions_changed(db: apsw.Connection, group: int) -> bool:
    """True if partitions were added, deleted or lost their member since the last rebalance."""
    names = {name for topics in _subscriptions(db, group).values() for name in topics}
    now = {(id, p) for id, count in _partitions(db, names).values() for p in range(count)}
    sql = "SELECT topic, partition FROM claim WHERE consumer_group = ? AND target IS NOT NULL"
    return now != set(many(db, sql, group))


def rebalance(db: apsw.Connection, group: int) -> None:
    """Compute the target of each partition, and increment the generation."""
    members = _subscriptions(db, group)
    known = _partitions(db, {name for topics in members.values() for name in topics})
    names = {id: name for name, (id, _) in known.items()}
    previous: dict[str, list[tuple[str, int]]] = {member: [] for member in members}
    sql = "SELECT topic, partition, coalesce(target, owner) FROM claim WHERE consumer_group = ?"
    for topic, partition, target in many(db, sql, group):
        if target in previous and topic in names:
            previous[target].append((names[topic], partition))
    assignor = one(db, "SELECT assignor FROM consumer_group WHERE id = ?", group)
    assign = ASSIGNORS[assignor[0] if assignor else "sticky"]
    counts = {name: count for name, (_, count) in known.items()}
    targets = assign(members, counts, previous)
    owners = {
        (topic, partition): owner
        for topic, partition, owner in many(
            db, "SELECT topic, partition, owner FROM claim WHERE consumer_group = ?", group
        )
    }
    db.execute("DELETE FROM claim WHERE consumer_group = ?", (group,))
    for member, places in targets.items():
        for name, partition in places:
            place = (known[name][0], partition)
            db.execute(
                "INSERT INTO claim VALUES (?, ?, ?, ?, ?)",
                (group, *place, owners.get(place), member),
            )
    db.execute("UPDATE consumer_group SET generation = generation + 1 WHERE id = ?", (group,))
