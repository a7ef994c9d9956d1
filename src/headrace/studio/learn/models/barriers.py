"""A model of checkpoints by barriers: three operators behind two inputs.

Two sources feed `left` and `right`, and `join` takes in what both pass on. A checkpoint sends a
barrier after the events so far of each source, and an operator saves its state when the barrier
reaches it. An operator with two inputs can wait for the second barrier (aligned), or save its state
at the first one together with the events that are still on the way (unaligned).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

Event = tuple[str, int]
"""A source and a number."""
BARRIER: Event = ("barrier", 0)

SOURCES = ("a", "b")
OPERATORS = ("left", "right", "join")
CHANNELS = {
    "left": ("a→left",),
    "right": ("b→right",),
    "join": ("left→join", "right→join"),
}
"""The inputs of each operator."""
_OUTPUT = {"a": "a→left", "b": "b→right", "left": "left→join", "right": "right→join"}
_ALL = tuple(channel for channels in CHANNELS.values() for channel in channels)

CAPACITY = 6
"""The most events in a channel; a full one holds its sender back."""
RESTORE = 3
"""Ticks to restart after a failure."""
_RATE = 2
"""Events that an operator takes from an input in a tick, and a source sends."""


@dataclass(frozen=True)
class Job:
    """Events by the ticks from which on they are there, and how checkpoints are taken."""

    a: tuple[int, ...]
    b: tuple[int, ...]
    interval: int
    """Ticks from one checkpoint to the next."""
    aligned: bool
    slow: int = 1
    """Ticks that `right` needs for an event."""
    skew: int = 0
    """Ticks by which the barrier of source b sets out after that of source a."""

    @property
    def events(self) -> tuple[Event, ...]:
        return (*(("a", n) for n in range(len(self.a))), *(("b", n) for n in range(len(self.b))))


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint: the sources' positions, states, and events on the way."""

    number: int
    offsets: Mapping[str, int]
    states: Mapping[str, tuple[Event, ...]]
    """The events that each operator had taken in."""
    in_flight: Mapping[str, tuple[Event, ...]]
    """The events of each channel that came before its barrier. Aligned, there are none."""


_START = Checkpoint(0, dict.fromkeys(SOURCES, 0), {}, {})


@dataclass(frozen=True)
class Moment:
    """The job after a tick."""

    tick: int
    offsets: Mapping[str, int]
    channels: Mapping[str, tuple[Event, ...]]
    states: Mapping[str, tuple[Event, ...]]
    sink: tuple[Event, ...]
    """Every row that was written, in order. A failure takes none of them back."""
    checkpoints: tuple[Checkpoint, ...]
    pending: int | None
    """The number of the checkpoint that is under way."""
    saved: frozenset[str]
    """The operators that have saved their state for it."""
    blocked: frozenset[str]
    """The channels that wait for the barrier of another."""
    down: int
    """Ticks until the job runs again."""
    stalled: int
    """Ticks so far in which an operator had events and saved its state or waited instead."""
    kept: int
    """Events on the way that checkpoints saved so far."""


def run(job: Job, failures: frozenset[int] = frozenset()) -> tuple[Moment, ...]:
    """The job after each tick, from its start until everything is taken in.

    `failures` are the numbers of ticks after which everything but the sink is lost.
    """
    machine = _Machine(job)
    found = [machine.moment()]
    while len(found[-1].states["join"]) < len(job.events) or found[-1].down:
        if machine.tick in failures:
            machine.fail()
        else:
            machine.go_on()
        found.append(machine.moment())
    return tuple(found)


class _Machine:
    def __init__(self, job: Job) -> None:
        self._job = job
        self.tick = 0
        self._sink: list[Event] = []
        self._done: list[Checkpoint] = []
        self._begun = self._down = self._stalled = self._kept = self._rested = 0
        self._restore(_START)

    def _restore(self, saved: Checkpoint) -> None:
        self._offsets = dict(saved.offsets)
        self._states = {name: list(saved.states.get(name, ())) for name in OPERATORS}
        self._channels = {name: deque(saved.in_flight.get(name, ())) for name in _ALL}
        self._abort()

    def _abort(self) -> None:
        self._pending: int | None = None
        self._due: dict[str, int] = {}
        self._from: dict[str, int] = {}
        self._saved: dict[str, tuple[Event, ...]] = {}
        self._blocked: set[str] = set()
        self._arrived: set[str] = set()
        self._in_flight: dict[str, list[Event]] = {}

    def fail(self) -> None:
        """Lose everything but the sink, and restore the last complete checkpoint."""
        self.tick += 1
        self._restore(self._done[-1] if self._done else _START)
        self._down = RESTORE

    def go_on(self) -> None:
        self.tick += 1
        if self._down:
            self._down -= 1
            return
        # From the end to the sources, so that an event passes one channel in a tick.
        for name in reversed(OPERATORS):
            self._work(name)
        for source in SOURCES:
            self._emit(source)
        if self.tick % self._job.interval == 0 and self._pending is None:
            self._begun += 1
            self._pending = self._begun
            self._due = {"a": self.tick, "b": self.tick + self._job.skew}
        for source in [name for name, due in self._due.items() if due == self.tick]:
            self._from[source] = self._offsets[source]
            self._send(_OUTPUT[source], BARRIER)

    def _emit(self, source: str) -> None:
        there = self._job.a if source == "a" else self._job.b
        for _ in range(_RATE):
            next_ = self._offsets[source]
            full = len(self._channels[_OUTPUT[source]]) >= CAPACITY
            if next_ == len(there) or there[next_] > self.tick or full:
                return
            self._send(_OUTPUT[source], (source, next_))
            self._offsets[source] += 1

    def _send(self, channel: str, item: Event) -> None:
        queue = self._channels[channel]
        if self._job.aligned:
            queue.append(item)
        elif item == BARRIER:
            self._arrived.add(channel)
            if channel not in self._in_flight:
                # It overtakes the events before it, which belong to the checkpoint.
                self._in_flight[channel] = list(queue)
                queue.appendleft(BARRIER)
        else:
            if channel in self._in_flight and channel not in self._arrived:
                self._in_flight[channel].append(item)
            queue.append(item)

    def _work(self, name: str) -> None:
        queues = {channel: self._channels[channel] for channel in CHANNELS[name]}
        met = any(queue and queue[0] == BARRIER for queue in queues.values())
        if met and self._meet(name):
            # Saving the state takes the tick.
            self._stalled += any(queues.values())
            return
        self._stalled += any(queue for channel, queue in queues.items() if channel in self._blocked)
        if name == "right" and self.tick < self._rested:
            return
        for channel in queues:
            self._take(name, channel, 1 if name == "right" else _RATE)

    def _take(self, name: str, channel: str, most: int) -> None:
        queue, output = self._channels[channel], _OUTPUT.get(name)
        for _ in range(most):
            if not queue or queue[0] == BARRIER or channel in self._blocked:
                return
            if output is not None and len(self._channels[output]) >= CAPACITY:
                return
            event = queue.popleft()
            if name == "right":
                self._rested = self.tick + self._job.slow
            self._states[name].append(event)
            if output is None:
                self._sink.append(event)
            else:
                self._send(output, event)

    def _meet(self, name: str) -> bool:
        """Take the barriers that have arrived; True if it was time to save the state."""
        for channel in CHANNELS[name]:
            queue = self._channels[channel]
            if queue and queue[0] == BARRIER:
                queue.popleft()
                if self._job.aligned:
                    self._blocked.add(channel)
        inputs = set(CHANNELS[name])
        if self._job.aligned and not inputs <= self._blocked:
            return False
        self._blocked -= inputs
        self._saved[name] = tuple(self._states[name])
        for channel in inputs:
            self._in_flight.setdefault(
                channel, [] if self._job.aligned else list(self._channels[channel])
            )
        if name in _OUTPUT:
            self._send(_OUTPUT[name], BARRIER)
        self._complete()
        return True

    def _complete(self) -> None:
        arrived = self._job.aligned or self._arrived == set(_ALL)
        if self._pending is None or len(self._saved) < len(OPERATORS) or not arrived:
            return
        in_flight = {channel: tuple(self._in_flight[channel]) for channel in _ALL}
        self._kept += sum(map(len, in_flight.values()))
        self._done.append(Checkpoint(self._pending, self._from, self._saved, in_flight))
        self._abort()

    def moment(self) -> Moment:
        return Moment(
            self.tick,
            dict(self._offsets),
            {name: tuple(queue) for name, queue in self._channels.items()},
            {name: tuple(state) for name, state in self._states.items()},
            tuple(self._sink),
            tuple(self._done),
            self._pending,
            frozenset(self._saved),
            frozenset(self._blocked),
            self._down,
            self._stalled,
            self._kept,
        )
