"""Examine an application: the state of each step, what it waits for, and what is wrong.

This changes nothing and starts no Spark. The application may be running.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.application.doctor.changes import missing_events
from headrace.application.doctor.checkpoints import slow_checkpoints
from headrace.application.doctor.dead_letters import many_dead
from headrace.application.doctor.disorder import out_of_order
from headrace.application.doctor.duplicates import duplicates
from headrace.application.doctor.finding import Finding, LostPlace
from headrace.application.doctor.lag import Skew, growing_lag, skew_of
from headrace.application.doctor.records import Held, Record, Records
from headrace.application.doctor.waiting import Backlog, Wait, waits
from headrace.clock import micros
from headrace.errors import UnknownTopic
from headrace.log import DEFAULT_LOG, Log, TopicState, open_log
from headrace.log.sample import ROWS, Sample, newest
from headrace.operators.registry import operator_of
from headrace.pipeline.app import App
from headrace.plan.gaps import Gaps
from headrace.plan.law import Law
from headrace.plan.position import Position, beginning, commits_told, lag_of, position_at
from headrace.plan.steps import Step, dead_letters_of, steps_of
from headrace.store.location import app_folder

_PAGE = 10_000


@dataclass(frozen=True)
class StepCheckup:
    """A step: its progress, its state, and what its next output waits for."""

    step: str
    law: Law
    frontier: int | None
    watermark: int | None
    backlog: Backlog
    held: Held
    output: int
    """Rows in its output topics, or visible in its view."""
    waits: tuple[Wait, ...]


@dataclass(frozen=True)
class Checkup:
    """An application: its steps, and what is wrong with them and with the topics they read."""

    app: str
    log: str
    running: int | None
    """The id of its process, if it runs."""
    steps: tuple[StepCheckup, ...]
    findings: tuple[Finding, ...]
    looked_at: tuple[str, ...]
    """The rows that were examined, one text per topic."""

    @property
    def healthy(self) -> bool:
        return not self.findings

    def finding(self, name: str) -> Finding | None:
        """The finding of that name, if there is one."""
        return next((found for found in self.findings if found.name == name), None)


def examine(app: App, log: str | Log | None = None, *, rows: int = ROWS) -> Checkup:
    """Examine an application, and the newest `rows` rows of each topic it reads."""
    steps = steps_of(app)
    with contextlib.ExitStack() as stack:
        if not isinstance(log, Log):
            log = stack.enter_context(open_log(log or app.log or DEFAULT_LOG, create=False))
        records = stack.enter_context(Records(log.home, app.name))
        names = list(dict.fromkeys(topic for step in steps for topic in step.topics))
        topics = {name: _state(log, name) for name in names}
        samples = {n: newest(log, n, rows) for n, state in topics.items() if state is not None}
        running = process_of(log.home, app.name)
        checkups: list[StepCheckup] = []
        findings: list[Finding] = []
        for name, sample in samples.items():
            if found := duplicates(sample, [s.name for s in steps if name in s.topics]):
                findings.append(found)
        for step in steps:
            record = records.of(step.name)
            mine = {name: topics[name] for name in step.topics}
            checkups.append(_step(log, step, mine, records, record, running=running is not None))
            findings += _findings(log, step, record, [samples[n] for n in mine if n in samples])
        looked_at = tuple(str(sample) for sample in samples.values())
        return Checkup(app.name, log.url, running, tuple(checkups), tuple(findings), looked_at)


def _step(
    log: Log,
    step: Step,
    topics: Mapping[str, TopicState | None],
    records: Records,
    record: Record | None,
    *,
    running: bool,
) -> StepCheckup:
    frontier = None if record is None else record.frontier
    held = records.held(step, frontier)
    backlog = _backlog(log, topics, record)
    delay = micros(step.delay)
    return StepCheckup(
        step.name,
        Law() if record is None else record.law,
        frontier,
        None if frontier is None else frontier - delay,
        backlog,
        held,
        max(held.shown, sum(_records(log, topic) for topic in step.outputs)),
        tuple(
            waits(
                step,
                topics,
                record,
                held,
                backlog,
                running=running,
                by_partition=log.judges_rows,
            )
        ),
    )


def _findings(log: Log, step: Step, record: Record | None, samples: list[Sample]) -> list[Finding]:
    found: list[Finding | None] = []
    if record is not None and (gap := Gaps(log, step.name, record.reached).found(record.reached)):
        found.append(LostPlace(step.name, gap.message, commits_told(record.reached), gap.hint))
    elif record is not None:
        found.append(growing_lag(step.name, record.timings, _skew(log, step, record, samples)))
        found.append(slow_checkpoints(step.name, record.timings))
    if record is not None:
        found.append(many_dead(log, step.name, record.law, dead_letters_of(step.app)))
    if (panes := operator_of(step.computed).panes(step.computed)) is not None:
        found.append(out_of_order(step.name, panes, samples))
    for sample in samples:
        found += missing_events(step, sample, record, log.commit_time)
    return [finding for finding in found if finding is not None]


def _skew(log: Log, step: Step, record: Record, samples: list[Sample]) -> Skew | None:
    by = step.computed.keyed_by
    for sample in samples:
        name = sample.topic.name
        columns = by or ((sample.topic.key,) if sample.topic.key else ())
        now = position_at(log, name, log.head())
        if name in record.reached and (skew := skew_of(sample, columns, record.reached[name], now)):
            return skew
    return None


def _backlog(log: Log, topics: Mapping[str, TopicState | None], record: Record | None) -> Backlog:
    rows = commits = 0
    for name, state in topics.items():
        if state is None:
            continue
        reached: Position | None = None if record is None else record.reached.get(name)
        reached = reached or beginning(log, name)
        rows += lag_of(log, {name: reached})
        commits += len(log.commits(name, reached.commit, _PAGE))
    return Backlog(rows, commits)


def _state(log: Log, topic: str) -> TopicState | None:
    try:
        return log.topic(topic)
    except UnknownTopic:
        return None


def _records(log: Log, topic: str) -> int:
    state = _state(log, topic)
    return 0 if state is None else state.records


def process_of(home: str, app: str) -> int | None:
    """The id of the process that runs an application, which holds its lock."""
    try:
        with (app_folder(home, app) / "run.lock").open() as file:
            pid = int(file.read().strip() or 0)
            # Try the lock only if the process exists: it must not be taken from a run that is
            # just starting.
            if not pid or not _alive(pid):
                return None
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return pid
            return None
    except (OSError, ValueError):
        return None


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
