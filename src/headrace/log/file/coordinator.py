"""Consumer groups in the catalog: who is in them, and which partition is whose.

Each partition has an owner, who reads it and alone may commit its offset, and a target, who should
have it. A rebalance only sets targets. A partition then changes hands in two steps: its owner,
having committed what it has handled, lets go; its target takes it. So nothing is handled twice
because of a rebalance, and a member that died is passed over once its session has run out.

Sessions do not run on the wall clock, which may be set, but on the one that counts up from the
machine's boot. Members of another boot ended with it.
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
from headrace.log.declared import TopicRow
from headrace.log.file.catalog import Catalog, many, one
from headrace.log.file.offsets import store_offsets
from headrace.log.file.rebalance import partitions_changed, rebalance
from headrace.log.group_offsets import GroupOffsets, Place
from headrace.log.names import check_name


@dataclass(frozen=True)
class Membership:
    """A member's ticket to its group."""

    group: int
    member: str


@dataclass(frozen=True)
class Pulse:
    """A moment by which sessions are judged: on which boot of the machine, and how far into it."""

    boot: str
    beat: int
    wall: int


@dataclass(frozen=True)
class Share:
    """What a member has to do with which partitions at a generation."""

    generation: int
    owned: frozenset[Place]
    leaving: frozenset[Place]


class Coordinator:
    """Every process runs its own; the catalog's write lock makes them take turns."""

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
    ) -> Membership:
        """Become a member. One with the same `instance` is replaced and its partitions kept."""
        check_name(name, "group")
        if assignor not in ASSIGNORS:
            raise InvalidSetting(
                f"There is no assignor {assignor!r}", hint=f"Use {' or '.join(ASSIGNORS)}"
            )
        member = f"{instance or 'member'}-{uuid.uuid4().hex[:12]}"
        names = json.dumps(sorted(topic.name for topic in topics))
        with self._catalog.writing() as db:
            group = ensure_group(db, name, assignor)
            previous = instance and one(
                db,
                "SELECT id, topics FROM member WHERE consumer_group = ? AND instance = ?",
                group,
                instance,
            )
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
        return Membership(group, member)

    def has_successor(self, membership: Membership, instance: str) -> bool:
        """Whether another member has taken the instance name of this one."""
        with self._catalog.reading() as db:
            found = one(
                db,
                "SELECT 1 FROM member WHERE consumer_group = ? AND instance = ? AND id <> ?",
                membership.group,
                instance,
                membership.member,
            )
        return found is not None

    def leave(self, membership: Membership, *, static: bool) -> None:
        """Leave, at once; a static member's place is kept until its session runs out."""
        if static:
            return
        with self._catalog.writing() as db:
            if _remove(db, membership.group, membership.member):
                rebalance(db, membership.group)

    def heartbeat(self, membership: Membership) -> None:
        """Say that the member is alive."""
        with self._catalog.writing() as db:
            _beat(db, membership.member, self.pulse())

    def has_news(self, membership: Membership, generation: int) -> bool:
        """Whether `sync` has anything to say that it has not said at `generation`. Only reads."""
        with self._catalog.reading() as db:
            found = one(
                db,
                "SELECT g.generation <> ? OR NOT EXISTS (SELECT 1 FROM member WHERE id = ?) "
                "OR EXISTS (SELECT 1 FROM claim c WHERE c.consumer_group = g.id AND ((c.target = ? "
                "AND c.owner IS NULL) OR (c.owner = ? AND c.target IS NOT c.owner))) "
                "FROM consumer_group g WHERE g.id = ?",
                generation,
                membership.member,
                membership.member,
                membership.member,
                membership.group,
            )
        return found is None or bool(found[0])

    def sync(self, membership: Membership) -> Share:
        """Take what is free for the member, and hear what it has to let go of."""
        with self._catalog.writing() as db:
            group, member = membership.group, membership.member
            self._check_member(db, membership)
            now = self.pulse()
            _beat(db, member, now)
            if expire_members(db, group, now) or partitions_changed(db, group):
                rebalance(db, group)
            db.execute(
                "UPDATE claim SET owner = ? WHERE consumer_group = ? AND target = ? "
                "AND owner IS NULL",
                (member, group, member),
            )
            mine = many(
                db,
                "SELECT topic, partition, target = owner FROM claim "
                "WHERE consumer_group = ? AND owner = ?",
                group,
                member,
            )
            generation = one(db, "SELECT generation FROM consumer_group WHERE id = ?", group)
        return Share(
            generation[0] if generation else 0,
            frozenset((topic, partition) for topic, partition, _ in mine),
            frozenset((topic, partition) for topic, partition, stays in mine if not stays),
        )

    def release(self, membership: Membership, places: Collection[Place]) -> None:
        """Let go of partitions that are meant for others."""
        with self._catalog.writing() as db:
            for topic, partition in places:
                db.execute(
                    "UPDATE claim SET owner = NULL WHERE consumer_group = ? AND topic = ? "
                    "AND partition = ? AND owner = ?",
                    (membership.group, topic, partition, membership.member),
                )

    def _check_member(self, db: apsw.Connection, membership: Membership) -> None:
        if one(db, "SELECT 1 FROM member WHERE id = ?", membership.member) is None:
            raise MemberFenced(
                f"The group has gone on without member {membership.member}",
                hint="It was silent for longer than its session, or another consumer has its "
                "instance name",
            )

    # Offsets

    def committed(self, group: int, topic: int, partition: int) -> int | None:
        """The offset at which a group goes on in a partition."""
        with self._catalog.reading() as db:
            return committed_offset(db, group, topic, partition)

    def commit(self, offsets: GroupOffsets, *, synced: bool) -> None:
        """Move a group's offsets."""
        with self._catalog.writing(synced=synced) as db:
            store_offsets(db, offsets)


def find_group(db: apsw.Connection, name: str) -> tuple[int, int, str]:
    found = one(
        db,
        "SELECT id, generation, assignor FROM consumer_group WHERE name = ?",
        check_name(name, "group"),
    )
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
    """Have the group assign as its new member says, or as its others do if it has others."""
    others = one(
        db, "SELECT 1 FROM member WHERE consumer_group = ? AND id <> ? LIMIT 1", group, member
    )
    known = one(db, "SELECT name, assignor FROM consumer_group WHERE id = ?", group)
    if others and known and known[1] != assignor:
        raise InvalidSetting(
            f"Group {known[0]!r} assigns its partitions by {known[1]}, not by {assignor}",
            hint="All members of a group need the same assignor",
        )
    db.execute("UPDATE consumer_group SET assignor = ? WHERE id = ?", (assignor, group))


def _beat(db: apsw.Connection, member: str, now: Pulse) -> None:
    db.execute(
        "UPDATE member SET heartbeat = ?, boot = ?, beat = ? WHERE id = ?",
        (now.wall, now.boot, now.beat, member),
    )


ALIVE = "boot = ? AND abs(? - beat) <= session"
"""True if a member's session lasts at a pulse. A beat from far ahead is of another boot, too,
where the system does not tell boots apart."""


def expire_members(db: apsw.Connection, group: int, now: Pulse) -> bool:
    """Take out members whose session has run out; says whether there were any."""
    gone = many(
        db,
        f"SELECT id FROM member WHERE consumer_group = ? AND NOT ({ALIVE})",
        group,
        now.boot,
        now.beat,
    )
    for (member,) in gone:
        _remove(db, group, member)
    return bool(gone)


def _remove(db: apsw.Connection, group: int, member: str) -> bool:
    """Take a member out and free what it owned; says whether it was there."""
    db.execute("DELETE FROM member WHERE id = ?", (member,))
    there = db.changes() > 0
    for role in ("owner", "target"):
        db.execute(
            f"UPDATE claim SET {role} = NULL WHERE consumer_group = ? AND {role} = ?",
            (group, member),
        )
    return there


def owned_by(db: apsw.Connection, group: int, member: str) -> list[Place]:
    return [
        (topic, partition)
        for topic, partition in many(
            db,
            "SELECT topic, partition FROM claim WHERE consumer_group = ? AND owner = ? "
            "ORDER BY topic, partition",
            group,
            member,
        )
    ]


def committed_offset(db: apsw.Connection, group: int, topic: int, partition: int) -> int | None:
    found = one(
        db,
        "SELECT offset FROM group_offset WHERE consumer_group = ? AND topic = ? AND partition = ?",
        group,
        topic,
        partition,
    )
    return None if found is None else int(found[0])
