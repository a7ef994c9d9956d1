"""Runners of a process manager to kill, and what must hold of the log that they leave behind."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import headrace.eventsourcing as es
from headrace.eventsourcing.processes.stored import Progress
from headrace.eventsourcing.stored import commands_in, events_in
from headrace.log import Log, check_log
from headrace.log.file.log import FileLog
from tests.recovery.crashing import CrashingDisk, KillAt, StepFile
from tests.transfers import (
    ACCOUNT,
    PATIENCE,
    Arrive,
    Arrived,
    Ask,
    Asked,
    Close,
    Deposit,
    GiveBack,
    GivenBack,
    Remind,
    Transfer,
    bank,
    react,
    transfers,
)

SOURCES = ("a", "b")
TARGETS = ("c", "closed", "nowhere")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def react_slowly(state: Transfer, event: Any, id: str) -> Any:
    """Send nothing to nowhere, and give the money back when the time is out."""
    match event:
        case Asked(_, "nowhere"):
            return es.timeout("slow", after=PATIENCE)
        case Asked(_, target, amount):  # a runner that was killed may be late, so without one
            return es.send(ACCOUNT, target, Arrive(id, amount))
        case es.TimedOut():
            return [
                es.send(ACCOUNT, state.source, Remind(id)),
                es.send(ACCOUNT, state.source, GiveBack(id, state.amount)),
            ]
    return react(state, event, id)


PROCESS = transfers(react=react_slowly)


def make_log(folder: Path) -> None:
    with FileLog(folder) as log, bank().open(log) as store:
        for id in SOURCES:
            store.handle(ACCOUNT, id, Deposit(1_000_000), at=NOON)
        store.handle(ACCOUNT, "closed", Close(), at=NOON)


def feed(log: Log, first: int, count: int) -> int:
    """Ask for transfers, from a number on; return the next number."""
    with bank().open(log) as store:
        for number in range(first, first + count):
            source = SOURCES[number % 2]
            target = TARGETS[number % 3]
            ask = Ask(f"{source}>{target}:{number}", target, random.Random(number).randint(1, 99))
            at = NOON + timedelta(minutes=10 * number)
            store.handle(ACCOUNT, source, ask, id=f"ask:{number}", at=at)
    return first + count


def run(folder: Path, name: str, kill_at: KillAt | None, lacks: str = "") -> None:
    """The child: run the process for ever.

    Without the fence that it `lacks`, the log is wrong soon.
    """
    if lacks == "sending again":
        Progress.issued = lambda *_: iter(())  # type: ignore[method-assign]
    log = FileLog(folder, disk=CrashingDisk(StepFile(folder / f"{name}.step"), kill_at))
    with bank().open(log) as store:
        if lacks == "ids":
            handle = store.handle

            def forget_id(*args: Any, id: str, **given: Any) -> Any:
                return handle(*args, **given)

            store.handle = forget_id  # type: ignore[method-assign, assignment]
        PROCESS.run(store)


def check(folder: Path) -> Counter[str]:
    """Finish what is open; raise if a command is lost, doubled or makes no sense."""
    domain = bank()
    with FileLog(folder) as log:
        with domain.open(log) as store:
            PROCESS.run(store, until_caught_up=True)
            now = log.frontier("bank.events")
            assert now is not None
            log.advance("bank.events", datetime.fromtimestamp(now / 1e6, UTC) + 2 * PATIENCE)
            PROCESS.run(store, until_caught_up=True)
            ids = (*SOURCES, *TARGETS)
            balances = {id: store.load(ACCOUNT, id).state.balance for id in ids}
        commands = list(commands_in(domain, log.read("bank.commands")))
        events = [stored.event for stored in events_in(domain, log.read("bank.events"))]
        sent = [id for b in log.read("bank.transfers.sent") for id in b.data["id"].to_pylist()]
    _check_commands(commands, sent)
    made = Counter((type(c.command), c.command.transfer) for c in commands if c.id in set(sent))
    outcomes = Counter(e.transfer for e in events if isinstance(e, Arrived | GivenBack))
    asked = [event for event in events if isinstance(event, Asked)]
    for event in asked:
        id, target = event.transfer, event.target
        assert outcomes[id] == 1, f"the transfer {id} has {outcomes[id]} ends"
        assert made[Arrive, id] == (target != "nowhere"), f"{id} arrived {made[Arrive, id]} times"
        assert made[Remind, id] == (target == "nowhere"), f"{id} timed out {made[Remind, id]} times"
        assert made[GiveBack, id] == (target != "c"), f"{id} was given back"
    assert sum(balances.values()) == 2_000_000, f"money was lost or made: {balances}"
    flaws = [flaw for flaw in check_log(folder, lambda *_: None) if not flaw.harmless]
    assert not flaws, flaws
    return Counter(type(c.command).__name__ for c in commands if c.id in set(sent))


def _check_commands(commands: list[es.StoredCommand], sent: list[str]) -> None:
    """Check that each command of the process was issued once and decided once."""
    assert len(sent) == len(set(sent)), "a command was issued twice"
    decided = Counter((c.metadata["cause"], c.command) for c in commands if "process" in c.metadata)
    assert max(decided.values(), default=1) == 1, "a command had two effects"
    assert sum(decided.values()) == len(sent), f"{len(sent) - sum(decided.values())} were lost"
