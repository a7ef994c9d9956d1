"""Batch against stream: one rule finds the same stolen cards, and the batch finds them late."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache

from headrace.clock import to_micros
from headrace.operators.alerts.meaning import Judge, Seen, Verdict, flagged
from headrace.operators.public import Alerts, App, alerts, rule
from headrace.oracle.events import Event
from headrace.pipeline.stream import Source
from headrace.studio.learn.frame import Axis, Band, Frame, Grid, Line, Number, Plot, Point
from headrace.studio.learn.simulation import Prompt, Setup, Simulation, Slider
from headrace.studio.learn.stage import Arrival, clock_text, moment, recorded, seconds

SPAN = 120
"""Minutes."""
STEPS = 60
_STEP = SPAN // STEPS
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


def frame(setup: Setup, step: int) -> Frame:
    """Both systems after so many steps of two minutes."""
    minute = step * _STEP
    batch, stream = sides(setup, minute)
    every = setup.whole("every")
    runs = [float(end) for end in range(every, SPAN + 1, every)]
    return Frame(
        step,
        STEPS,
        _caption(batch, stream, minute, every),
        _numbers(batch, stream, minute, every),
        (
            _plot(batch, f"Batch: the rule runs every {every} minutes", minute, runs),
            _plot(stream, "Stream: the rule sees each payment as it arrives", minute, []),
            _cost(setup, batch, stream, minute),
            _grid(batch, stream),
        ),
    )


def _caption(batch: Side, stream: Side, minute: int, every: int) -> str:
    if minute == 0:
        return "Nobody has paid yet. Press play, or step forward."
    now = clock_text(minute * 60)[:5]
    if minute % every == 0:
        new = sorted(card for card, at in batch.blocked.items() if at == minute * 60)
        what = f"and blocks {_cards(new)}" if new else "and finds nothing new"
        return f"{now}: the batch job runs, {what}."
    waiting = sorted(stream.blocked.keys() - batch.blocked.keys())
    if waiting:
        left = every - minute % every
        return (
            f"{now}: the stream has blocked {_cards(waiting)}. The batch job runs in {left} "
            "minutes, and until then the thief goes on."
        )
    left = every - minute % every
    return f"{now}: both have blocked the same cards. The batch job looks again in {left} minutes."


def _cards(cards: Sequence[int]) -> str:
    return ("card " if len(cards) == 1 else "cards ") + ", ".join(map(str, cards))


def _numbers(batch: Side, stream: Side, minute: int, every: int) -> tuple[Number, ...]:
    tried = [payment for payment in batch.payments if payment.by_thief]
    honest = {card for card in stream.blocked if card not in {p.card for p in tried}}
    return (
        Number("tried by thieves", len(tried), hint="Payments"),
        Number("paid with batch", len(batch.paid), kind="bad" * bool(batch.paid)),
        Number("paid with stream", len(stream.paid), kind="warn" * bool(stream.paid)),
        Number("lost with batch", batch.lost, "USD", "bad" * bool(batch.lost)),
        Number("lost with stream", stream.lost, "USD", "warn" * bool(stream.lost)),
        Number("batch runs", minute // every),
        Number(
            "false alarms",
            len(honest),
            kind="warn" * bool(honest),
            hint="Honest cards that the stream has blocked. The batch job will block them too",
        ),
    )


def _plot(side: Side, title: str, minute: int, runs: Sequence[float]) -> Plot:
    height = CARDS + 1
    bands = tuple(
        Band(at / 60, minute, "good", low=card - 0.45, high=card + 0.45)
        for card, at in sorted(side.blocked.items())
        if at < minute * 60
    )
    lines = tuple(Line(((run, 0), (run, height)), "muted") for run in runs)
    return Plot(
        title,
        f"{len(side.payments)} payments by minute and card. {len(side.paid)} of thieves were paid, "
        f"{side.lost} USD. Blocked: {_cards(sorted(side.blocked)) if side.blocked else 'no card'}",
        Axis("minutes", 0, SPAN),
        Axis("card", 0, height),
        bands,
        lines,
        tuple(_points(side)),
        height=270,
    )


def _points(side: Side) -> Iterator[Point]:
    for payment in side.payments:
        declined = side.declined(payment)
        kind = "warn" if declined else "bad" if payment.by_thief else "a"
        who = "a thief" if payment.by_thief else "the owner"
        fate = "declined" if declined else "paid"
        hint = f"card {payment.card}, {payment.amount} USD, {who}: {fate}"
        yield Point(payment.minute, payment.card, kind, hint)


def _cost(setup: Setup, batch: Side, stream: Side, minute: int) -> Plot:
    all_of_it = [p for p in traffic(setup.seed, setup.whole("stolen")).payments if p.by_thief]
    most = sum(payment.amount for payment in all_of_it) / 1000
    tried = [payment for payment in batch.payments if payment.by_thief]
    # Labels of lines that lie on each other would too.
    apart, lost = len(tried) > len(batch.paid), len(batch.paid) > len(stream.paid)
    return Plot(
        "What it costs",
        f"Lost so far: {batch.lost} USD with batch, {stream.lost} USD with stream",
        Axis("minutes", 0, SPAN),
        Axis("thousand USD", 0, round(most * 1.1)),
        lines=(
            Line(_stairs(tried, minute), "muted", "tried" if apart else ""),
            Line(_stairs(batch.paid, minute), "bad", "batch" if lost else ""),
            Line(_stairs(stream.paid, minute), "good", "stream" if stream.paid else ""),
        ),
        height=240,
    )


def _stairs(payments: Sequence[Payment], minute: int) -> tuple[tuple[float, float], ...]:
    """The sum of payments over time, in thousands, up to a minute."""
    places: list[tuple[float, float]] = [(0.0, 0.0)]
    total = 0
    for payment in payments:
        places.append((payment.minute, total / 1000))
        total += payment.amount
        places.append((payment.minute, total / 1000))
    return (*places, (float(minute), total / 1000))


def _grid(batch: Side, stream: Side) -> Grid:
    first: dict[int, int] = {}
    for payment in batch.payments:
        if payment.by_thief:
            first.setdefault(payment.card, payment.second)
    rows = []
    for card, second in first.items():
        cells = [f"{card}", clock_text(second)]
        for side in (stream, batch):
            at = side.blocked.get(card)
            lost = sum(payment.amount for payment in side.paid if payment.card == card)
            cells += ["not yet" if at is None else clock_text(at), f"{lost:,} USD"]
        rows.append(tuple(cells))
    return Grid(
        "Stolen cards",
        ("card", "first used", "stream blocks", "lost", "batch blocks", "lost by then"),
        tuple(rows),
        empty="No card is stolen yet.",
    )


SIMULATION = Simulation(
    name="batch-or-stream",
    title="Batch against stream",
    idea="A batch job and a stream can evaluate the same rule over the same events. The batch job "
    "is not less exact. It is late, and between two runs nobody watches.",
    settings=(
        Slider("every", "Batch every", 2, 60, 30, 2, "min"),
        Slider("stolen", "Stolen cards", 1, 6, 3),
        Slider("uses", "Uses in 5 min for an alert", 2, 6, 3),
    ),
    frame=frame,
    steps=lambda setup: STEPS,
    prompts=(
        Prompt("A run every 30 minutes: compare the two losses.", STEPS),
        Prompt("Once an hour: the thieves are done before it runs.", STEPS, {"every": 60}),
        Prompt("Every two minutes: almost a stream, by 60 runs.", STEPS, {"every": 2}),
        Prompt("A stricter rule: less is lost, and honest cards are blocked.", STEPS, {"uses": 2}),
    ),
    look_for=(
        "A cross is a thief's payment that went through, a diamond one that was declined, and a "
        "dot an honest one. A dashed line is a run of the batch job.",
        "At the end both have blocked the same cards. Only the time differs, and time is money.",
        "The stream loses something too: a rule that waits for three uses lets three through.",
    ),
    question="A batch job every few seconds loses as little as the stream. Why is it not the same?",
    answer="Each run starts, finds out what is new, and must look back over the end of the run "
    "before, or it misses a burst that two runs share. To be cheap it has to keep that past, and "
    "to be right it has to store it together with its position. That is a stream processor. "
    "Micro-batches are exactly this, and Spark and headrace run most steps that way.",
    concept="concepts/batch-and-stream.md",
    start=14,
)
