"""Batch against stream: its numbers against a count in plain Python over the payments."""

from __future__ import annotations

import math

import pytest

from headrace.studio.learn.batch_or_stream import SIMULATION, STEPS
from headrace.studio.learn.catalog import simulate
from headrace.studio.learn.frame import Plot
from headrace.studio.learn.fraud import SPAN, Payment, sides, traffic
from headrace.studio.learn.simulation import Setup

FIVE_MINUTES = 300


def setup(**given: int) -> Setup:
    return SIMULATION.setup({name: str(value) for name, value in given.items()})


def used_too_often(payments: tuple[Payment, ...], uses: int) -> dict[int, int]:
    """The second of each card's first payment that is one of so many within five minutes."""
    found: dict[int, int] = {}
    for place, payment in enumerate(payments):
        recent = [
            other
            for other in payments[: place + 1]
            if other.card == payment.card and other.second >= payment.second - FIVE_MINUTES
        ]
        if len(recent) >= uses:
            found.setdefault(payment.card, payment.second)
    return found


def through(payments: tuple[Payment, ...], blocked: dict[int, int]) -> list[Payment]:
    return [p for p in payments if p.by_thief and p.second <= blocked.get(p.card, math.inf)]


@pytest.mark.parametrize(("seed", "every", "uses"), [(1, 30, 3), (1, 2, 3), (7, 60, 2), (7, 14, 6)])
def test_losses_are_those_of_a_plain_count(seed: int, every: int, uses: int) -> None:
    chosen = setup(seed=seed, every=every, uses=uses)
    payments = traffic(seed, chosen.whole("stolen")).payments
    at_once = used_too_often(payments, uses)
    run = every * 60
    at_a_run = {card: math.ceil(second / run) * run for card, second in at_once.items()}
    for step in (0, 7, 20, 33, 45, STEPS):
        seen = tuple(payment for payment in payments if payment.second <= step * 120)
        frame = SIMULATION.frame(chosen, step)
        batch, stream = through(seen, at_a_run), through(seen, at_once)
        assert frame.number("fraud tried") == sum(payment.by_thief for payment in seen)
        assert frame.number("paid with batch") == len(batch)
        assert frame.number("paid with stream") == len(stream)
        assert frame.number("lost with batch") == sum(payment.amount for payment in batch)
        assert frame.number("lost with stream") == sum(payment.amount for payment in stream)
        assert frame.number("batch runs") == len(range(every, step * 2 + 1, every))


def test_each_payment_that_went_through_is_a_cross() -> None:
    frame = SIMULATION.frame(setup(), STEPS)
    for panel, name in zip(frame, ("paid with batch", "paid with stream"), strict=False):
        assert isinstance(panel, Plot)
        crosses = [point for point in panel.points if point.kind == "bad"]
        assert crosses
        assert len(crosses) == frame.number(name)


@pytest.mark.parametrize("seed", range(2))
def test_both_block_the_same_cards_in_the_end(seed: int) -> None:
    batch, stream = sides(setup(seed=seed), SPAN)
    assert batch.blocked.keys() == stream.blocked.keys()
    assert all(batch.blocked[card] >= at for card, at in stream.blocked.items())


@pytest.mark.parametrize("seed", range(2))
def test_a_batch_with_a_run_more_often_loses_no_more(seed: int) -> None:
    lost = [
        simulate("batch-or-stream", step=STEPS, seed=seed, every=every).number("lost with batch")
        for every in (60, 30, 10)
    ]
    assert lost == sorted(lost, reverse=True)
