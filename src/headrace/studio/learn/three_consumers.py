"""One stream, three consumers: groups of a real log that read it at their own speed."""

from __future__ import annotations

from headrace.studio.learn.frame import Axis, Cell, Frame, Lane, Lanes, Line, Number, Plot, Pointer
from headrace.studio.learn.readers import (
    LATE,
    RECORDS,
    REPLAYED,
    SLOW,
    STEPS,
    Moment,
    Reading,
    history,
)
from headrace.studio.learn.simulation import Action, Prompt, Setup, Simulation, Slider

_BLOCK = 4
"""Records to a cell, so that the whole log fits a page."""
_APART = 4
"""Records of lag between two lines whose labels do not touch."""
_KINDS = {"analytics": "a", "search": "b", "warehouse": "c", "audit": "d"}


def frame(setup: Setup, step: int) -> Frame:
    """The log and its readers after so many seconds."""
    past = history(setup)[: step + 1]
    now = past[-1]
    return Frame(
        step,
        STEPS,
        _caption(now, step),
        _numbers(now),
        (_lanes(now), _plot(past)),
    )


def _numbers(now: Moment) -> tuple[Number, ...]:
    read = sum(reading.read for _, reading in now.groups)
    return (
        Number("records written", now.written),
        *(
            Number(
                f"{name} lag",
                reading.lag,
                kind="good" if not reading.lag else "bad" if not reading.running else "warn",
                hint="Records written and not yet read by this group",
            )
            for name, reading in now.groups
        ),
        Number("records read", read, hint="By all groups together"),
        Number("records kept", now.kept, hint="Those still in the log: reading removes none"),
    )


_SAID = {
    "join": f"{LATE} has joined. It starts with the first record, not with the newest.",
    "pause": f"{SLOW} has stopped. The log keeps its position, and nobody else notices.",
    "resume": f"{SLOW} runs again, and continues where it was.",
    "replay": f"{REPLAYED} was set back to the first record, and reads everything again.",
}


def _caption(now: Moment, step: int) -> str:
    if step == 0:
        return "The log is empty, and three groups wait. Press play, or step forward."
    if now.done:
        return " ".join(_SAID[action] for action in now.done)
    name, most = max(now.groups, key=lambda each: each[1].lag)
    wrote = f"{now.written} records are written."
    if now.written == RECORDS:
        wrote = f"The producer is done: {now.written} records."
    if not most.lag:
        return f"{wrote} Every group has read everything."
    waiting = "record waits" if most.lag == 1 else "records wait"
    return f"{wrote} {most.lag} {waiting} for {name}, and nobody waits for it."


def _lanes(now: Moment) -> Lanes:
    read = ", ".join(f"{name} is at {reading.position}" for name, reading in now.groups)
    return Lanes(
        f"The log, {_BLOCK} records to a cell, and how far each group has read",
        f"{now.written} records are in the log; {read}",
        (
            Lane("log", tuple(_written(now, block) for block in range(RECORDS // _BLOCK))),
            *(_lane(now, name, reading) for name, reading in now.groups),
        ),
    )


def _written(now: Moment, block: int) -> Cell:
    start = block * _BLOCK
    there = min(_BLOCK, max(0, now.written - start))
    hint = f"{there} records from offset {start}"
    return Cell(str(start) if there else "", "now" if there else "muted", hint)


def _lane(now: Moment, name: str, reading: Reading) -> Lane:
    cells = []
    for block in range(RECORDS // _BLOCK):
        start = block * _BLOCK
        written = min(_BLOCK, max(0, now.written - start))
        read = min(written, max(0, reading.position - start))
        waiting = written - read
        kind = "muted" if not written else "warn" if waiting else "good"
        text = "" if not written else str(waiting) if waiting else "✓"
        cells.append(Cell(text, kind, f"{read} read, {waiting} waiting"))
    pointer = Pointer(reading.position // _BLOCK, str(reading.position), _KINDS[name])
    note = f"{reading.lag} behind" if reading.running else f"down, {reading.lag} behind"
    return Lane(name, tuple(cells), (pointer,), note=note)


def _plot(past: tuple[Moment, ...]) -> Plot:
    labels = _labels(past[-1])
    lines = []
    for name, _ in past[-1].groups:
        points = tuple(
            (float(step), float(reading.lag))
            for step, moment in enumerate(past)
            if (reading := moment.of(name)) is not None
        )
        lines.append(Line(points, _KINDS[name], labels.get(name, "")))
    lags = ", ".join(f"{name} {reading.lag}" for name, reading in past[-1].groups)
    return Plot(
        "Lag of each group",
        f"Records that wait for each group after {len(past) - 1} seconds: {lags}",
        Axis("seconds", 0, STEPS),
        Axis("lag (records)", 0, RECORDS),
        lines=tuple(lines),
    )


def _labels(now: Moment) -> dict[str, str]:
    """Labels of lines. Lines that end at about the same lag share that of the first."""
    labels: dict[str, str] = {}
    at: dict[str, int] = {}
    for name, reading in sorted(now.groups, key=lambda each: each[1].lag):
        near = next((other for other, lag in at.items() if reading.lag - lag < _APART), None)
        if near is None:
            at[name], labels[name] = reading.lag, name
        else:
            labels[near] += f", {name}"
    return labels


SIMULATION = Simulation(
    name="three-consumers",
    title="One stream, three consumers",
    idea="A log keeps what was written, and each consumer group keeps only its position. So groups "
    "read at their own speed, stop, join late and read again, and no one slows another down.",
    settings=(
        Slider("analytics", "Analytics", 0.2, 5, 3, 0.2, "records/s"),
        Slider("search", "Search", 0.2, 5, 1, 0.2, "records/s"),
        Slider("warehouse", "Warehouse", 0.2, 5, 0.4, 0.2, "records/s"),
        Slider("audit", "Audit", 0.2, 5, 2, 0.2, "records/s", "The one that joins late"),
    ),
    frame=frame,
    steps=lambda setup: STEPS,
    prompts=(
        Prompt("Run to the end: the slow one is behind, the others never waited.", STEPS),
        Prompt("Join late: the newcomer reads from the first record.", 45, {}, ((30, "join"),)),
        Prompt(
            "Stop the warehouse for 30 s, and start it again: nothing is lost.",
            STEPS,
            {"warehouse": 2},
            ((10, "pause"), (40, "resume")),
        ),
        Prompt(
            "Fix a bug in search: set it back, and replay.", 50, {"search": 3}, ((40, "replay"),)
        ),
    ),
    look_for=(
        "The lag of one group never bends the line of another.",
        "A lag that grows by the second means that a group is too slow for good. It needs a faster "
        "program, or more members and partitions.",
        "After a replay a group has read more records than there are. The log deleted none.",
    ),
    question="The warehouse is down for a night. What do the producer and the other groups have to "
    "do about it?",
    answer="Nothing. The producer knows no reader, and the log keeps the position of the group. In "
    "the morning it reads on from there. The one limit is retention: if the log has deleted what "
    "a group has not read, headrace stops it with an error instead of skipping in silence.",
    concept="concepts/log-and-queue.md",
    actions=(
        Action("join", "Audit joins", "A fourth group starts to read"),
        Action("pause", "Stop the warehouse", "The slow consumer closes"),
        Action("resume", "Start it again", "It continues at the position that the log has"),
        Action("replay", "Replay search", "Set the group back to the first record"),
    ),
    start=30,
)
