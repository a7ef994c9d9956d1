"""Play the demo of a bank on a log, and check at the end what event sourcing promises."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from types import ModuleType
from typing import Any

import headrace.eventsourcing as es
from headrace.cli.demonstration.check import Finding
from headrace.cli.demonstration.stage import pipeline_file
from headrace.cli.failures import say
from headrace.cli.modules import load_module
from headrace.clock import SECOND, SystemClock, to_datetime
from headrace.log import open_log

SEED = 20260131
_PEOPLE = 20


@dataclass(frozen=True)
class Scene:
    """A part of the story: what somebody wanted, and what became of it."""

    wanted: str
    became: str
    refused: bool


@dataclass(frozen=True)
class Account:
    """The result of the demo."""

    log: str
    commands: int
    refused: int
    seconds: float
    story: Sequence[Scene]
    findings: Sequence[Finding]

    @property
    def holds(self) -> bool:
        return all(finding.holds for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"seconds": round(self.seconds, 3), "holds": self.holds}


def perform(url: str, *, events: int, once: bool, quiet: bool) -> Account:
    """Tell the story of two accounts, let others send so many commands, and check."""
    module, clock = load_module(str(pipeline_file("bank.py"))), SystemClock()
    began = clock.monotonic()
    with open_log(url) as log, module.bank.open(log, acks="written") as store:
        play = Play(module, store, f"-{log.head()}" if log.head() else "")
        story = play.story()
        if not quiet:
            say(f"Sending {events:,} more commands to {_PEOPLE} accounts ...")
        play.traffic(events)
        findings = play.findings()
        seconds = (clock.monotonic() - began) / SECOND
        return Account(log.url, play.sent, play.refused, seconds, story, findings)


class Play:
    """A run of the demo. `suffix` tells its accounts from those of an earlier one."""

    def __init__(self, module: ModuleType, store: es.Store, suffix: str) -> None:
        self.sent = self.refused = 0
        self._bank = module
        self._store = store
        self._suffix = suffix
        self._ids: list[str] = []
        self._now = to_datetime(SystemClock().now())

    def story(self) -> list[Scene]:
        """The story of two people's accounts."""
        bank, before = self._bank, self._now - timedelta(days=30)
        ada, ben, zoe = (f"{name}{self._suffix}" for name in ("ada", "ben", "zoe"))
        scenes = [
            self._scene("Ada opens an account", self._open(ada, before)),
            self._scene("Eve opens one with Ada's address", self._open(f"eve{ada}", before, ada)),
            self._scene("Ben opens an account", self._open(ben, before)),
            self._scene("Ada deposits 100.00", self._send(ada, bank.Deposit(10_000), before)),
            self._scene("Ada withdraws 200.00", self._send(ada, bank.Withdraw(20_000))),
            self._scene("Ada sends 30.00 to Ben", self._send(ada, bank.Transfer(ben, 3_000))),
            self._scene("Ada sends 5.00 to Zoe", self._send(ada, bank.Transfer(zoe, 500))),
        ]
        self._transfer()
        *_, last = self._store.history(bank.account, ada)
        scenes.append(Scene("", f"5.00 come back: {last.event.event.reason}", False))
        past = self._store.load(bank.account, ada, at=before).state.cents
        scenes.append(Scene("Ada's balance 30 days ago", _money(past), False))
        scenes.append(Scene("Ada's balance now", _money(last.after.cents), False))
        return scenes

    def traffic(self, commands: int) -> None:
        """Random commands of many accounts."""
        bank, dice = self._bank, random.Random(SEED)
        people = [f"person-{number}{self._suffix}" for number in range(_PEOPLE)]
        for id in people:
            self._open(id, self._now)
        for number in range(commands):
            cents, id = dice.randint(1, 5_000), dice.choice(people)
            kinds = (
                bank.Deposit(cents),
                bank.Withdraw(cents),
                bank.Transfer(self._to(dice), cents),
            )
            self._send(id, dice.choice(kinds), id=f"demo-{number}{self._suffix}")
        self._transfer()

    def findings(self) -> list[Finding]:
        """The checks, each from the events themselves."""
        bank, store = self._bank, self._store
        histories = {id: list(store.history(bank.account, id)) for id in self._ids}
        events = [change.event.event for each in histories.values() for change in each]
        states = [change.after.cents for each in histories.values() for change in each]
        loaded = {id: store.load(bank.account, id).state for id in self._ids}
        replayed = {id: each[-1].after for id, each in histories.items()}
        cents = {
            kind: sum(event.cents for event in events if type(event) is kind)
            for kind in (bank.Deposited, bank.Withdrawn, bank.Sent, bank.Received, bank.Returned)
        }
        paid_in = cents[bank.Deposited] - cents[bank.Withdrawn]
        there = sum(state.cents for state in loaded.values())
        settled = cents[bank.Received] + cents[bank.Returned]
        head = store.log.head()
        differ = sum(1 for _ in store.what_if(bank.account, self._limited))
        return [
            Finding("no account was ever overdrawn", min(states) >= 0, len(states), "states"),
            Finding("no cent is lost", there == paid_in, there, f"{paid_in:,} paid in, net"),
            Finding("transfers that arrived or came back", settled == cents[bank.Sent], settled,
                    f"{cents[bank.Sent]:,} cents sent"),
            Finding("a replay from scratch gives the same", replayed == loaded, len(loaded),
                    f"accounts, {len(events):,} events"),
            Finding("what if withdrawals were at most 25.00", store.log.head() == head, differ,
                    "commands would be decided differently; nothing was written"),
        ]  # fmt: skip

    def _to(self, dice: random.Random) -> str:
        """Somebody who gets money; now and then nobody."""
        return f"person-{dice.randrange(_PEOPLE + 2)}{self._suffix}"

    def _limited(self, state: Any, command: Any) -> Any:
        if isinstance(command, self._bank.Withdraw) and command.cents > 2_500:
            return es.refuse("at most 25.00")
        return self._bank.decide(state, command)

    def _open(self, id: str, at: Any, whose: str = "") -> es.Handled | es.Refused:
        command = self._bank.Open(id, f"{whose or id}@example.org")
        answer = self._store.decide_across(self._bank.opening, command, at=at)
        self._count(answer)
        if isinstance(answer, es.Handled):
            self._ids.append(id)
        return answer

    def _send(
        self, to: str, command: Any, at: Any = None, id: str | None = None
    ) -> es.Handled | es.Refused:
        answer = self._store.handle(self._bank.account, to, command, at=at, id=id)
        self._count(answer)
        return answer

    def _transfer(self) -> None:
        self._bank.transfers.run(self._store, until_caught_up=True)

    def _count(self, answer: es.Handled | es.Refused) -> None:
        self.sent += 1
        self.refused += isinstance(answer, es.Refused)

    def _scene(self, wanted: str, answer: es.Handled | es.Refused) -> Scene:
        if isinstance(answer, es.Refused):
            return Scene(wanted, f"refused: {answer.reason}", True)
        (event,) = answer.events
        return Scene(wanted, self._bank.bank.type_of_event(event).name, False)


def _money(cents: int) -> str:
    return f"{cents / 100:,.2f}"
