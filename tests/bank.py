"""A bank with rules: an account is never overdrawn, and an e-mail address has one account."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import headrace.eventsourcing as es


@dataclass(frozen=True)
class Account:
    owner: str | None = None
    balance: int = 0


@dataclass(frozen=True)
class Opened:
    owner: str


@dataclass(frozen=True)
class Deposited:
    amount: int


@dataclass(frozen=True)
class Withdrawn:
    amount: int


@dataclass(frozen=True)
class Open:
    owner: str


@dataclass(frozen=True)
class Deposit:
    amount: int


@dataclass(frozen=True)
class Withdraw:
    amount: int


@dataclass(frozen=True)
class Empty:
    """Withdraw everything, note by note."""


def decide(state: Account, command: Any) -> Any:
    match command:
        case Open(owner):
            return es.refuse("the account is open") if state.owner else Opened(owner)
        case _ if state.owner is None:
            return es.refuse("the account is not open")
        case Deposit(amount):
            return Deposited(amount)
        case Withdraw(amount):
            if amount > state.balance:
                return es.refuse(f"the balance is {state.balance}")
            return [Withdrawn(amount)]
        case Empty():
            return [Withdrawn(1)] * state.balance


def evolve(state: Account, event: Any) -> Account:
    match event:
        case Opened(owner):
            return replace(state, owner=owner)
        case Deposited(amount):
            return replace(state, balance=state.balance + amount)
        case Withdrawn(amount):
            return replace(state, balance=state.balance - amount)
    return state


EVENTS = [
    es.event("account-opened", Opened, tags=lambda event: [f"owner:{event.owner}"]),
    es.event("money-deposited", Deposited),
    es.event("money-withdrawn", Withdrawn),
]
COMMANDS = [
    es.command("open", Open),
    es.command("deposit", Deposit),
    es.command("withdraw", Withdraw),
    es.command("empty", Empty),
]


def account(**changes: Any) -> es.Aggregate[Account]:
    given: dict[str, Any] = {"decide": decide, "evolve": evolve, "snapshot_every": 3, **changes}
    return es.aggregate("account", initial=Account(), events=EVENTS, commands=COMMANDS, **given)


@dataclass(frozen=True)
class Taken:
    """The number of accounts that an owner has."""

    accounts: int = 0


@dataclass(frozen=True)
class OpenOnly:
    """Open an account for somebody who has none."""

    owner: str
    account: str


ACCOUNT = account()


def decide_only(state: Taken, command: OpenOnly) -> Any:
    if state.accounts:
        return es.refuse(f"{command.owner} has an account")
    return es.to(ACCOUNT, command.account, Opened(command.owner))


ONE_ACCOUNT = es.decision(
    "one-account",
    initial=Taken(),
    evolve=lambda state, event: Taken(state.accounts + 1),
    decide=decide_only,
    matches=lambda command: [es.match(types=["account-opened"], tags=[f"owner:{command.owner}"])],
    commands=[es.command("open-only", OpenOnly)],
)


def bank(of: es.Aggregate[Account] = ACCOUNT, **changes: Any) -> es.Domain:
    return es.Domain("bank", [of], decisions=[ONE_ACCOUNT], **changes)
