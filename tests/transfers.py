"""Transfers between accounts: the second half may be refused, and then the first is given back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import headrace.eventsourcing as es

PATIENCE = timedelta(hours=1)


@dataclass(frozen=True)
class Account:
    balance: int = 0
    closed: bool = False


@dataclass(frozen=True)
class Deposited:
    amount: int


@dataclass(frozen=True)
class Closed:
    pass


@dataclass(frozen=True)
class Asked:
    transfer: str
    target: str
    amount: int


@dataclass(frozen=True)
class Arrived:
    transfer: str
    amount: int


@dataclass(frozen=True)
class GivenBack:
    transfer: str
    amount: int


@dataclass(frozen=True)
class Reminded:
    transfer: str


@dataclass(frozen=True)
class Deposit:
    amount: int


@dataclass(frozen=True)
class Close:
    pass


@dataclass(frozen=True)
class Ask:
    transfer: str
    target: str
    amount: int


@dataclass(frozen=True)
class Arrive:
    transfer: str
    amount: int


@dataclass(frozen=True)
class GiveBack:
    transfer: str
    amount: int


@dataclass(frozen=True)
class Remind:
    transfer: str


def decide(state: Account, command: Any) -> Any:
    match command:
        case Deposit(amount):
            return Deposited(amount)
        case Close():
            return Closed()
        case Ask(transfer, target, amount):
            if amount > state.balance:
                return es.refuse(f"the balance is {state.balance}")
            return Asked(transfer, target, amount)
        case Arrive(transfer, amount):
            return es.refuse("the account is closed") if state.closed else Arrived(transfer, amount)
        case GiveBack(transfer, amount):
            return GivenBack(transfer, amount)
        case Remind(transfer):
            return Reminded(transfer)


def evolve(state: Account, event: Any) -> Account:
    match event:
        case Deposited(amount) | Arrived(_, amount) | GivenBack(_, amount):
            return replace(state, balance=state.balance + amount)
        case Asked(_, _, amount):
            return replace(state, balance=state.balance - amount)
        case Closed():
            return replace(state, closed=True)
    return state


EVENTS = {
    name: es.event(name, kind)
    for name, kind in {
        "deposited": Deposited, "closed": Closed, "asked": Asked, "arrived": Arrived,
        "given-back": GivenBack, "reminded": Reminded,
    }.items()
}  # fmt: skip

ACCOUNT = es.aggregate(
    "account",
    initial=Account(),
    decide=decide,
    evolve=evolve,
    events=EVENTS.values(),
    commands=[
        es.command("deposit", Deposit),
        es.command("close", Close),
        es.command("ask", Ask),
        es.command("arrive", Arrive),
        es.command("give-back", GiveBack),
        es.command("remind", Remind),
    ],
)


@dataclass(frozen=True)
class Transfer:
    source: str = ""
    amount: int = 0


def transfer_of(stored: es.StoredEvent) -> str | None:
    return getattr(stored.event, "transfer", None)


def begun(state: Transfer, event: Any) -> Transfer:
    match event:
        case Asked(transfer, _, amount):
            return Transfer(transfer.partition(">")[0], amount)
        case Arrived() | GivenBack():
            return Transfer()
    return state


def react(state: Transfer, event: Any, id: str) -> Any:
    match event:
        case Asked(transfer, target, amount):
            return [
                es.send(ACCOUNT, target, Arrive(transfer, amount)),
                es.timeout("slow", after=PATIENCE),
            ]
        case es.CommandRefused(Arrive()):
            return es.send(ACCOUNT, state.source, GiveBack(id, state.amount))
        case es.TimedOut("slow"):
            return es.send(ACCOUNT, state.source, Remind(id))
        case Arrived() | GivenBack():
            return es.cancel("slow")
    return ()


def transfers(**changes: Any) -> es.Process[Transfer]:
    given: dict[str, Any] = {"react": react, "evolve": begun, "key": transfer_of, **changes}
    return es.process(
        "transfers",
        initial=Transfer(),
        events=[EVENTS["asked"], EVENTS["arrived"], EVENTS["given-back"]],
        **given,
    )


TRANSFERS = transfers()


def bank(**changes: Any) -> es.Domain:
    return es.Domain("bank", [ACCOUNT], **changes)
