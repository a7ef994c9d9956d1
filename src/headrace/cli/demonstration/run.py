"""The story: everything runs, two processes are killed, they come back, and all is counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from headrace.cli.demonstration.plan import (
    EVENT_TIME,
    KEY,
    KILLED,
    PARTITIONS,
    PRODUCER,
    READERS,
    SCHEMA,
    TOPIC,
    Plan,
    Reader,
)
from headrace.cli.demonstration.processes import Process
from headrace.clock import SECOND, SystemClock
from headrace.errors import LogError
from headrace.log import Lag, Log

_TICK = 0.1
_CRASH_AT = 0.35
_DOWN = 1.5
_STALLED = 60.0

_END = object()

Kind = Literal["news", "crash", "back"]


@dataclass(frozen=True)
class Note:
    """Something worth saying, and when it happened."""

    seconds: float
    text: str
    kind: Kind = "news"


@dataclass(frozen=True)
class ReaderView:
    """A group as it is at a moment."""

    reader: Reader
    status: str
    lags: tuple[Lag, ...]

    @property
    def lag(self) -> int:
        return sum(lag.records for lag in self.lags)

    @property
    def seconds(self) -> float:
        return max((lag.seconds for lag in self.lags), default=0.0)


@dataclass(frozen=True)
class View:
    """The whole demo as it is at a moment."""

    plan: Plan
    seconds: float
    producer: str
    acknowledged: int
    readers: tuple[ReaderView, ...]
    notes: tuple[Note, ...]

    @property
    def over(self) -> bool:
        return (
            self.producer == "done"
            and self.acknowledged >= self.plan.events
            and all(len(view.lags) == PARTITIONS and not view.lag for view in self.readers)
        )


def create_topic(log: Log) -> str:
    """A topic of the demo's own; if earlier runs are in the log, with another number."""
    taken = {topic.name for topic in log.topics()}
    name, number = TOPIC, 1
    while name in taken:
        number += 1
        name = f"{TOPIC}-{number}"
    log.create_topic(name, partitions=PARTITIONS, schema=SCHEMA, key=KEY, event_time=EVENT_TIME)
    return name


class Story:
    """Runs a plan on a log. `tell` is called with a view ten times a second."""

    def __init__(self, log: Log, plan: Plan) -> None:
        self._log = log
        self._plan = plan
        self._clock = SystemClock()
        self._began = self._clock.now()
        self._notes: list[Note] = []
        self._processes = {name: Process(name, plan) for name in _roles()}

    def run(self, tell: Callable[[View], None]) -> View:
        """Tell the whole story; returns how it ended."""
        try:
            for process in self._processes.values():
                process.start()
            self._note(f"a producer and {len(READERS)} consumer groups, each a process of its own")
            script, told = self._script(), False
            moved, progress = self._seconds(), -1
            while not ((view := self._look()).over and told):
                tell(view)
                for process in self._processes.values():
                    process.check()
                told = told or next(script, _END) is _END
                if (now := _progress(view)) != progress:
                    moved, progress = view.seconds, now
                elif view.seconds - moved > _STALLED:
                    raise LogError(f"The demo has not moved for {_STALLED:.0f} s")
                self._clock.sleep(int(_TICK * SECOND))
            self._note("every group has caught up")
            view = self._look()
            tell(view)
            return view
        finally:
            for process in self._processes.values():
                process.end()

    def _script(self) -> Iterator[None]:
        """What happens when: resumed at every tick."""
        plan, producer, reader = self._plan, self._processes[PRODUCER], self._processes[KILLED]
        while producer.said < _CRASH_AT * plan.events:
            yield
        pid = reader.kill()
        self._note(f"kill -9 {pid}: the consumer of {KILLED} is gone", "crash")
        yield from self._wait(_DOWN * plan.tempo)
        pid = producer.kill()
        self._note(f"kill -9 {pid}: the producer is gone", "crash")
        yield from self._wait(_DOWN * plan.tempo)
        pid = producer.start()
        self._note(f"producer back as {pid}: the log knows its last sequence number", "back")
        pid = reader.start()
        self._note(f"{KILLED} back as {pid}: it goes on from its committed offsets", "back")
        while producer.said < plan.events:
            yield
        self._note(f"the last of {plan.events:,} events is acknowledged")

    def _wait(self, seconds: float) -> Iterator[None]:
        until = self._seconds() + seconds
        while self._seconds() < until:
            yield

    def _look(self) -> View:
        known = set(self._log.groups())
        return View(
            self._plan,
            self._seconds(),
            self._processes[PRODUCER].status,
            self._processes[PRODUCER].said,
            tuple(
                ReaderView(
                    reader,
                    self._processes[reader.group].status,
                    tuple(
                        lag
                        for lag in self._log.group(reader.group).lags
                        if lag.topic == self._plan.topic
                    )
                    if reader.group in known
                    else (),
                )
                for reader in READERS
            ),
            tuple(self._notes),
        )

    def _note(self, text: str, kind: Kind = "news") -> None:
        self._notes.append(Note(self._seconds(), text, kind))

    def _seconds(self) -> float:
        return (self._clock.now() - self._began) / SECOND


def _roles() -> tuple[str, ...]:
    return (PRODUCER, *(reader.group for reader in READERS))


def _progress(view: View) -> int:
    return view.acknowledged + sum(lag.committed or 0 for r in view.readers for lag in r.lags)
