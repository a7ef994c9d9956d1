"""Pipelines as they are now: state, steps, account of their rows, and what they wait for.

It reads the log and the databases of views, so it knows applications that run elsewhere too. Of an
application whose declaration it was given, it knows more: topics, outputs and the doctor's words.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from headrace.application.doctor import Checkup, Finding, StepCheckup, Wait, examine
from headrace.application.doctor.checkup import process_of
from headrace.application.doctor.records import Record, Records
from headrace.clock import SECOND, Clock, SystemClock, micros
from headrace.closing import Closing
from headrace.errors import HeadraceError, UnknownTopic
from headrace.log import Log
from headrace.pipeline.app import App
from headrace.plan.batch import Timing
from headrace.plan.law import Law
from headrace.plan.position import lag_of
from headrace.plan.steps import Step, steps_of
from headrace.studio.live.handles import Handles
from headrace.studio.live.processes import Processes, Started

_EVERY = SECOND
_KEPT = 600
_RATE_OVER = 10 * SECOND
_EXAMINED_EVERY = 2 * SECOND
_EXAMINED_ROWS = 2_000


@dataclass(frozen=True)
class State:
    """The state of an application in a word, its kind for colours, and the details."""

    word: str
    kind: str = ""
    details: str = ""
    ours: bool = False
    """True if it runs, and the studio started it."""


@dataclass(frozen=True)
class StepNow:
    """A step at one moment. Times are microseconds; unknown is None."""

    name: str
    law: Law
    frontier: int | None
    watermark: int | None
    lag: int
    rate: float
    """Rows per second, in the last seconds."""
    reads: tuple[str, ...]
    view: bool
    outputs: tuple[str, ...]
    timings: tuple[Timing, ...]
    ran: bool = True
    checkup: StepCheckup | None = None
    unknown: str = ""
    """The reason why its past is not known."""

    @property
    def waits(self) -> tuple[Wait, ...]:
        return () if self.checkup is None else self.checkup.waits


@dataclass(frozen=True)
class PipelineNow:
    """An application at one moment."""

    app: str
    declared: App | None
    state: State
    steps: tuple[StepNow, ...]
    findings: tuple[Finding, ...] = ()
    unknown: str = ""
    """The reason why the doctor could not look."""

    @property
    def rate(self) -> float:
        return sum(step.rate for step in self.steps)

    @property
    def lag(self) -> int:
        return sum(step.lag for step in self.steps)


@dataclass(frozen=True)
class Sampled:
    """The rows that each step of an application had processed at a moment, and its lag."""

    at: int
    monotonic: int
    rows: Mapping[str, int]
    lag: int


class Watch(Closing):
    """Pipelines of a studio's log. Any thread may ask.

    From the first question on, it takes a sample of all of them every second.
    """

    def __init__(self, handles: Handles, processes: Processes, clock: Clock | None = None) -> None:
        self.handles = handles
        self.processes = processes
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._sampler: threading.Thread | None = None
        self._samples: dict[str, deque[Sampled]] = {}
        self._checkups: dict[str, tuple[int, Checkup | HeadraceError]] = {}

    def close(self) -> None:
        self._over.set()
        if self._sampler is not None:
            self._sampler.join(10)

    def apps(self) -> list[str]:
        """All applications: those that the studio was given, and those with results."""
        return sorted({*self.handles.settings.declared, *self.handles.views.apps()})

    def all(self) -> list[PipelineNow]:
        """All applications now."""
        return [self.now(app) for app in self.apps()]

    def now(self, app: str) -> PipelineNow:
        """An application now."""
        self._sample_on()
        log = self.handles.log
        declared = self.handles.settings.declared.get(app)
        checkup = None if declared is None else self._checkup(declared)
        examined = checkup if isinstance(checkup, Checkup) else None
        parts = {} if examined is None else {each.step: each for each in examined.steps}
        rates = self._rates(app)
        with Records(log.home, app) as records:
            ran = records.steps()
            steps = (
                [
                    _declared(log, step, records.of(step.name), rates, parts.get(step.name))
                    for step in steps_of(declared)
                ]
                if declared is not None
                else [
                    _stored(log, name, delay, records.of(name), rates)
                    for name, delay in ran.items()
                ]
            )
        return PipelineNow(
            app,
            declared,
            self._state(app, ran=bool(ran)),
            tuple(steps),
            () if examined is None else examined.findings,
            checkup.message if isinstance(checkup, HeadraceError) else "",
        )

    def samples(self, app: str) -> list[Sampled]:
        """The samples of an application, the oldest first."""
        return list(self._samples.get(app, ()))

    def _state(self, app: str, *, ran: bool) -> State:
        started = self.processes.of(app)
        holder = process_of(self.handles.log.home, app)
        if started is not None and started.alive:
            return _ours(started, holder)
        if holder is not None:
            return State("running", "good", f"elsewhere, as process {holder}")
        if started is not None and started.failed:
            return State("failed", "bad", started.reason)
        if started is not None and started.asked == "kill":
            return State("killed", "bad", "by the studio, with kill -9")
        if not ran:
            return State("never run", "muted")
        return State("stopped", "muted", "The next run continues where it stopped")

    def _checkup(self, declared: App) -> Checkup | HeadraceError:
        """The doctor's checkup, at most some seconds old."""
        with self._lock:
            made, found = self._checkups.get(declared.name, (None, None))
            if made is None or self._clock.monotonic() - made > _EXAMINED_EVERY:
                found = _examined(declared, self.handles.log)
                self._checkups[declared.name] = self._clock.monotonic(), found
            assert found is not None
            return found

    def _rates(self, app: str) -> Callable[[str], float]:
        samples = self.samples(app)
        if len(samples) < 2:
            return lambda step: 0.0
        last = samples[-1]
        first = next(s for s in samples if last.monotonic - s.monotonic <= _RATE_OVER)
        seconds = (last.monotonic - first.monotonic) / SECOND

        def rate(step: str) -> float:
            if not seconds or step not in first.rows:
                return 0.0
            return max(0.0, (last.rows.get(step, 0) - first.rows[step]) / seconds)

        return rate

    def _sample_on(self) -> None:
        with self._lock:
            if self._sampler is None and not self._over.is_set():
                self._sampler = threading.Thread(target=self._sampling, daemon=True)
                self._sampler.start()

    def _sampling(self) -> None:
        while not self._over.wait(_EVERY / SECOND):
            try:
                for app in self.apps():
                    self.sample(app)
            except HeadraceError:
                continue  # there is no log yet, or it is busy: pages say so

    def sample(self, app: str) -> None:
        """Take a sample of an application."""
        log = self.handles.log
        with Records(log.home, app) as records:
            found = {step: records.of(step) for step in records.steps()}
        there = {step: record for step, record in found.items() if record is not None}
        made = Sampled(
            self._clock.now(),
            self._clock.monotonic(),
            {step: record.law.rows for step, record in there.items()},
            sum(_lag(log, record) for record in there.values()),
        )
        self._samples.setdefault(app, deque(maxlen=_KEPT)).append(made)


def _ours(started: Started, holder: int | None) -> State:
    who = f"process {started.pid}, started here"
    if started.asked == "stop":
        return State("stopping", "warn", who, ours=True)
    if started.verb == "drain":
        return State("draining", "warn", who, ours=True)
    if holder != started.pid:
        return State("starting", "warn", who, ours=True)
    return State("running", "good", who, ours=True)


def _examined(declared: App, log: Log) -> Checkup | HeadraceError:
    try:
        return examine(declared, log, rows=_EXAMINED_ROWS)
    except HeadraceError as error:
        return error


def _declared(
    log: Log,
    step: Step,
    record: Record | None,
    rates: Callable[[str], float],
    checkup: StepCheckup | None,
) -> StepNow:
    frontier = None if record is None else record.frontier
    return StepNow(
        step.name,
        Law() if record is None else record.law,
        frontier,
        None if frontier is None else frontier - micros(step.delay),
        _backlog(log, step) if record is None else _lag(log, record),
        rates(step.name),
        step.topics,
        step.view is not None,
        (*step.outputs, *step.late),
        () if record is None else record.timings,
        record is not None,
        checkup,
    )


def _stored(
    log: Log,
    name: str,
    delay: int | None,
    record: Record | None,
    rates: Callable[[str], float],
) -> StepNow:
    assert record is not None
    frontier = record.frontier
    return StepNow(
        name,
        record.law,
        frontier,
        None if frontier is None or delay is None else frontier - delay,
        _lag(log, record),
        rates(name),
        tuple(record.reached),
        delay is not None,
        (),
        record.timings,
    )


def _lag(log: Log, record: Record) -> int:
    try:
        return lag_of(log, record.reached)
    except UnknownTopic:  # it was deleted
        return 0


def _backlog(log: Log, step: Step) -> int:
    """The rows of a step that has never run."""
    there = {topic.name for topic in log.topics()}
    return sum(log.topic(name).records for name in step.topics if name in there)


def _watch(request: Request) -> Watch:
    found = request.app.state.watch
    assert isinstance(found, Watch)
    return found


Watching = Annotated[Watch, Depends(_watch)]
"""The watch, as a parameter of a route."""
