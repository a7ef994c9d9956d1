"""Three joins over the same events: what the oracle says of them, and the rows that each holds.

How long the stream join holds a row follows from its declaration: an order until the watermark of
the payments has passed its time and the bound, a payment until that of the orders has passed it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.clock import micros
from headrace.operators.stream_join.meaning import Joined, joined
from headrace.operators.table_join.meaning import current, joined_tables
from headrace.operators.table_lookup.meaning import Lookups, looked_up
from headrace.oracle.events import Event
from headrace.oracle.rows import Row, watermark_of
from headrace.oracle.tables import Version
from headrace.studio.learn.shop import Joins, frontier_after, of_topic, versions_of

_TOPICS = ("orders", "payments", "users")


@dataclass(frozen=True)
class Joining:
    """The three joins after some events: their results and their state."""

    streams: Joined
    lookup: Lookups
    rows: tuple[Row, ...]
    """Those of the two tables."""
    orders: tuple[Event, ...]
    """Orders that the stream join holds: a payment may still come for them."""
    payments: tuple[Event, ...]
    versions: tuple[Version, ...]
    """Versions of users that the lookup holds: all of them."""
    users: tuple[Version, ...]
    """Versions of users that the joined tables hold: the newest of each."""
    placed: int
    """Orders that the joined tables hold."""

    @property
    def held(self) -> tuple[int, int, int]:
        """Rows of state: stream–stream, stream–table, table–table."""
        streams = len(self.orders) + len(self.payments)
        return streams, len(self.versions), self.placed + len(self.users)

    @property
    def evicted(self) -> int:
        """Rows that the stream join held once, and holds no longer."""
        return self.streams.counted - len(self.orders) - len(self.payments)

    @property
    def then(self) -> dict[int, str | None]:
        """The tier of each order's user when it was placed."""
        return {row["id"]: row["user_tier"] for row in self.lookup.rows}

    @property
    def now(self) -> dict[int, str | None]:
        """The tier of each order's user by the newest change."""
        return {row["id"]: row["user_tier"] for row in self.rows}

    @property
    def apart(self) -> set[int]:
        """Orders for which the two disagree."""
        now = self.now
        return {number for number, tier in self.then.items() if tier != now[number]}


def joining(declared: Joins, seen: Sequence[Event]) -> Joining:
    """The joins over events, by the oracle, and the rows that each one holds after them."""
    head = max((event.commit for event in seen), default=0)
    frontiers = {name: frontier_after(seen, name, head) for name in _TOPICS}
    streams = declared.streams
    orders, payments = of_topic(seen, "orders"), of_topic(seen, "payments")
    found = joined(streams, [*orders, *payments], frontiers)
    late = {id(side.event) for _, side in found.late}

    def held(events: list[Event], bound: int, other: int | None) -> tuple[Event, ...]:
        # A row is of no use once every row that could match it would be late.
        return tuple(
            event
            for event in events
            if id(event) not in late and (other is None or (event.event_time or 0) + bound > other)
        )

    users = versions_of(declared.lookup.table, seen)
    placed = versions_of(declared.tables.first, seen)
    return Joining(
        found,
        looked_up(
            declared.lookup,
            orders,
            users,
            lambda name, commit: frontier_after(seen, name, commit),
            head,
        ),
        tuple(joined_tables(declared.tables, [placed, users])),
        held(
            orders,
            micros(streams.after),
            watermark_of(streams.right, frontiers, streams.delay),
        ),
        held(
            payments,
            micros(streams.before),
            watermark_of(streams.left, frontiers, streams.delay),
        ),
        tuple(users),
        tuple(current(users)),
        len(current(placed)),
    )
