"""An event-sourced account in a real log: what its store answers after each step."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import lru_cache
from typing import Any

import headrace.eventsourcing as es
from headrace.clock import SECOND, VirtualClock, to_micros
from headrace.log import Log
from headrace.studio.learn.simulation import Setup
from headrace.studio.learn.stage import moment, seconds, stage

STEPS = 24
SENDING = 18
"""Seconds in which commands come by themselves."""
BACK = 6
"""Seconds by which a backdated deposit is late."""
_ID = "a-1"
_WHO = ("ann", "ben")


@dataclass(frozen=True)
class Account:
    balance: int = 0


@dataclass(frozen=True)
class Deposited:
    amount: int


@dataclass(frozen=True)
class Withdrawn:
    amount: int


@dataclass(frozen=True)
class Deposit:
    amount: int


@dataclass(frozen=True)
class Withdraw:
    amount: int


def with_credit(credit: int) -> Callable[[Account, Any], Any]:
    """The rule: an account may be overdrawn by so much."""

    def decide(state: Account, command: Any) -> Any:
        match command:
            case Withdraw(amount) if amount > state.balance + credit:
                return es.refuse(f"the balance is {state.balance}")
            case Withdraw(amount):
                return Withdrawn(amount)
            case Deposit(amount):
                return Deposited(amount)

    return decide


def evolve(state: Account, event: Any) -> Account:
    """The account after an event."""
    match event:
        case Deposited(amount):
            return replace(state, balance=state.balance + amount)
        case Withdrawn(amount):
            return replace(state, balance=state.balance - amount)
    return state


@dataclass(frozen=True)
class Fact:
    """An event: its version, its second, who caused it, and the balance before and after it."""

    version: int
    at: float
    name: str
    amount: int
    who: str
    commit: int
    before: int
    after: int

    @property
    def text(self) -> str:
        return f"{'+' if self.after > self.before else '−'}{self.amount}"


@dataclass(frozen=True)
class Asked:
    """A command as it was recorded."""

    text: str
    at: float
    amount: int
    reason: str | None


@dataclass(frozen=True)
class Moment:
    """The account after a step, as its store and its log have it."""

    facts: tuple[Fact, ...]
    asked: tuple[Asked, ...]
    state: int
    scratch: int
    """Events that a replay from the first one has folded."""
    tail: int
    """Events that loading has folded since the snapshot."""
    by_time: tuple[int, int] | None
    """Balance and version by the events up to the chosen second; None before it."""
    by_commit: tuple[int, int] | None
    """Balance and version as they were known at that second."""
    would: tuple[str, ...]
    """Commands that the changed rule would decide differently."""
    repeated: int
    again: int
    """Commands that were decided a second time, since another came first."""
    said: tuple[str, ...] = ()

    @property
    def version(self) -> int:
        return len(self.facts)

    @property
    def refused(self) -> int:
        return sum(asked.reason is not None for asked in self.asked)


@dataclass
class _Bank:
    """A domain with one account, and who writes to it."""

    log: Log
    clock: VirtualClock
    setup: Setup
    calls: dict[str, int] = field(default_factory=lambda: {"decide": 0, "evolve": 0})
    sent: int = 0
    repeated: int = 0
    again: int = 0
    last: tuple[str, Any] | None = None

    def __post_init__(self) -> None:
        every = self.setup.whole("snapshot")
        decide = with_credit(0)

        def counted_decide(state: Account, command: Any) -> Any:
            self.calls["decide"] += 1
            return decide(state, command)

        def counted_evolve(state: Account, event: Any) -> Account:
            self.calls["evolve"] += 1
            return evolve(state, event)

        self.account = es.aggregate(
            "account",
            initial=Account(),
            decide=counted_decide,
            evolve=counted_evolve,
            events=[es.event("deposited", Deposited), es.event("withdrawn", Withdrawn)],
            commands=[es.command("deposit", Deposit), es.command("withdraw", Withdraw)],
            snapshot_every=every or None,
        )
        self.domain = es.Domain("bank", [self.account])
        self.store, self.other = self.open(), self.open()
        self.rng = random.Random(self.setup.seed)

    def open(self, remembered: int = 1) -> es.Store:
        return es.Store(
            self.domain, self.log, acks="written", clock=self.clock, remembered=remembered
        )

    def send(self, command: Any, *, back: int = 0, store: es.Store | None = None) -> str:
        """Send a command with an id of its own, and say what came of it."""
        self.sent += 1
        who = _WHO[self.sent % len(_WHO)]
        self.last = f"c-{self.sent}", command
        return f"{who.title()} {_words(command)}: {self._handle(*self.last, who, back, store)}."

    def resend(self) -> str:
        """Send the last command once more, with the same id."""
        if self.last is None:
            return "There is no command to send again."
        answer = self._handle(*self.last, "ann", 0, None)
        return f"The command {self.last[0]} came again: {answer}."

    def race(self) -> tuple[str, str]:
        """Two tellers decide on the same state. The one that commits second decides again."""
        balance = self.other.load(self.account, _ID).state.balance
        most = balance * 2 // 3 + 1
        first = self.send(Withdraw(most))
        before = self.calls["decide"]
        second = self.send(Withdraw(most), store=self.other)
        self.again += self.calls["decide"] - before - 1
        return first, second

    def balance(self) -> int:
        return self.store.load(self.account, _ID).state.balance

    def _handle(self, id: str, command: Any, who: str, back: int, store: es.Store | None) -> str:
        answer = (store or self.store).handle(
            self.account, _ID, command, id=id, metadata={"who": who},
            at=moment(seconds(self.clock.now())) - timedelta(seconds=back),
        )  # fmt: skip
        self.repeated += answer.repeated
        if isinstance(answer, es.Refused):
            return f"refused, {answer.reason}"
        done = "nothing happens, and the answer is the same" if answer.repeated else "accepted"
        return f"{done}, event {answer.version} in commit {answer.commit}"

    def close(self) -> None:
        self.store.close()
        self.other.close()


@lru_cache(maxsize=32)
def history(setup: Setup) -> tuple[Moment, ...]:
    """The account after each step, from the beginning."""
    with stage() as (log, clock), contextlib.closing(_Bank(log, clock, setup)) as bank:
        heads = [log.head()]
        moments = [_moment(bank, 0, heads, ())]
        for step in range(1, STEPS + 1):
            clock.sleep(SECOND)
            said: list[str] = []
            if step <= SENDING:
                said.append(bank.send(_next(bank, setup)))
            for action in setup.actions_before(step, STEPS):
                said += _do(bank, action)
            heads.append(log.head())
            moments.append(_moment(bank, step, heads, tuple(said)))
    return tuple(moments)


def _next(bank: _Bank, setup: Setup) -> Any:
    """The next command that comes by itself."""
    amount = bank.rng.randint(1, 9) * 5
    withdraws = bank.rng.random() < setup.number("withdrawals") / 100
    return Withdraw(amount) if withdraws else Deposit(amount)


def _do(bank: _Bank, action: str) -> tuple[str, ...]:
    match action:
        case "deposit":
            return (bank.send(Deposit(50)),)
        case "overdraw":
            return (bank.send(Withdraw(bank.balance() + 10)),)
        case "again":
            return (bank.resend(),)
        case "race":
            return bank.race()
        case _:
            said = bank.send(Deposit(40), back=BACK)
            return (f"{said[:-1]}, and it counts from {BACK} seconds ago.",)


def _moment(bank: _Bank, step: int, heads: list[int], said: tuple[str, ...]) -> Moment:
    account, store, calls = bank.account, bank.store, bank.calls
    calls["evolve"] = 0
    facts = tuple(_fact(change) for change in store.history(account, _ID))
    scratch, calls["evolve"] = calls["evolve"], 0
    with contextlib.closing(bank.open(remembered=0)) as fresh:
        state = fresh.load(account, _ID).state.balance
        tail = calls["evolve"]
    chosen = bank.setup.whole("second")
    by_time = by_commit = None
    if chosen <= step:
        then = store.load(account, _ID, at=moment(chosen))
        known = store.load(account, _ID, commit=heads[chosen])
        by_time = then.state.balance, then.version
        by_commit = known.state.balance, known.version
    would = tuple(
        _words(each.command.command)
        for each in store.what_if(account, with_credit(bank.setup.whole("credit")))
    )
    asked = tuple(
        Asked(_words(c.command), seconds(to_micros(c.at)), c.command.amount, c.reason)
        for c in store.commands(account, _ID)
    )
    return Moment(
        facts, asked, state, scratch, tail, by_time, by_commit, would, bank.repeated, bank.again,
        said,
    )  # fmt: skip


def _fact(change: es.Change[Account]) -> Fact:
    event = change.event
    return Fact(
        event.version, seconds(to_micros(event.at)), event.type, event.event.amount,
        event.metadata["who"], event.commit, change.before.balance, change.after.balance,
    )  # fmt: skip


def _words(command: Any) -> str:
    return f"{'deposits' if isinstance(command, Deposit) else 'withdraws'} {command.amount}"
