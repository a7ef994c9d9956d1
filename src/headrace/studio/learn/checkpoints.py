"""Checkpoints: barriers through operators, a failure, and what has to be done again."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from headrace.studio.learn.frame import (
    Arrow,
    Axis,
    Box,
    Cell,
    Flow,
    Frame,
    Grid,
    Line,
    Number,
    Plot,
    Point,
)
from headrace.studio.learn.models.barriers import BARRIER, RESTORE, Event, Job, Moment, run
from headrace.studio.learn.models.recovery import INTERVALS, replayed, sunk, trade_off
from headrace.studio.learn.simulation import Action, Choice, Prompt, Setup, Simulation, Slider

EVENTS = 36
"""Events of the first source; the second has fewer if its operator is slow."""
_ROWS = 6
_SKEW = 1
"""The order to take a checkpoint does not reach all sources at once."""
_FAILURE = ((23, "fail"),)


@lru_cache(maxsize=64)
def _ticks(seed: int, slow: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ticks from which on the events of each source are there."""
    rng = random.Random(seed)

    def ticks(number: int, gap: float) -> tuple[int, ...]:
        at, found = 0.0, []
        for _ in range(number):
            at += rng.uniform(0.4, 1.6) * gap
            found.append(round(at))
        return tuple(found)

    return ticks(EVENTS, 1), ticks(EVENTS // slow, 0.7 * slow)


def job(setup: Setup) -> Job:
    """The job of a setup."""
    slow = setup.whole("slow")
    aligned = setup.text("barriers") == "aligned"
    return Job(*_ticks(setup.seed, slow), setup.whole("interval"), aligned, slow, _SKEW)


_run = lru_cache(maxsize=128)(run)


def history(setup: Setup) -> tuple[Moment, ...]:
    """The job after each tick, with the failures of the setup."""
    return _run(job(setup), frozenset(at for at, _ in setup.actions))


def frame(setup: Setup, step: int) -> Frame:
    """The job after so many ticks."""
    before = history(setup)
    return Frame(
        step,
        len(before) - 1,
        _caption(before, step, setup),
        _numbers(before[: step + 1], setup),
        (_flow(before[step], setup), _grid(before[step]), _plot(setup)),
    )


def _numbers(before: Sequence[Moment], setup: Setup) -> tuple[Number, ...]:
    now = before[-1]
    failures = sorted({at for at, _ in setup.actions if at < now.tick})
    again, ticks = replayed(before, failures)
    rows = sunk(now, setup.text("sink") == "idempotent")
    twice = rows - len(set(now.sink))
    return (
        Number(
            "taken in", len(now.states["join"]), hint="Events in the state of the last operator"
        ),
        Number("checkpoints", len(now.checkpoints)),
        Number("stalled", now.stalled, "ticks", hint="Saving state, or waiting for a barrier"),
        Number("saved on the way", now.kept, "events", hint="Unaligned checkpoints store them"),
        Number("done again", again, "events", kind="warn" if again else ""),
        Number(
            "recovery",
            ticks,
            "ticks",
            kind="warn" if ticks else "",
            hint="Until it is where it was",
        ),
        Number("rows in the sink", rows),
        Number("twice in the sink", twice, kind="bad" if twice else ""),
    )


def _caption(before: Sequence[Moment], step: int, setup: Setup) -> str:
    if step == 0:
        return "Two sources, three operators, a sink. Play, and watch for the barriers."
    was, now = before[step - 1 : step + 1]
    if setup.actions_at(step - 1):
        saved = f"checkpoint {now.checkpoints[-1].number}" if now.checkpoints else "the beginning"
        return f"Everything but the sink is lost. The job restarts from {saved}."
    if now.down or was.down:
        return f"The job restarts: {now.down} of {RESTORE} ticks to go."
    if step == len(before) - 1:
        return "Every event is in the state of the last operator, once. Look at the sink."
    if len(now.checkpoints) > len(was.checkpoints):
        return f"Checkpoint {now.checkpoints[-1].number} is complete: all three states are saved."
    if now.pending is not None and was.pending is None:
        return f"Checkpoint {now.pending} begins: each source sends a barrier after its events."
    if now.blocked:
        (channel,) = now.blocked
        return f"join has the barrier of {channel.partition('→')[0]}, and waits for the other one."
    if now.saved - was.saved:
        return f"{' and '.join(sorted(now.saved - was.saved))} saved its state, and goes on."
    return "Events flow. The state of an operator is the events that it has taken in."


def _flow(now: Moment, setup: Setup) -> Flow:
    def box(name: str, column: float, row: float) -> Box:
        kind = "bad" if now.down else "good" if name in now.saved else ""
        saved = now.checkpoints[-1].states[name] if now.checkpoints else ()
        lines = (f"{len(now.states[name])} events", f"checkpoint has {len(saved)}")
        return Box(name, name, column, row, lines, kind)

    def source(name: str, row: float) -> Box:
        saved = now.checkpoints[-1].offsets[name] if now.checkpoints else 0
        lines = (f"next is {now.offsets[name]}", f"checkpoint has {saved}")
        return Box(name, f"source {name}", 0, row, lines, "bad" if now.down else "")

    idempotent = setup.text("sink") == "idempotent"
    rows = sunk(now, idempotent)
    twice = rows - len(set(now.sink))
    sink = Box(
        "sink",
        "sink",
        4.1,
        0.5,
        (f"{rows} rows", f"{twice} twice"),
        "bad" if twice else "",
    )

    def arrow(start: str, end: str) -> Arrow:
        channel = f"{start}→{end}"
        # The first to be taken in is the nearest to the operator.
        tokens = tuple(_token(event) for event in reversed(now.channels[channel]))
        return Arrow(start, end, kind="warn" if channel in now.blocked else "", tokens=tokens)

    return Flow(
        "Barriers between events (▮ is a barrier)",
        f"left has {len(now.states['left'])} events, right {len(now.states['right'])}, join "
        f"{len(now.states['join'])}, and the sink {rows} rows",
        (
            source("a", 0),
            source("b", 1),
            box("left", 1.5, 0),
            box("right", 1.5, 1),
            box("join", 3, 0.5),
            sink,
        ),
        (
            arrow("a", "left"),
            arrow("b", "right"),
            arrow("left", "join"),
            arrow("right", "join"),
            Arrow("join", "sink"),
        ),
    )


def _token(event: Event) -> Cell:
    if event == BARRIER:
        return Cell("▮", "warn", "barrier")
    source, number = event
    return Cell(str(number), source, f"event {number} of source {source}")


def _grid(now: Moment) -> Grid:
    newest = now.checkpoints[::-1][:_ROWS]
    return Grid(
        "Complete checkpoints, the newest first",
        ("checkpoint", "source a", "source b", "left", "right", "join", "on the way"),
        tuple(
            (
                str(saved.number),
                str(saved.offsets["a"]),
                str(saved.offsets["b"]),
                *(f"{len(saved.states[name])} events" for name in ("left", "right", "join")),
                str(sum(map(len, saved.in_flight.values()))),
            )
            for saved in newest
        ),
        empty="No checkpoint is complete yet: a failure would start from the beginning.",
    )


def _plot(setup: Setup) -> Plot:
    found = trade_off(replace(job(setup), interval=INTERVALS[0]))
    here = setup.whole("interval")
    overhead = tuple((float(at), float(stalled)) for at, stalled, _ in found)
    stake = tuple((float(at), lost) for at, _, lost in found)
    most = max(y for _, y in (*overhead, *stake))
    return Plot(
        "Overhead against recovery, for each interval",
        f"At an interval of {here} ticks: {dict(overhead)[here]:g} ticks stalled in a whole run, "
        f"{dict(stake)[here]:g} events to do again after a failure, on average",
        Axis("checkpoint interval (ticks)", 0, INTERVALS[-1] + 1),
        Axis("ticks or events", 0, most + 2),
        lines=(
            Line(overhead, "b", "stalled (ticks)"),
            Line(stake, "d", "done again (events)"),
        ),
        points=(
            Point(here, dict(overhead)[here], "b", "this interval"),
            Point(here, dict(stake)[here], "d", "this interval"),
        ),
        height=260,
    )


SIMULATION = Simulation(
    name="checkpoints",
    title="Checkpoints and barriers",
    idea="A barrier flows with the events and cuts all streams at one place. Each operator saves "
    "its state as the barrier passes, while events go on flowing.",
    settings=(
        Slider("interval", "Checkpoint interval", INTERVALS[0], INTERVALS[-1], 8, 1, "ticks"),
        Choice(
            "barriers",
            "Barriers are",
            (
                ("aligned", "aligned (join waits)"),
                ("unaligned", "unaligned (overtake)"),
            ),
            "aligned",
        ),
        Choice(
            "sink",
            "The sink",
            (("append", "appends rows"), ("idempotent", "is idempotent")),
            "append",
        ),
        Slider("slow", "Slowness of right", 1, 4, 3, 1, "ticks", "Ticks for an event"),
    ),
    frame=frame,
    steps=lambda setup: len(history(setup)) - 1,
    prompts=(
        Prompt("A failure: the states come back, and the sink has rows twice.", 99, {}, _FAILURE),
        Prompt("The same with an idempotent sink.", 99, {"sink": "idempotent"}, _FAILURE),
        Prompt(
            "A barrier every 2 ticks that overtakes: little is done again, and work stalls.",
            99,
            {"barriers": "unaligned", "interval": 2},
            _FAILURE,
        ),
        Prompt("See join wait for the other barrier.", 22),
    ),
    look_for=(
        "An aligned join stops reading the faster input until the slower barrier is there.",
        "Unaligned barriers do not wait. The events that they overtake are saved with the states.",
        "After a failure the states are right again. The sink is outside of the checkpoint.",
    ),
    question="Why must an aligned operator not read behind the first barrier?",
    answer="Its state would have events after the cut of one input, while the other input is not "
    "at the cut yet. After a restore the sources send those events again, and the state would "
    "count them twice.",
    concept="concepts/exactly-once.md",
    actions=(Action("fail", "Fail now", "All operators lose their state"),),
    model="headrace has no barriers. This is a reference model in plain Python, and tests hold it "
    "to its laws. A batch of headrace is the cut: Spark saves its state between two batches, and "
    "the sink stores results and position in one transaction.",
)
