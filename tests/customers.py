"""Customers and their accounts: who they are is personal, and sealed wherever it is stored."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import headrace.eventsourcing as es


@dataclass(frozen=True)
class Customer:
    name: str = ""
    email: str | None = None
    orders: int = 0


@dataclass(frozen=True)
class Registered:
    name: str
    email: str | None


@dataclass(frozen=True)
class Ordered:
    item: str
    gift_for: str | None
    friend: str | None


@dataclass(frozen=True)
class Register:
    name: str
    email: str | None


@dataclass(frozen=True)
class Remind:
    """Remind a customer, who is named by the state alone."""


@dataclass(frozen=True)
class Order:
    item: str
    gift_for: str | None = None
    friend: str | None = None


def decide(state: Customer, command: Any) -> Any:
    match command:
        case Remind():
            return es.refuse(f"{state.name} owes nothing")
        case Register(name, email):
            return es.refuse(f"{name} is known") if state.name else Registered(name, email)
        case Order(item, gift_for, friend):
            if not state.name:
                return es.refuse(f"a gift for {gift_for} from nobody")
            return Ordered(item, gift_for, friend)


def evolve(state: Customer, event: Any) -> Customer:
    match event:
        case Registered(name, email):
            return replace(state, name=name, email=email)
        case Ordered():
            return replace(state, orders=state.orders + 1)
    return state


def tags(event: Registered) -> list[str]:
    return [es.hidden(f"email:{event.email}")] if event.email else []


GIFT = {"gift_for": "friend/{friend}"}


@dataclass(frozen=True)
class Taken:
    customers: int = 0


@dataclass(frozen=True)
class RegisterOnly:
    """Register a customer whose e-mail address nobody else has."""

    customer: str
    name: str
    email: str


@dataclass(frozen=True)
class Gifts:
    """The last gift for a friend."""

    gift_for: str | None = None
    friend: str | None = None


@dataclass(frozen=True)
class Surprise:
    """Order for a friend who has not had a gift before."""

    friend: str


def customers(*, sealed: bool = True) -> es.Domain:
    """The domain. Without `sealed` everything is in clear, for comparison."""
    who: Any = ["name", "email"] if sealed else None
    gift: Any = GIFT if sealed else None
    by_email = tags if sealed else None
    customer = es.aggregate(
        "customer",
        initial=Customer(),
        decide=decide,
        evolve=evolve,
        events=[
            es.event("customer-registered", Registered, tags=by_email, personal=who),
            es.event("item-ordered", Ordered, personal=gift),
        ],
        commands=[
            es.command("register", Register, personal=who),
            es.command("order", Order, personal=gift),
            es.command("remind", Remind),
        ],
        snapshot_every=2,
        personal=who,
    )
    their = "customer/{customer}"
    only = es.decision(
        "unique-email",
        initial=Taken(),
        evolve=lambda taken, event: Taken(taken.customers + 1),
        decide=lambda taken, command: (
            es.refuse(f"{command.email} is taken")
            if taken.customers
            else es.to(customer, command.customer, Registered(command.name, command.email))
        ),
        matches=lambda command: [es.match(tags=[es.hidden(f"email:{command.email}")])],
        commands=[
            es.command("register-only", RegisterOnly, personal={"name": their, "email": their})
        ],
        personal=[],
    )
    surprise = es.decision(
        "surprise",
        initial=Gifts(),
        evolve=lambda gifts, event: Gifts(event.gift_for, event.friend),
        decide=lambda gifts, command: es.refuse(f"{gifts.gift_for} has a gift"),
        matches=lambda command: [es.match(types=["item-ordered"])],
        commands=[es.command("surprise", Surprise)],
        personal=gift,
    )
    metadata = ["why"] if sealed else ()
    return es.Domain("shop", [customer], decisions=[only, surprise], personal_metadata=metadata)
