"""Command handlers to kill, and what must hold of the log that they leave behind."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import headrace.eventsourcing as es
from headrace.eventsourcing.stored import commands_in, events_in
from headrace.log import check_log
from headrace.log.file.log import FileLog
from headrace.log.file.marks import Unless
from tests.bank import (
    ACCOUNT,
    ONE_ACCOUNT,
    Account,
    Deposit,
    Empty,
    Open,
    OpenOnly,
    Withdraw,
    bank,
    evolve,
)
from tests.recovery.crashing import CrashingDisk, KillAt, StepFile

ACCOUNTS = ("a", "b", "c")
OWNERS = tuple(f"owner-{number}" for number in range(40))


def make_log(folder: Path) -> None:
    with FileLog(folder) as log, bank().open(log) as store:
        for id in ACCOUNTS:
            store.handle(ACCOUNT, id, Open(id), id=f"open:{id}")


def command(name: str, number: int) -> tuple[str, Any]:
    """The command of a client with that number, always the same, and its account."""
    choose = random.Random(f"{name}:{number}")
    made = choose.choice(
        [Deposit(choose.randint(1, 9)), Withdraw(choose.randint(1, 9)), Withdraw(4), Empty(), None]
    )
    return choose.choice(ACCOUNTS), made or OpenOnly(choose.choice(OWNERS), f"{name}-{number}")


def handle(folder: Path, name: str, kill_at: KillAt | None, lacks: str = "") -> None:
    """The child: handle a client's commands for ever, from the first that has no answer.

    Without the fence that it `lacks`, the log is wrong soon.
    """
    answers = folder / f"{name}.answers"
    done = len(answers.read_text().splitlines()) if answers.exists() else 0
    if lacks == "conditions":
        Unless.check = lambda self, db: None  # type: ignore[method-assign]
    log = FileLog(folder, disk=CrashingDisk(StepFile(folder / f"{name}.step"), kill_at))
    with bank().open(log) as store, answers.open("a", buffering=1) as file:
        while True:
            account, made = command(name, done)
            id = None if lacks == "ids" else f"{name}:{done}"
            metadata = {"client": f"{name}:{done}"}
            if isinstance(made, OpenOnly):
                answer = store.decide_across(ONE_ACCOUNT, made, id=id, metadata=metadata)
            else:
                answer = store.handle(ACCOUNT, account, made, id=id, metadata=metadata)
            file.write(f"{type(answer).__name__} {answer.commit}\n")
            done += 1


def check(folder: Path) -> Counter[str]:
    """Raise if anything is lost, doubled or against the rules; return the counts."""
    domain = bank()
    with FileLog(folder) as log:
        commands = list(commands_in(domain, log.read("bank.commands")))
        events = list(events_in(domain, log.read("bank.events")))
        with domain.open(log) as store:
            loaded = {id: store.load(ACCOUNT, id) for id in ACCOUNTS}
    by_client = Counter(c.metadata["client"] for c in commands if "client" in c.metadata)
    assert max(by_client.values(), default=1) == 1, "a command had two effects"
    answered = _check_answers(folder, {c.metadata.get("client"): c for c in commands})
    accepted = Counter(e.command for e in events)
    for stored in commands:
        if stored.outcome == "refused":
            assert accepted[stored.id] == 0, f"{stored} was refused and had events"
        elif not isinstance(stored.command, Empty):
            assert accepted[stored.id] == 1, f"{stored} had {accepted[stored.id]} events"
    assert set(accepted) <= {c.id for c in commands}, "an event has no command"
    states: dict[str, es.Loaded[Account]] = {}
    for event in events:
        before = states.get(event.aggregate, es.Loaded(Account(), 0, 0))
        assert event.version == before.version + 1, f"{event} after {before}"
        state = evolve(before.state, event.event)
        assert state.balance >= 0, f"{event} overdraws the account"
        states[event.aggregate] = es.Loaded(state, event.version, event.commit)
    for id, found in loaded.items():
        folded = states[f"account/{id}"]
        assert (found.state, found.version) == (folded.state, folded.version)
    owners = Counter(e.event.owner for e in events if e.type == "account-opened")
    assert max(owners.values()) == 1, f"an owner has two accounts: {owners.most_common(1)}"
    flaws = [flaw for flaw in check_log(folder, lambda *_: None) if not flaw.harmless]
    assert not flaws, flaws
    return Counter(c.outcome for c in commands) + Counter(answered=answered, events=len(events))


def _check_answers(folder: Path, found: dict[str | None, es.StoredCommand]) -> int:
    """Check that every answer that a client got is in the log, as it was given."""
    count = 0
    for path in folder.glob("*.answers"):
        for number, line in enumerate(path.read_text().splitlines()):
            kind, commit = line.split()
            stored = found.get(f"{path.stem}:{number}")
            assert stored is not None, f"the command {path.stem}:{number} is lost"
            wanted = "accepted" if kind == "Handled" else "refused"
            assert (stored.outcome, str(stored.commit)) == (wanted, commit)
            count += 1
    return count
