"""Simulated card transactions: by holders who shop where they are, and by thieves.

The stream does not say what is fraud. The truth is kept beside it, for the check at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.clock import SECOND

SEED = 20260207

_MINUTE, _HOUR = 60 * SECOND, 3600 * SECOND
_MOMENT = pa.timestamp("us", tz="UTC")
_MONEY = pa.decimal128(10, 2)

_CITIES = np.array(
    [
        (40.71, -74.01), (41.88, -87.63), (34.05, -118.24), (29.76, -95.37), (43.65, -79.38),
        (19.43, -99.13), (-23.55, -46.63), (51.51, -0.13), (48.86, 2.35), (52.52, 13.40),
        (40.42, -3.70), (41.90, 12.50), (30.04, 31.24), (6.52, 3.38), (-26.20, 28.05),
        (25.20, 55.27), (19.08, 72.88), (1.35, 103.82), (35.68, 139.69), (-33.87, 151.21),
    ]
)  # fmt: skip
_MERCHANTS = 40
_ACROSS = 0.04
"""Maximum distance of a merchant from the centre of its city, in degrees."""

_BETWEEN, _LEAST = 20 * _MINUTE, 2 * _MINUTE
"""Average and minimum time from one use of a card to the next."""

_TRAVELLERS = 0.1
_STOLEN = 0.03
_DEAR = 0.0005
"""Share of purchases with a large amount that are no fraud."""

_BEHIND, _LATE = 0.3 * SECOND, 0.003
"""Average delay of a transaction, and the share that is minutes late."""

Ints = np.ndarray[Any, np.dtype[np.int64]]
Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Incident:
    """A card in the wrong hands."""

    number: int
    scenario: str
    card: str


@dataclass(frozen=True)
class Traffic:
    """Card profiles, transactions in the order of arrival, and the truth about them."""

    profiles: pa.Table
    transactions: pa.Table
    truth: dict[str, Incident]
    """The transactions that are fraud."""
    start: int
    span: int

    def tables(self, begin: int, chunk: int) -> Iterator[pa.Table]:
        """The transactions from `begin` on, `chunk` per commit."""
        for first in range(begin, self.transactions.num_rows, chunk):
            yield self.transactions.slice(first, chunk)


@dataclass(frozen=True)
class _Uses:
    """Uses of cards, column by column."""

    card: Ints
    at: Ints
    cents: Ints
    city: Ints
    merchant: Ints
    incident: Ints


def traffic(events: int, start: int, span: int, seed: int = SEED) -> Traffic:
    """Simulate `events` transactions from `start` over about `span`, the same for a seed."""
    dice = np.random.default_rng(seed)
    cards = max(30, int(events * 1.15 * _BETWEEN / span))
    home = dice.integers(len(_CITIES), size=cards)
    usual = np.exp(dice.normal(np.log(4_000), 0.5, cards))
    genuine = _genuine(dice, home, usual, start, span)
    uses = _together(genuine, *_stolen(dice, genuine, home, start, span))
    arrived = uses.at + dice.exponential(_BEHIND, len(uses.at)).astype(np.int64)
    late = dice.random(len(arrived)) < _LATE
    arrived[late] += dice.integers(1 * _MINUTE, 5 * _MINUTE, int(late.sum()))
    order = np.argsort(arrived, kind="stable")[:events]
    merchants = dice.uniform(-_ACROSS, _ACROSS, (len(_CITIES), _MERCHANTS, 2))
    return _traffic(_chosen(uses, order), home, usual, merchants, start, span)


def _genuine(dice: np.random.Generator, home: Ints, usual: Floats, start: int, span: int) -> _Uses:
    """The uses by holders, in their city or in one that they travel to."""
    cards, most = len(home), int(span / _BETWEEN * 2) + 8
    gaps = _LEAST + dice.exponential(_BETWEEN - _LEAST, (cards, most))
    gaps[:, 0] = dice.uniform(0, _BETWEEN, cards)
    leaves, there = dice.integers(1, most, cards), dice.integers(len(_CITIES), size=cards)
    travels = dice.random(cards) < _TRAVELLERS
    hours = distance(*_CITIES[home].T, *_CITIES[there].T) / dice.uniform(80, 450, cards)
    gaps[travels, leaves[travels]] += hours[travels] * _HOUR
    at = start + np.cumsum(gaps, axis=1)
    away = travels[:, None] & (np.arange(most) >= leaves[:, None])
    cents = np.exp(np.log(usual)[:, None] + dice.normal(0, 0.6, at.shape))
    cents = np.where(dice.random(at.shape) < _DEAR, dice.uniform(510_000, 900_000, at.shape), cents)
    within = at < start + span
    return _Uses(
        np.broadcast_to(np.arange(cards)[:, None], at.shape)[within],
        at[within].astype(np.int64),
        np.maximum(100, cents[within]).astype(np.int64),
        np.where(away, there[:, None], home[:, None])[within],
        dice.integers(_MERCHANTS, size=int(within.sum())),
        np.full(int(within.sum()), -1),
    )


def _stolen(
    dice: np.random.Generator, genuine: _Uses, home: Ints, start: int, span: int
) -> list[_Uses]:
    """The uses by thieves: each stolen card in one of the ways, after a genuine use."""
    found = []
    first = np.flatnonzero(genuine.at < start + max(span - _HOUR, span // 4))
    count = min(max(3, int(len(home) * _STOLEN)), len(first))
    for number, use in enumerate(dice.permutation(first)[:count]):
        scenario = SCENARIOS[number % len(SCENARIOS)]
        city = int(genuine.city[use])
        at, cents, where = _WAYS[scenario](dice, int(genuine.at[use]), city)
        merchants = np.full(len(at), dice.integers(_MERCHANTS))
        if scenario != "card testing":
            merchants = dice.integers(_MERCHANTS, size=len(at))
        card, incident = np.full(len(at), genuine.card[use]), np.full(len(at), number)
        found.append(_Uses(card, at, cents, where, merchants, incident))
    return found


Way = Callable[[np.random.Generator, int, int], tuple[Ints, Ints, Ints]]


def _testing(dice: np.random.Generator, last: int, city: int) -> tuple[Ints, Ints, Ints]:
    """Card testing in an online shop: small amounts, every few seconds."""
    count = int(dice.integers(8, 25))
    begin = last + int(dice.uniform(3, 15) * _MINUTE)
    at = begin + np.cumsum(dice.uniform(2, 7, count) * SECOND).astype(np.int64)
    return at, dice.integers(50, 300, count), np.full(count, city)


def _spree(dice: np.random.Generator, last: int, city: int) -> tuple[Ints, Ints, Ints]:
    """A spending spree in the city of the theft, until somebody notices."""
    count = int(dice.integers(15, 40))
    begin = last + int(dice.uniform(3, 15) * _MINUTE)
    at = begin + np.cumsum(dice.uniform(90, 150, count) * SECOND).astype(np.int64)
    return at, dice.integers(90_000, 180_000, count), np.full(count, city)


def _clone(dice: np.random.Generator, last: int, city: int) -> tuple[Ints, Ints, Ints]:
    """A cloned card, used far away minutes after the card itself."""
    count = int(dice.integers(8, 20))
    begin = last + int(dice.uniform(0.5, 1.5) * _MINUTE)
    at = begin + np.cumsum(dice.uniform(100, 200, count) * SECOND).astype(np.int64)
    far = distance(*_CITIES[city], *_CITIES.T) > 1_000
    there = int(dice.choice(np.flatnonzero(far)))
    return at, dice.integers(10_000, 60_000, count), np.full(count, there)


_WAYS: dict[str, Way] = {"card testing": _testing, "spending spree": _spree, "cloned card": _clone}
SCENARIOS = tuple(_WAYS)


def _together(*parts: _Uses) -> _Uses:
    return _Uses(*(np.concatenate([vars(p)[name] for p in parts]) for name in vars(parts[0])))


def _chosen(uses: _Uses, order: Ints) -> _Uses:
    return _Uses(*(column[order] for column in vars(uses).values()))


def _traffic(
    uses: _Uses, home: Ints, usual: Floats, merchants: Floats, start: int, span: int
) -> Traffic:
    ids = [f"t{number:07}" for number in range(len(uses.at))]
    places = _CITIES[uses.city] + merchants[uses.city, uses.merchant]
    names = np.char.add(
        np.char.add(uses.city.astype(str), "-"), uses.merchant.astype(str)
    )  # of a city
    transactions = pa.table(
        {
            "transaction": pa.array(ids),
            "card": pa.array([_card(number) for number in uses.card.tolist()]),
            "amount": _money(uses.cents),
            "merchant": pa.array(names.tolist()),
            "lat": pa.array(places[:, 0].round(5)),
            "lon": pa.array(places[:, 1].round(5)),
            "at": pa.array(uses.at).cast(_MOMENT),
        }
    )
    profiles = pa.table(
        {
            "card": pa.array([_card(number) for number in range(len(home))]),
            "holder": pa.array([f"holder-{number}" for number in range(len(home))]),
            "usual": _money(usual.astype(np.int64)),
            "home_lat": pa.array(_CITIES[home][:, 0]),
            "home_lon": pa.array(_CITIES[home][:, 1]),
            "changed": pa.array(np.full(len(home), start)).cast(_MOMENT),
        }
    )
    truth = {
        ids[n]: Incident(number, SCENARIOS[number % len(SCENARIOS)], _card(int(uses.card[n])))
        for n, number in enumerate(uses.incident.tolist())
        if number >= 0
    }
    return Traffic(profiles, transactions, truth, start, span)


def _card(number: int) -> str:
    return f"card-{number:05}"


def _money(cents: Ints) -> pa.Array:
    return pa.array([Decimal(amount).scaleb(-2) for amount in cents.tolist()], _MONEY)


def distance(lat: Any, lon: Any, to_lat: Any, to_lon: Any) -> Any:
    """The great-circle distance, in kilometres."""
    lat, lon, to_lat, to_lon = (np.radians(degrees) for degrees in (lat, lon, to_lat, to_lon))
    north, east = np.sin((to_lat - lat) / 2) ** 2, np.sin((to_lon - lon) / 2) ** 2
    return 12_742 * np.arcsin(np.sqrt(np.minimum(1, north + np.cos(lat) * np.cos(to_lat) * east)))
