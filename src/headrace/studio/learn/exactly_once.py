"""Exactly once: a crash between any two steps of a batch, and what three guarantees make of it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache

from headrace.operators.public import App
from headrace.studio.learn.frame import Cell, Frame, Grid, Lane, Lanes, Number, Pointer
from headrace.studio.learn.simulation import Action, Choice, Prompt, Setup, Simulation, Slider
from headrace.studio.learn.stage import Arrival, moment, recorded
from headrace.studio.learn.workers import GUARANTEES, STEPS, Guarantee, Seen, worked

EVENTS = 12


@lru_cache(maxsize=64)
def payments(seed: int) -> tuple[int, ...]:
    """The amounts of payments, as a log has them."""
    rng = random.Random(seed)
    schema = "id bigint, euros bigint, at timestamp"
    source = App("payments").topic("payments", schema=schema, event_time="at")
    rows = [
        {"id": number, "euros": rng.randrange(1, 20) * 10, "at": moment(number)}
        for number in range(EVENTS)
    ]
    found = recorded([Arrival(number, source, (row,)) for number, row in enumerate(rows)])
    return tuple(event.row["euros"] for (event,) in found)


@lru_cache(maxsize=64)
def _history(
    seed: int, size: int, upsert: bool, crashes: frozenset[int]
) -> tuple[tuple[Seen, ...], ...]:
    return worked(payments(seed), size=size, upsert=upsert, crashes=crashes)


def history(setup: Setup) -> tuple[tuple[Seen, ...], ...]:
    """The three workers after each step, from the start on."""
    crashes = frozenset(at for at, _ in setup.actions)
    return _history(setup.seed, setup.whole("size"), setup.text("sink") == "upsert", crashes)


def frame(setup: Setup, step: int) -> Frame:
    """The three workers after so many steps."""
    before = history(setup)
    now, euros = before[step], payments(setup.seed)
    crashed = step > 0 and bool(setup.actions_at(step - 1))
    return Frame(
        step,
        len(before) - 1,
        _caption(before, step, crashed),
        _numbers(now, euros),
        (_lanes(now, euros), _batch(now, crashed), _stores(now, euros)),
    )


def _numbers(now: Sequence[Seen], euros: Sequence[int]) -> tuple[Number, ...]:
    found = [Number("events", EVENTS), Number("in the log", sum(euros), "€")]
    for guarantee, seen in zip(GUARANTEES, now, strict=True):
        lost, twice = len(seen.lost), seen.twice
        found += [
            Number(
                f"{guarantee.name}: lost",
                lost,
                kind="bad" if lost else "",
                hint="Before the stored position, and not in the results",
            ),
            Number(
                f"{guarantee.name}: twice",
                twice,
                kind="bad" if twice else "",
                hint="Rows of the results that are there already",
            ),
        ]
    return tuple(found)


def _caption(before: Sequence[Sequence[Seen]], step: int, crashed: bool) -> str:
    now = before[step]
    if step == 0:
        return (
            "Three workers are about to read the same log. Step forward, and crash them anywhere."
        )
    if crashed:
        was = before[step - 1]
        open_ = next(s for g, s in zip(GUARANTEES, was, strict=True) if g.transaction)
        rolled = " SQLite rolls back the open transaction." if open_.pending else ""
        gone = [
            f"{guarantee.name} loses {len(seen.lost) - len(earlier.lost)}"
            for guarantee, seen, earlier in zip(GUARANTEES, now, was, strict=True)
            if len(seen.lost) > len(earlier.lost)
        ]
        again = [
            f"{guarantee.name} will store {_again(seen)} again"
            for guarantee, seen in zip(GUARANTEES, now, strict=True)
            if _again(seen)
        ]
        told = ", and ".join([*gone, *again]) or "nothing was stored by halves"
        return f"All three crash, and start again from their stored position: {told}.{rolled}"
    if all(seen.idle for seen in now):
        return "The log is read to its end. Compare the totals."
    done = [
        f"{guarantee.name}: "
        + ("at the end" if seen.idle else guarantee.steps[seen.phase - 1].does)
        for guarantee, seen in zip(GUARANTEES, now, strict=True)
    ]
    return f"Done: {'; '.join(done)}."


def _again(seen: Seen) -> int:
    """Events with results that a restart reads again."""
    return sum(1 for count in seen.counts[seen.position :] if count)


def _lanes(now: Sequence[Seen], euros: Sequence[int]) -> Lanes:
    return Lanes(
        "Results: how often each event counts, and the stored position",
        "; ".join(
            f"{guarantee.name}: {len(seen.lost)} lost, {seen.twice} twice"
            for guarantee, seen in zip(GUARANTEES, now, strict=True)
        ),
        tuple(
            Lane(
                guarantee.name,
                tuple(_cell(seen, number, euros[number]) for number in range(len(euros))),
                (Pointer(seen.position, "position", "now"),),
                note=_note(seen),
            )
            for guarantee, seen in zip(GUARANTEES, now, strict=True)
        ),
    )


def _note(seen: Seen) -> str:
    if seen.idle:
        return "done"
    if not seen.batch:
        return "about to read"
    return (
        f"works on {seen.batch[0]} to {seen.batch[-1]}"
        if len(seen.batch) > 1
        else (f"works on {seen.batch[0]}")
    )


def _cell(seen: Seen, number: int, euros: int) -> Cell:
    count = seen.counts[number]
    told = f"event {number}, {euros} €"
    if number in seen.pending:
        return Cell("…", "now", f"{told}: in the open transaction")
    if count > 1:
        return Cell(f"{count}×", "bad", f"{told}: counted {count} times")
    if count == 1:
        return Cell("1×", "good", f"{told}: counted once")
    if number in seen.lost:
        return Cell("0×", "bad", f"{told}: lost")
    if number in seen.batch:
        return Cell("…", "warn" if number < seen.position else "a", f"{told}: in memory")
    return Cell("", "muted", f"{told}: not read yet")


def _batch(now: Sequence[Seen], crashed: bool) -> Grid:
    phases = {seen.phase for seen in now if not seen.idle}
    done = 0 if crashed or not phases else max(phases)
    return Grid(
        "A batch, step by step (the mark is at the last step done)",
        ("", *(guarantee.name for guarantee in GUARANTEES), "headrace's crash point after it"),
        tuple(
            (
                "▶" if place + 1 == done else str(place + 1),
                *(guarantee.steps[place].does for guarantee in GUARANTEES),
                GUARANTEES[-1].steps[place].point,
            )
            for place in range(STEPS)
        ),
        tuple("good" if place + 1 == done else "" for place in range(STEPS)),
    )


def _stores(now: Sequence[Seen], euros: Sequence[int]) -> Grid:
    def row(guarantee: Guarantee, seen: Seen) -> tuple[str, ...]:
        total = sum(count * each for count, each in zip(seen.counts, euros, strict=True))
        return (
            guarantee.name,
            f"{seen.position} of {len(euros)}",
            str(sum(seen.counts)),
            f"{total:,} €",
            f"{sum(euros):,} €",
        )

    rows = tuple(row(g, s) for g, s in zip(GUARANTEES, now, strict=True))
    kinds = tuple("bad" if seen.lost or seen.twice else "" for seen in now)
    return Grid(
        "What each store holds",
        ("guarantee", "position", "rows", "total", "in the log"),
        rows,
        kinds,
    )


SIMULATION = Simulation(
    name="exactly-once",
    title="Exactly once",
    idea="A worker stores results and its position in the log. If it can crash between the two, it "
    "loses events or counts them twice. One transaction for both leaves no place between them.",
    settings=(
        Slider("size", "Events in a batch", 1, 6, 3),
        Choice(
            "sink",
            "Results are",
            (("append", "appended"), ("upsert", "upserted by event id")),
            "append",
            "An upsert replaces the row of the same event",
        ),
    ),
    frame=frame,
    steps=lambda setup: len(history(setup)) - 1,
    prompts=(
        Prompt("Crash in the middle of the second batch.", 9, {}, ((8, "crash"),)),
        Prompt("Let it run to the end after that crash.", 99, {}, ((8, "crash"),)),
        Prompt("Crash before anything of the batch is stored.", 99, {}, ((6, "crash"),)),
        Prompt("Upsert: counting twice does no harm.", 99, {"sink": "upsert"}, ((8, "crash"),)),
    ),
    look_for=(
        "At most once stores the position first. A crash after it loses the batch for good.",
        "At least once stores the results first. A crash after it brings them again.",
        "Exactly once reads the batch again too: it is the effect that happens once.",
    ),
    question="Upserted results make at least once as good as exactly once here. When do they not?",
    answer="When a result is not the same the second time: a running total, a window that has "
    "moved on, a row without an id of its own. And between the crash and the replay, readers see "
    "results of a batch whose other results are missing.",
    concept="concepts/exactly-once.md",
    actions=(Action("crash", "Crash now", "All three workers die at this step"),),
    model="The three workers are a few lines of Python, and their events come from a log of "
    "headrace. Their stores are SQLite files with transactions, which a crash leaves open. "
    "headrace's own sink stores views, outputs and position of a batch in one SQLite transaction, "
    "too. The table of a batch names the points at which its tests kill it.",
)
