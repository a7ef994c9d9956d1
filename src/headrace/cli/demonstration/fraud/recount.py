"""An independent recount of what rules have to flag, from the rows in the log's segments.

It shares no code with headrace's reader and engine. It sorts the complete transactions of each
card, and goes through them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from headrace.cli.demonstration.fraud.traffic import distance
from headrace.cli.demonstration.recount import stored_rows
from headrace.clock import to_micros

_MINUTE = 60_000_000
_HOUR = 60 * _MINUTE

MANY, MUCH, FAST = "too many", "too much", "too fast"


@dataclass(frozen=True)
class Use:
    """One use of a card. Times are microseconds."""

    transaction: str
    card: str
    amount: Decimal
    lat: float
    lon: float
    at: int
    number: int
    """The number of its commit."""


@dataclass(frozen=True)
class Recount:
    """The transactions on time, the late ones, and those that have to be flagged."""

    uses: Mapping[str, Use]
    late: frozenset[str]
    flagged: Mapping[str, frozenset[str]]


@dataclass(frozen=True)
class Alert:
    """An alert, and when its transaction (`appended`) and itself (`alerted`) were in the log."""

    id: str
    rule: str
    transaction: str
    appended: int
    alerted: int

    @property
    def latency(self) -> float:
        """Seconds from the transaction in the log to the alert in the log."""
        return (self.alerted - self.appended) / 1_000_000


def recount(folder: Path, topic: str, within: int, delay: int) -> Recount:
    """Recount all transactions."""
    uses, late = _in_time(_uses(folder, topic), delay)
    cards: dict[str, list[Use]] = defaultdict(list)
    for use in uses:
        cards[use.card].append(use)
    found: dict[str, set[str]] = {MANY: set(), MUCH: set(), FAST: set()}
    for mine in cards.values():
        # Rows of the same time stay in the order of the log.
        mine.sort(key=lambda use: use.at)
        times = [use.at for use in mine]
        for place, use in enumerate(mine):
            recent = mine[bisect_left(times, use.at - within) : place + 1]
            if sum(one.at >= use.at - _MINUTE for one in recent) > 5:
                found[MANY].add(use.transaction)
            if sum((one.amount for one in recent), Decimal(0)) > 5_000:
                found[MUCH].add(use.transaction)
            if len(recent) > 1 and _too_fast(recent[-2], use):
                found[FAST].add(use.transaction)
    return Recount(
        {use.transaction: use for use in uses},
        frozenset(use.transaction for use in late),
        {rule: frozenset(ids) for rule, ids in found.items()},
    )


def alerts_in(folder: Path, topic: str) -> list[Alert]:
    """The alerts of a topic."""
    names = ("alert", "rule", "transaction", "appended", "time")
    stored = stored_rows(folder, topic)
    if not stored.num_rows:
        return []
    rows = zip(*(stored.column(name).to_pylist() for name in names), strict=True)
    return [
        Alert(alert, rule, transaction, to_micros(appended), time)
        for alert, rule, transaction, appended, time in rows
    ]


def _uses(folder: Path, topic: str) -> list[Use]:
    names = ("transaction", "card", "amount", "lat", "lon", "at", "number")
    stored = stored_rows(folder, topic)
    columns = [stored.column(name).to_pylist() for name in names]
    return [
        Use(transaction, card, amount, lat, lon, to_micros(at), number)
        for transaction, card, amount, lat, lon, at, number in zip(*columns, strict=True)
    ]


def _in_time(uses: Sequence[Use], delay: int) -> tuple[list[Use], list[Use]]:
    """The uses on time and the late ones, by the highest event time before them."""
    counted: list[Use] = []
    late: list[Use] = []
    frontier = newest = number = -1
    for use in uses:
        if use.number != number:
            number, frontier = use.number, newest
        (late if use.at + delay <= frontier else counted).append(use)
        newest = max(newest, use.at)
    return counted, late


def _too_fast(before: Use, now: Use) -> bool:
    """True if the card moved faster than 500 km/h."""
    far = float(distance(before.lat, before.lon, now.lat, now.lon))
    return far > 500 * (now.at - before.at) / _HOUR
