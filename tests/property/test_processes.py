"""A process issues the same commands however its runners are cut off, interleaved and batched."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import headrace.eventsourcing as es
from headrace.clock import micros, to_micros
from headrace.eventsourcing.stored import commands_in, events_in
from headrace.log import Log
from headrace.log.file.log import FileLog
from tests import transfers as t
from tests.transfers import ACCOUNT, Ask, Close, Deposit

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
RUNNERS = 2

STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("ask"), st.sampled_from(["b", "closed", "nowhere"]), st.integers(-90, 90)
        ),
        st.tuples(st.just("advance"), st.integers(1, 90)),
        st.tuples(st.just("step"), st.integers(0, RUNNERS - 1)),
        st.tuples(st.just("cut off"), st.integers(0, RUNNERS - 1), st.integers(0, 3)),
    ),
    max_size=16,
)
"""Transfers, minutes by which the time of the events goes on, steps, and ends of runners after
that many commands."""


def react(state: t.Transfer, event: Any, id: str) -> Any:
    """Send nothing to nowhere; remind again and again."""
    match event:
        case t.Asked(_, "nowhere"):
            return es.timeout("slow", after=t.PATIENCE)
        case es.TimedOut("slow"):
            return [*_listed(t.react(state, event, id)), es.timeout("slower", after=t.PATIENCE)]
    return t.react(state, event, id)


PROCESS = t.transfers(react=lambda *given: _listed(react(*given)))


def _listed(found: Any) -> Any:
    return found if isinstance(found, list | tuple) else [found]


class CutOff(BaseException):
    """The end of a runner."""


class World:
    """A bank, runners of its process, and the time of its events."""

    def __init__(self, folder: Path) -> None:
        self._stack = ExitStack()
        self.log = self._stack.enter_context(FileLog(folder))
        self.store = self._stack.enter_context(t.bank().open(self.log, acks="written"))
        self.store.handle(ACCOUNT, "a", Deposit(1_000), at=NOON)
        self.store.handle(ACCOUNT, "closed", Close(), at=NOON)
        self._runners = [PROCESS.runner(self.store) for _ in range(RUNNERS)]
        self._now = NOON
        self._asked = 0

    def take(self, kind: str, *given: Any) -> None:
        match kind, given:
            case "ask", (target, minutes):
                self._asked += 1
                ask = Ask(f"a>{target}:{self._asked}", target, 1)
                at = self._now + timedelta(minutes=minutes)
                self._now = max(self._now, at)
                self.store.handle(ACCOUNT, "a", ask, at=at)
            case "advance", (minutes,):
                self._now += timedelta(minutes=minutes)
                self.log.advance("bank.events", self._now)
            case "step", (number,):
                self._runners[number].step()
            case "cut off", (number, after):
                self._cut_off(number, after)

    def close(self) -> None:
        for runner in self._runners:
            runner.close()
        self._stack.close()

    def finish(self) -> None:
        for runner in self._runners:
            runner.catch_up()

    def _cut_off(self, number: int, after: int) -> None:
        """Let a runner take steps, until it is cut off before one of its commands is handled."""
        runner, handle, left = self._runners[number], self.store.handle, iter(range(after))

        def cut(*args: Any, **given: Any) -> Any:
            if next(left, None) is None:
                raise CutOff
            return handle(*args, **given)

        self.store.handle = cut  # type: ignore[method-assign]
        try:
            runner.catch_up()
        except CutOff:
            runner.close()
            self._runners[number] = PROCESS.runner(self.store)
        finally:
            self.store.handle = handle  # type: ignore[method-assign]


def meant(log: Log) -> Iterator[tuple[str, Any]]:
    """The commands that the process has to issue: its functions, over the log from the start."""
    domain = t.bank()
    events: dict[int, Any] = {e.commit: e for e in events_in(domain, log.read("bank.events"))}
    refused = {
        c.commit: c
        for c in commands_in(domain, log.read("bank.commands"))
        if c.outcome == "refused" and c.metadata.get("process")
    }
    frontiers = {one.number: one.after for one in log.commits("bank.events", 0, 1_000_000)}
    states: dict[str, t.Transfer] = {}
    timers: dict[tuple[str, str], int] = {}

    def apply(id: str, event: Any, at: int) -> Iterator[tuple[str, Any]]:
        states[id] = t.begun(states.get(id, t.Transfer()), event)
        for action in _listed(react(states[id], event, id)):
            match action:
                case es.Send():
                    yield id, action.command
                case es.Timeout():
                    timers[id, action.name] = at + micros(action.after or timedelta(0))
                case es.Cancel():
                    timers.pop((id, action.name), None)

    def due(now: int) -> Iterator[tuple[str, Any]]:
        while timers and min(timers.values()) <= now:
            at, (id, name) = min((at, key) for key, at in timers.items())
            del timers[id, name]
            yield from apply(id, es.TimedOut(name), at)

    now = 0
    for commit in sorted({*frontiers, *refused}):
        now = frontiers.get(commit) or now
        yield from due(now)
        if commit in refused:
            one = refused[commit]
            answer = es.CommandRefused(one.command, one.reason or "", one.aggregate)
            yield from apply(one.command.transfer, answer, to_micros(one.at))
        if commit in events and isinstance(events[commit].event, t.Asked | t.Arrived | t.GivenBack):
            event = events[commit]
            yield from apply(event.event.transfer, event.event, to_micros(event.at))
        yield from due(now)


@settings(max_examples=40)
@given(steps=STEPS)
def test_the_commands_are_those_of_one_pass_over_the_log(steps: list[Any]) -> None:
    folder = Path(tempfile.mkdtemp())
    world = World(folder / "log")
    try:
        for step in steps:
            world.take(*step)
        world.finish()
        _check(world.log)
    finally:
        world.close()
        shutil.rmtree(folder)


def _check(log: Log) -> None:
    domain = t.bank()
    decided = [c for c in commands_in(domain, log.read("bank.commands")) if "process" in c.metadata]
    rows = [row for batch in log.read("bank.transfers.sent") for row in batch.data.to_pylist()]
    kinds = {c.name: c for c in ACCOUNT.commands}
    issued = [(r["instance"], kinds[r["type"]].decode(r["data"], r["schema"])) for r in rows]
    assert issued == list(meant(log))
    assert Counter(c.id for c in decided) == Counter(r["id"] for r in rows), "lost or doubled"
    assert [c.id for c in decided] == [r["id"] for r in rows], "handled out of order"
