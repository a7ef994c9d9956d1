"""What the demo does, decided before it begins, so that every process agrees on it."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

TOPIC = "demo.orders"
SCHEMA = (
    "number bigint not null, customer string not null, step bigint not null, "
    "amount decimal(10,2), at timestamp"
)
KEY, EVENT_TIME = "customer", "at"
PARTITIONS = 3

_SECONDS = 12
_SLOWEST = 500
_COMMITS_PER_SECOND = 20
_CUSTOMERS = 200
_SEED = 20260131


@dataclass(frozen=True)
class Reader:
    """A consumer group. It polls every so many seconds, and handles `speed` times the events
    that are written meanwhile; None is as fast as it can."""

    group: str
    every: float
    speed: float | None
    colour: str


READERS = (
    Reader("dashboard", 0.0, None, "green"),
    Reader("search", 0.5, 1.3, "cyan"),
    Reader("warehouse", 1.0, 0.7, "magenta"),
)
KILLED = "search"
PRODUCER = "producer"


@dataclass(frozen=True)
class Plan:
    """One run. `chunk` events are one transaction, and `rate` events are written each second.

    `tempo` is 1, or less for a short run, in which everything happens sooner.
    """

    url: str
    folder: str
    topic: str
    events: int
    rate: float
    chunk: int
    customers: int
    tempo: float

    @property
    def producer(self) -> str:
        return f"{self.topic}.producer"

    def ledger(self, group: str) -> str:
        """The file in which a group notes what it has handled."""
        return f"{self.folder}/{group}.handled"

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Plan:
        return cls(**json.loads(text))


def make_plan(url: str, folder: str, topic: str, events: int) -> Plan:
    """A run of about the same length whatever the number of events, if the machine can do it."""
    rate = max(events / _SECONDS, _SLOWEST)
    return Plan(
        url,
        folder,
        topic,
        events,
        rate,
        chunk=max(1, min(round(rate / _COMMITS_PER_SECOND), events // 20)),
        customers=max(1, min(_CUSTOMERS, events // 5)),
        tempo=min(1.0, events / rate / _SECONDS),
    )


def orders(plan: Plan) -> Iterator[dict[str, Any]]:
    """Every event of the run, the same each time: order `number`, a customer's `step`-th."""
    dice = random.Random(_SEED)
    steps: dict[str, int] = {}
    for number in range(plan.events):
        customer = f"customer-{dice.randrange(plan.customers):03d}"
        steps[customer] = steps.get(customer, 0) + 1
        yield {
            "number": number,
            "customer": customer,
            "step": steps[customer],
            "amount": dice.randrange(100, 50_000) / 100,
        }
