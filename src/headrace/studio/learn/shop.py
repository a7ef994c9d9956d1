"""A shop's events: orders, payments and changes of users, and three joins over them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache

from headrace.clock import to_datetime
from headrace.log.record import Record
from headrace.operators.public import (
    App,
    Enriched,
    Join,
    TableJoin,
    enrich,
    join,
    join_tables,
    table,
)
from headrace.oracle.events import Event
from headrace.oracle.tables import Version, changes_of
from headrace.pipeline.stream import Source
from headrace.pipeline.tables import Table
from headrace.studio.learn.stage import Arrival, moment, recorded

ORDERS = 18
USERS = ("ann", "bob", "cem", "dee")
_TIERS = ("basic", "silver", "gold")
_UNPAID = 0.15
_OUT_OF_ORDER = 0.2
_BEHIND = 9.0
"""The most seconds by which a row may arrive late."""


@dataclass(frozen=True)
class Joins:
    """The three joins, as a person would write them."""

    streams: Join
    lookup: Enriched
    tables: TableJoin


def _topics(app: App | None = None) -> tuple[Source, Source, Source]:
    app = app or App("shop")
    orders = app.topic(
        "orders", schema="id bigint, user string, at timestamp", key="id", event_time="at"
    )
    payments = app.topic("payments", schema="id bigint, at timestamp", event_time="at")
    users = app.topic(
        "users", schema="name string, tier string, since timestamp", key="name", event_time="since"
    )
    return orders, payments, users


def joins(bound: float, delay: float, app: App | None = None) -> Joins:
    """Orders with their payments, with the user's tier then, and with the user's tier now."""
    orders, payments, users = _topics(app)
    after, waits = timedelta(seconds=bound), timedelta(seconds=delay)
    people = table(users, key="name")
    return Joins(
        join(orders, payments, on="id", after=after, how="left", delay=waits, prefix="paid_"),
        enrich(orders, people, on={"user": "name"}, wait=waits, prefix="user_"),
        join_tables(
            table(orders, key="id"), people, on={"user": "name"}, how="left", prefix="user_"
        ),
    )


@dataclass(frozen=True)
class Arrived:
    """The events of one commit, so many seconds after the beginning."""

    at: float
    events: tuple[Event, ...]

    @property
    def topic(self) -> str:
        return self.events[0].topic.name


@lru_cache(maxsize=64)
def arrivals(seed: int, changes: int) -> tuple[Arrived, ...]:
    """The shop's events as a log keeps them; users change their tier so many times."""
    each = generated(seed, changes)
    found = recorded(each)
    return tuple(Arrived(arrival.at, events) for arrival, events in zip(each, found, strict=True))


def generated(seed: int, changes: int) -> tuple[Arrival, ...]:
    """The shop's events in the order of their arrival."""
    orders, payments, users = _topics()
    rng = random.Random(seed)
    made: list[tuple[float, Arrival]] = []

    def arrive(at: float, source: Source, row: dict[str, object]) -> None:
        behind = rng.uniform(0, _BEHIND) if rng.random() < _OUT_OF_ORDER else rng.uniform(0, 0.8)
        arrived = round(at + behind, 2)
        made.append((arrived, Arrival(arrived, source, (row,))))

    at = 1.0
    for number in range(1, ORDERS + 1):
        at += rng.uniform(2, 8)
        happened = round(at, 2)
        row = {"id": number, "user": rng.choice(USERS), "at": moment(happened)}
        arrive(happened, orders, row)
        if rng.random() >= _UNPAID:
            paid = round(happened + rng.uniform(2, 26), 2)
            arrive(paid, payments, {"id": number, "at": moment(paid)})
    # Its own numbers: with more changes, orders and payments stay as they are.
    rng = random.Random(seed + 1)
    tiers = dict.fromkeys(USERS, _TIERS[0])
    for since in sorted(round(rng.uniform(5, at), 2) for _ in range(changes)):
        name = rng.choice(USERS)
        tiers[name] = rng.choice([tier for tier in _TIERS if tier != tiers[name]])
        arrive(since, users, {"name": name, "tier": tiers[name], "since": moment(since)})
    known = tuple({"name": name, "tier": _TIERS[0], "since": moment(0)} for name in USERS)
    ordered = sorted(made, key=lambda each: each[0])
    return (Arrival(0.5, users, known), *(arrival for _, arrival in ordered))


def of_topic(events: Sequence[Event], name: str) -> list[Event]:
    """The events of a topic."""
    return [event for event in events if event.topic.name == name]


def frontier_after(events: Sequence[Event], name: str, commit: int) -> int | None:
    """The highest event time of a topic after a commit, as the log keeps it."""
    known = [
        moment
        for event in events
        if event.topic.name == name and event.commit <= commit
        for moment in (event.frontier, event.event_time)
        if moment is not None
    ]
    return max(known, default=None)


def versions_of(kept: Table, events: Sequence[Event]) -> list[Version]:
    """The versions of a table that events make."""
    mine = of_topic(events, kept.topic)
    records = [
        Record(
            event.topic.name,
            event.partition,
            event.offset,
            event.row[event.topic.key or ""],
            event.row,
            (),
            to_datetime(event.append_time),
            event.commit,
        )
        for event in mine
    ]
    found = changes_of(
        kept, records, mine, lambda name, commit: frontier_after(events, name, commit)
    )
    return found.versions
