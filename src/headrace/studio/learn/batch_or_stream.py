"""Batch against stream: one rule finds the same stolen cards, and the batch finds them late."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.studio.learn.frame import Axis, Band, Frame, Grid, Line, Number, Plot, Point
from headrace.studio.learn.fraud import CARDS, SPAN, Payment, Side, sides, traffic
from headrace.studio.learn.simulation import Prompt, Setup, Simulation, Slider
from headrace.studio.learn.stage import clock_text

STEPS = 60
_STEP = SPAN // STEPS


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
        Number("fraud tried", len(tried), hint="Payments"),
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
        ("card", "first used", "stream blocks", "lost", "batch blocks", "lost"),
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
