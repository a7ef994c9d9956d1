"""Payments with stolen cards among them, and one rule that is evaluated in two ways."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache

from headrace.clock import to_micros
from headrace.operators.alerts.meaning import Judge, Seen, Verdict, flagged
from headrace.operators.public import Alerts, App, alerts, rule
from headrace.oracle.events import Event
from headrace.pipeline.stream import Source
from headrace.studio.learn.simulation import Setup
from headrace.studio.learn.stage import Arrival, moment, recorded, seconds

SPAN = 120
"""Minutes."""
CARDS = 16
_HONEST = 60
_WITHIN = timedelta(minutes=5)


def declared(uses: int) -> Alerts:
    """The rule, as a person would write it: a card that is used so often in five minutes."""
    return alerts(
        _payments(),
        by="card",
        event="payment",
        within=_WITHIN,
        delay=timedelta(minutes=1),
        rules={"too often": rule(f"size(recent) >= {uses}")},
    )


def _payments() -> Source:
    schema = "payment int, card int, amount int, at timestamp"
    return App("fraud").topic("payments", schema=schema, event_time="at")


def _judges(uses: int) -> Mapping[str, Judge]:
    def too_often(seen: Seen, recent: Sequence[Seen]) -> Verdict | None:
        return Verdict(recent) if len(recent) >= uses else None

    return {"too often": too_often}


@dataclass(frozen=True)
class Payment:
    """A payment, and whether a thief tried it, which no rule can see."""

    second: int
    card: int
    amount: int
    by_thief: bool

    @property
    def minute(self) -> float:
        return self.second / 60


@dataclass(frozen=True)
class Traffic:
    """Payments in order, and the same as events of the log."""

    payments: tuple[Payment, ...]
    events: tuple[Event, ...]


@lru_cache(maxsize=64)
def traffic(seed: int, stolen: int) -> Traffic:
    """Payments of honest owners, and those of thieves, each with one card in one burst."""
    rng = random.Random(seed)
    thefts = {card: rng.uniform(8, 70) for card in rng.sample(range(1, CARDS + 1), stolen)}
    made = []
    for _ in range(_HONEST):
        card, minute = rng.randint(1, CARDS), rng.uniform(0, SPAN)
        amount = rng.randint(5, 80)
        # The owner of a stolen card notices nothing, and does not pay with it either.
        if minute < thefts.get(card, SPAN):
            made.append(Payment(round(minute * 60), card, amount, by_thief=False))
    for card, minute in thefts.items():
        end = minute + rng.uniform(30, 45)
        while minute < end:
            made.append(Payment(round(minute * 60), card, rng.randint(60, 400), by_thief=True))
            minute += rng.uniform(0.6, 2.4)
    made.sort(key=lambda payment: payment.second)
    arrivals = []
    for number, each in enumerate(made):
        at = moment(each.second)
        row = {"payment": number, "card": each.card, "amount": each.amount, "at": at}
        arrivals.append(Arrival(each.second, _payments(), (row,)))
    found = recorded(arrivals)
    return Traffic(tuple(made), tuple(event for (event,) in found))


Blocked = Mapping[int, int]
"""The second at which each card was blocked."""


@lru_cache(maxsize=64)
def by_stream(seed: int, stolen: int, uses: int) -> Blocked:
    """The cards that the rule blocks if it sees each event as it arrives."""
    return _blocked(uses, traffic(seed, stolen).events)


@lru_cache(maxsize=64)
def by_batch(seed: int, stolen: int, uses: int, every: int) -> Blocked:
    """The cards that the same rule blocks if it is evaluated at the end of each batch."""
    events = traffic(seed, stolen).events
    blocked: dict[int, int] = {}
    for end in range(every, SPAN + 1, every):
        read = [event for event in events if seconds(event.append_time) <= end * 60]
        for card in _blocked(uses, read):
            blocked.setdefault(card, end * 60)
    return blocked


def _blocked(uses: int, events: Sequence[Event]) -> dict[int, int]:
    blocked: dict[int, int] = {}
    for alert in flagged(declared(uses), events, _judges(uses)).alerts:
        blocked.setdefault(alert["card"], round(seconds(to_micros(alert["appended"]))))
    return blocked


@dataclass(frozen=True)
class Side:
    """One of the two systems at a moment: the cards it has blocked, and each payment's fate."""

    name: str
    blocked: Blocked
    payments: tuple[Payment, ...]

    def declined(self, payment: Payment) -> bool:
        # The payment that raises an alert has gone through: an alert blocks what comes after it.
        return payment.second > self.blocked.get(payment.card, payment.second)

    @property
    def paid(self) -> list[Payment]:
        """Payments of thieves that went through."""
        return [each for each in self.payments if each.by_thief and not self.declined(each)]

    @property
    def lost(self) -> int:
        return sum(payment.amount for payment in self.paid)


def sides(setup: Setup, minute: int) -> tuple[Side, Side]:
    """Batch and stream, as they are at a minute."""
    given = setup.seed, setup.whole("stolen"), setup.whole("uses")
    seen = tuple(p for p in traffic(*given[:2]).payments if p.second <= minute * 60)
    every = setup.whole("every")
    found = {"batch": by_batch(*given, every), "stream": by_stream(*given)}
    batch, stream = (
        Side(name, {card: at for card, at in blocked.items() if at <= minute * 60}, seen)
        for name, blocked in found.items()
    )
    return batch, stream
