"""One stream, three consumers: groups of a real log that read it at their own speed."""

from __future__ import annotations

import contextlib
import math
import random
from dataclasses import dataclass
from functools import lru_cache

from headrace.clock import SECOND
from headrace.log import Consumer, Log
from headrace.log.position import EARLIEST
from headrace.studio.learn.frame import Axis, Cell, Frame, Lane, Lanes, Line, Number, Plot, Pointer
from headrace.studio.learn.simulation import Action, Prompt, Setup, Simulation, Slider
from headrace.studio.learn.stage import stage

RECORDS = 60
STEPS = 80
"""Seconds: the producer is done after about three quarters of them."""
FIRST = ("analytics", "search", "warehouse")
LATE = "audit"
SLOW, REPLAYED = "warehouse", "search"
_TOPIC = "orders"
_BLOCK = 4
"""Records to a cell, so that the whole log fits a page."""
_KINDS = {"analytics": "a", "search": "b", "warehouse": "c", "audit": "d"}


@dataclass(frozen=True)
class Reading:
    """A consumer group at a step, as the log has it."""

    position: int
    lag: int
    read: int
    """The records that it was given so far: more than its position once it has replayed."""
    running: bool


@dataclass(frozen=True)
class Moment:
    """The log and its groups after a step."""

    written: int
    kept: int
    groups: tuple[tuple[str, Reading], ...]
    done: tuple[str, ...] = ()
    """The actions of the step that changed something."""

    def of(self, name: str) -> Reading | None:
        return dict(self.groups).get(name)


class _Readers:
    """The consumers of one log, and what each was given."""

    def __init__(self, log: Log) -> None:
        self._log = log
        # Their offsets are written like records of the page's producer: not synced, and quick.
        self._commits = log.producer(acks="written")
        self._open: dict[str, Consumer] = {}
        self.read: dict[str, int] = {}

    def start(self, name: str) -> bool:
        """Start a consumer. Its group continues where it was, or at the first record."""
        if name in self._open:
            return False
        self._open[name] = self._log.consumer(_TOPIC, group=name, commit="manual")
        self.read.setdefault(name, 0)
        return True

    def stop(self, name: str) -> bool:
        """Stop a consumer. The log keeps its group's position."""
        consumer = self._open.pop(name, None)
        if consumer is not None:
            consumer.close()
        return consumer is not None

    def replay(self, name: str) -> bool:
        """Set the position of a group back to the first record."""
        running = self.stop(name)
        self._log.reset_group(name, _TOPIC, EARLIEST)
        return self.start(name) if running else True

    def poll(self, name: str, records: int) -> None:
        consumer = self._open.get(name)
        if consumer is None or not records:
            return
        if found := consumer.poll(max_records=records):
            self.read[name] += len(found)
            with self._commits.transaction() as transaction:
                transaction.commit_offsets(consumer)

    def seen(self) -> tuple[tuple[str, Reading], ...]:
        return tuple((name, self._reading(name)) for name in self.read)

    def _reading(self, name: str) -> Reading:
        (lag,) = self._log.group(name).lags
        return Reading(lag.committed or 0, lag.records, self.read[name], name in self._open)

    def close(self) -> None:
        for name in list(self._open):
            self.stop(name)
        self._commits.close()


@lru_cache(maxsize=32)
def history(setup: Setup) -> tuple[Moment, ...]:
    """The log and its groups after each step, from the beginning."""
    with stage() as (log, clock), contextlib.closing(_Readers(log)) as readers:
        log.create_topic(_TOPIC)
        for name in FIRST:
            readers.start(name)
        bursts = _bursts(setup.seed)
        moments = [Moment(0, 0, readers.seen())]
        written = 0
        with log.producer(acks="written") as producer:
            for step in range(1, STEPS + 1):
                clock.sleep(SECOND)
                done = tuple(act for act in _acts(setup, step) if _do(readers, act))
                with producer.transaction() as transaction:
                    for order in range(written, written + bursts[step - 1]):
                        transaction.send(_TOPIC, f"order {order}")
                written += bursts[step - 1]
                for name in readers.read:
                    readers.poll(name, _due(setup.number(name), step))
                kept = log.topic(_TOPIC).records
                moments.append(Moment(written, kept, readers.seen(), done))
    return tuple(moments)


def _bursts(seed: int) -> tuple[int, ...]:
    """The records of each second: none, one or two, until all are written."""
    rng, left, bursts = random.Random(seed), RECORDS, []
    for _ in range(STEPS):
        bursts.append(min(left, rng.choice((0, 1, 1, 2))))
        left -= bursts[-1]
    return tuple(bursts)


def _acts(setup: Setup, step: int) -> tuple[str, ...]:
    """The actions between the step before and this one; those at the end belong to the last."""
    last = setup.actions_at(STEPS) if step == STEPS else ()
    return (*setup.actions_at(step - 1), *last)


def _do(readers: _Readers, action: str) -> bool:
    match action:
        case "join":
            return readers.start(LATE)
        case "pause":
            return readers.stop(SLOW)
        case "resume":
            return readers.start(SLOW)
        case _:
            return readers.replay(REPLAYED)


def _due(speed: float, step: int) -> int:
    """The records that a consumer can handle in one second: 0.4 are two in five seconds."""
    return math.floor(speed * step + 1e-9) - math.floor(speed * (step - 1) + 1e-9)


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
    lines = []
    for name, _ in past[-1].groups:
        points = tuple(
            (float(step), float(reading.lag))
            for step, moment in enumerate(past)
            if (reading := moment.of(name)) is not None
        )
        lines.append(Line(points, _KINDS[name], name))
    lags = ", ".join(f"{name} {reading.lag}" for name, reading in past[-1].groups)
    return Plot(
        "Lag of each group",
        f"Records that wait for each group after {len(past) - 1} seconds: {lags}",
        Axis("seconds", 0, STEPS),
        Axis("lag (records)", 0, RECORDS),
        lines=tuple(lines),
    )


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
