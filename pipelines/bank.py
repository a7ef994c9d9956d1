"""A bank on events: accounts that are never overdrawn, transfers, and what is derived of both.

    headrace domain send pipelines/bank.py:bank opening open account=ada email=ada@example.org
    headrace domain send pipelines/bank.py:bank account/ada deposit cents=10000
    headrace domain send pipelines/bank.py:bank account/ada withdraw cents=20000
    headrace domain send pipelines/bank.py:bank account/ada transfer to=ben cents=2500
    headrace domain run pipelines/bank.py:bank pipelines/bank.py:transfers --until-caught-up
    headrace domain history pipelines/bank.py:bank account/ada
    headrace run pipelines/bank.py:app
    headrace rebuild pipelines/bank.py:app balances --diff

The withdrawal is refused, and recorded with its reason. The transfer is sent, refused by an account
that is not open, and returned: nothing is taken back from the history, which is appended to.

A balance is never stored as the truth. `decide` turns a command into events, or refuses it, and
`evolve` folds the events into a state. The application keeps three read models of the same events:
balances, statements by month, and notices of large withdrawals. `rebuild` replays all events from
scratch beside a live one, and shows what a fix changes.
"""

from dataclasses import dataclass, replace
from datetime import timedelta as td
from typing import Any

import headrace as hr
import headrace.eventsourcing as es

# Events: facts, in the past tense. They are kept for good, under the names that `account` gives.


@dataclass(frozen=True)
class Opened:
    email: str


@dataclass(frozen=True)
class Deposited:
    cents: int


@dataclass(frozen=True)
class Withdrawn:
    cents: int


@dataclass(frozen=True)
class Sent:
    to: str
    cents: int


@dataclass(frozen=True)
class Received:
    sender: str
    cents: int


@dataclass(frozen=True)
class Returned:
    to: str
    cents: int
    reason: str


# Commands: requests, which may be refused.


@dataclass(frozen=True)
class Open:
    account: str
    email: str


@dataclass(frozen=True)
class Deposit:
    cents: int


@dataclass(frozen=True)
class Withdraw:
    cents: int


@dataclass(frozen=True)
class Transfer:
    to: str
    cents: int


@dataclass(frozen=True)
class Receive:
    sender: str
    cents: int


@dataclass(frozen=True)
class Return:
    to: str
    cents: int
    reason: str


# An account: what its events add up to, and its rules.


@dataclass(frozen=True)
class Account:
    email: str | None = None
    cents: int = 0


def decide(state: Account, command: Any) -> Any:
    if state.email is None:
        return es.refuse("the account is not open")
    if command.cents <= 0:
        return es.refuse("an amount is more than nothing")
    match command:
        case Withdraw(cents) | Transfer(_, cents) if cents > state.cents:
            return es.refuse(f"the balance is {state.cents}")
        case Deposit(cents):
            return Deposited(cents)
        case Withdraw(cents):
            return Withdrawn(cents)
        case Transfer(to, cents):
            return Sent(to, cents)
        case Receive(sender, cents):
            return Received(sender, cents)
        case Return(to, cents, reason):
            return Returned(to, cents, reason)


def evolve(state: Account, event: Any) -> Account:
    match event:
        case Opened(email):
            return replace(state, email=email)
        case Deposited() | Received() | Returned():
            return replace(state, cents=state.cents + event.cents)
        case Withdrawn() | Sent():
            return replace(state, cents=state.cents - event.cents)
    return state


sent = es.event("transfer-sent", Sent)

account = es.aggregate(
    "account",
    initial=Account(),
    decide=decide,
    evolve=evolve,
    events=[
        es.event("account-opened", Opened, tags=lambda event: [f"email:{event.email}"]),
        es.event("money-deposited", Deposited),
        es.event("money-withdrawn", Withdrawn),
        sent,
        es.event("transfer-received", Received),
        es.event("transfer-returned", Returned),
    ],
    commands=[
        es.command("deposit", Deposit),
        es.command("withdraw", Withdraw),
        es.command("transfer", Transfer),
        es.command("receive", Receive),
        es.command("return", Return),
    ],
    snapshot_every=100,
)

# A rule across accounts: each is opened once, and an e-mail address has one account.


@dataclass(frozen=True)
class Taken:
    emails: tuple[str, ...] = ()


def open_once(taken: Taken, command: Open) -> Any:
    if command.email in taken.emails:
        return es.refuse(f"{command.email} has an account")
    if taken.emails:
        return es.refuse("the account is open")
    return es.to(account, command.account, Opened(command.email))


opening = es.decision(
    "opening",
    initial=Taken(),
    decide=open_once,
    evolve=lambda taken, event: Taken((*taken.emails, event.email)),
    matches=lambda command: [
        es.match(types=["account-opened"], tags=[f"email:{command.email}"]),
        es.match(types=["account-opened"], tags=[f"aggregate:account/{command.account}"]),
    ],
    commands=[es.command("open", Open)],
)

bank = es.Domain("bank", [account], decisions=[opening])

# A transfer has two halves in two accounts. If the second is refused, the first is compensated.


def react(state: None, event: Any, sender: str) -> Any:
    match event:
        case Sent(to, cents):
            return es.send(account, to, Receive(sender, cents))
        case es.CommandRefused(Receive(_, cents), reason, to):
            return es.send(account, sender, Return(to.removeprefix("account/"), cents, reason))
    return ()


transfers = es.process(
    "transfers",
    events=[sent],
    key=lambda stored: stored.aggregate.removeprefix("account/"),
    react=react,
)

# Read models: pipelines over the events. Each can be rebuilt from them beside the live one.

app = hr.App("bank", log="file:./data")

IN = "type IN ('money-deposited', 'transfer-received', 'transfer-returned')"
OUT = "type IN ('money-withdrawn', 'transfer-sent')"

movements = hr.derive(
    bank.stream(app),
    account="substring_index(aggregate, '/', -1)",
    month="date_format(at, 'yyyy-MM')",
    paid_in=f"CASE WHEN {IN} THEN cents ELSE 0 END",
    paid_out=f"CASE WHEN {OUT} THEN cents ELSE 0 END",
)

FOREVER = hr.running(hr.FOREVER)
AT_ONCE = hr.Lateness(delay=td(0), grace=td(0))

balances = hr.aggregate(
    movements,
    by="account",
    window=FOREVER,
    lateness=AT_ONCE,
    cents=hr.sum("paid_in - paid_out"),
    events=hr.count(),
)
statements = hr.aggregate(
    movements,
    by=["account", "month"],
    window=FOREVER,
    lateness=AT_ONCE,
    paid_in=hr.sum("paid_in"),
    paid_out=hr.sum("paid_out"),
)
large = hr.filter(bank.stream(app, "money-withdrawn"), "cents >= 100000")

app.view("balances", balances)
app.view("statements", statements)
app.publish("large-withdrawals", hr.select(large, "aggregate", "at", "cents"))
