"""Consumer groups in the catalog: their members, and the owner of each partition.

Each partition has an owner, the only member that reads it and commits its offset, and a target, the
member that should own it. A rebalance only sets targets. A partition then moves in two steps: its
owner commits and releases it; its target takes it. So a rebalance causes no record to be handled
twice, and the group skips a dead member once its session has expired.

Sessions use the monotonic clock, which counts from the machine's boot, since the wall clock may be
set. Members from another boot are dead.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import apsw

from headrace.clock import Clock
from headrace.errors import InvalidSetting, MemberFenced, UnknownGroup
from headrace.log.assignment import ASSIGNORS
from headrace.log.declared import TopicRow, check_name
from headrace.log.file.catalog import Catalog, many, one
from headrace.log.file.rebalance import partitions_changed, rebalance
from headrace.log.positions import Place


@dataclass(frozen=True)
class MemberId:
    """A group and the id of one of its members."""

    group: int
    id: str


@dataclass(frozen=True)
class Pulse:
    """A moment for session timeouts: the boot of the machine, and the time since."""

    boot: str
    beat: int
    wall: int


@dataclass(frozen=True)
class Share:
    """A member's partitions at a generation; it must release those in `leaving`."""

    generation: int
    owned: frozenset[Place]
    leaving: frozenset[Place]


class Coordinator:
    """The group coordinator. Every process runs its own; the catalog's write lock orders them."""

    def __init__(self, catalog: Catalog, clock: Clock, boot: str) -> None:
        self._catalog = catalog
        self._clock = clock
        self._boot = boot

    def pulse(self) -> Pulse:
        """The present moment."""
        return Pulse(self._boot, self._clock.monotonic(), self._clock.now())

    # Membership

    def join(
        self,
        name: str,
        topics: Sequence[TopicRow],
        assignor: str,
        instance: str | None,
        session: int,
    ) -> MemberId:
        """Join a group. A member with the same `instance` is replaced; its partitions stay."""
        check_name(name, "group")
        if assignor not in ASSIGNORS:
            raise InvalidSetting(
                f"There is no assignor {assignor!r}", hint=f"Use {' or '.join(ASSIGNORS)}"
            )
        member = f"{instance or 'member'}-{uuid.uuid4().hex[:12]}"
        names = json.dumps(sorted(topic.name for topic in topics))
        with self._catalog.writing() as db:
            group = ensure_group(db, name, assignor)
            sql = "SELECT id, topics FROM member WHERE consumer_group = ? AND instance = ?"
            previous = instance and one(db, sql, group, instance)
            if previous:
                db.execute("DELETE FROM member WHERE id = ?", (previous[0],))
                for role in ("owner", "target"):
                    db.execute(
                        f"UPDATE claim SET {role} = ? WHERE consumer_group = ? AND {role} = ?",
                        (member, group, previous[0]),
                    )
            now = self.pulse()
            db.execute(
                "INSERT INTO member VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (member, group, instance, names, session, now.wall, now.boot, now.beat),
            )
            expired = expire_members(db, group, now)
            _agree(db, group, member, assignor)
            if expired or not previous or previous[1] != names:
                rebalance(db, group)
        return MemberId(group, member)

    def has_successor(self, member: MemberId, instance: str) -> bool:
        """True if another member has taken over this one's instance name."""
        sql = "SELECT 1 FROM member WHERE consumer_group = ? AND instance = ? AND id <> ?"
        with self._catalog.reading() as db:
            return one(db, sql, member.group, instance, member.id) is not None

    def leave(self, member: MemberId) -> None:
        """Leave the group, and give up its partitions."""
        with self._catalog.writing() as db:
            if _remove(db, member.group, member.id):
                rebalance(db, member.group)

    def heartbeat(self, member: MemberId) -> None:
        """Record that the member is alive."""
        with self._catalog.writing() as db:
            _beat(db, member.id, self.pulse())

    def has_news(self, member: MemberId, generation: int) -> bool:
        """True if the member has to `sync` since `generation`. Read-only."""
        with self._catalog.reading() as db:
            found = one(
                db,
                "SELECT g.generation <> ?1 OR NOT EXISTS (SELECT 1 FROM member WHERE id = ?2) OR "
                "EXISTS (SELECT 1 FROM claim c WHERE c.consumer_group = g.id AND ((c.target = ?2 "
                "AND c.owner IS NULL) OR (c.owner = ?2 AND c.target IS NOT c.owner))) "
                "FROM consumer_group g WHERE g.id = ?3",
                generation,
                member.id,
                member.group,
            )
        return found is None or bool(found[0])

    def sync(self, member: MemberId) -> Share:
        """Take the member's free partitions, and return those it owns and must release."""
        with self._catalog.writing() as db:
            group, id = member.group, member.id
            self._check_member(db, member)
            now = self.pulse()
            _beat(db, id, now)
            if expire_members(db, group, now) or partitions_changed(db, group):
                rebalance(db, group)
            db.execute(
                "UPDATE claim SET owner = ? WHERE consumer_group = ? AND target = ? "
                "AND owner IS NULL",
                (id, group, id),
            )
            mine = many(
                db,
                "SELECT topic, partition, target = owner FROM claim "
                "WHERE consumer_group = ? AND owner = ?",
                group,
                id,
            )
            generation = one(db, "SELECT generation FROM consumer_group WHERE id = ?", group)
        return Share(
            generation[0] if generation else 0,
            frozenset((topic, partition) for topic, partition, _ in mine),
            frozenset((topic, partition) for topic, partition, stays in mine if not stays),
        )

    def release(self, member: MemberId, places: Collection[Place]) -> None:
        """Release partitions that are meant for other members."""
        with self._catalog.writing() as db:
            for topic, partition in places:
                db.execute(
                    "UPDATE claim SET owner = NULL WHERE consumer_group = ? AND topic = ? "
                    "AND partition = ? AND owner = ?",
                    (member.group, topic, partition, member.id),
                )

    def _check_member(self, db: apsw.Connection, member: MemberId) -> None:
        if one(db, "SELECT 1 FROM member WHERE id = ?", member.id) is None:
            raise MemberFenced(
                f"Member {member.id} is no longer in its group",
                hint="Its session expired without a heartbeat, or another consumer has taken its "
                "instance name. Poll again to rejoin",
            )


def find_group(db: apsw.Connection, name: str) -> tuple[int, int, str]:
    sql = "SELECT id, generation, assignor FROM consumer_group WHERE name = ?"
    found = one(db, sql, check_name(name, "group"))
    if found is None:
        raise UnknownGroup(
            f"There is no group {name!r}", hint="'headrace groups list' shows them", group=name
        )
    return found[0], found[1], found[2]


def ensure_group(db: apsw.Connection, name: str, assignor: str) -> int:
    db.execute(
        "INSERT INTO consumer_group (name, assignor) VALUES (?, ?) ON CONFLICT (name) DO NOTHING",
        (name, assignor),
    )
    return find_group(db, name)[0]


def _agree(db: apsw.Connection, group: int, member: str, assignor: str) -> None:
    """Set the group's assignor to that of its only member; several members must agree."""
    others = one(
        db, "SELECT 1 FROM member WHERE consumer_group = ? AND id <> ? LIMIT 1", group, member
    )
    known = one(db, "SELECT name, assignor FROM consumer_group WHERE id = ?", group)
    if others and known and known[1] != assignor:
        raise InvalidSetting(
            f"Group {known[0]!r} uses the assignor {known[1]!r}, not {assignor!r}",
            hint=f"All members of a group need the same assignor: use {known[1]}",
        )
    db.execute("UPDATE consumer_group SET assignor = ? WHERE id = ?", (assignor, group))


def _beat(db: apsw.Connection, member: str, now: Pulse) -> None:
    db.execute(
        "UPDATE member SET heartbeat = ?, boot = ?, beat = ? WHERE id = ?",
        (now.wall, now.boot, now.beat, member),
    )


ALIVE = "boot = ? AND abs(? - beat) <= session"
"""True if a member's session has not expired at a pulse. `abs`: on a system without boot ids, a
beat in the future comes from another boot."""


def expire_members(db: apsw.Connection, group: int, now: Pulse) -> bool:
    """Remove members whose session has expired; True if there were any."""
    sql = f"SELECT id FROM member WHERE consumer_group = ? AND NOT ({ALIVE})"
    gone = many(db, sql, group, now.boot, now.beat)
    for (member,) in gone:
        _remove(db, group, member)
    return bool(gone)


def _remove(db: apsw.Connection, group: int, member: str) -> bool:
    """Remove a member and free its partitions; True if it was in the group."""
    db.execute("DELETE FROM member WHERE id = ?", (member,))
    there = db.changes() > 0
    for role in ("owner", "target"):
        db.execute(
            f"UPDATE claim SET {role} = NULL WHERE consumer_group = ? AND {role} = ?",
            (group, member),
        )
    return there
