"""A process that sends card transactions, some fraudulent, at a steady rate and awaits the alerts.

    python -m bench.card_load LOG TRANSACTIONS_PER_SECOND SECONDS SKIP SEED

It prints a JSON object: `waits`, the milliseconds from each flagged transaction to its alert,
without those of the first SKIP seconds; and for each rule, how many transactions should have been
flagged and how many were. Both times come from the clock of this process.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
from confluent_kafka import Consumer, Producer

from headrace.cli.demonstration.fraud.traffic import distance

TRANSACTIONS, ALERTS = "transactions", "fraud.alerts"
CARDS = 50_000
HOME, FAR = (52.52, 13.40), (40.71, -74.01)
RULES = ("too many", "too much", "too fast")

_STOLEN = 0.01
"""The share of transactions that start a theft, on another card."""

_PATIENCE = 60.0
"""Seconds to wait for missing alerts after the last transaction."""

Row = dict[str, Any]


@dataclass
class Load:
    """The transactions sent and the alerts seen, with times of one clock."""

    sent: dict[str, float] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    seen: dict[tuple[str, str], float] = field(default_factory=dict)
    """The time of the first alert of each transaction and rule."""
    over: bool = False

    def meant(self) -> dict[str, set[str]]:
        """The transactions that each rule must flag, computed without headrace."""
        found: dict[str, set[str]] = {rule: set() for rule in RULES}
        cards: dict[str, list[Row]] = defaultdict(list)
        for row in self.rows:
            recent = [r for r in cards[row["card"]] if r["moment"] >= row["moment"] - 600]
            cards[row["card"]] = [*recent, row]
            everything = cards[row["card"]]
            if sum(r["moment"] >= row["moment"] - 60 for r in everything) > 5:
                found["too many"].add(row["transaction"])
            if sum(r["amount"] for r in everything) > 5_000:
                found["too much"].add(row["transaction"])
            if recent:
                far = distance(recent[-1]["lat"], recent[-1]["lon"], row["lat"], row["lon"])
                hours = (row["moment"] - recent[-1]["moment"]) / 3600
                if far > 500 * hours:
                    found["too fast"].add(row["transaction"])
        return found


def transactions(seed: int) -> Iterator[Row]:
    """Yield transactions forever. A stolen card is used several times."""
    dice = np.random.default_rng(seed)
    thefts: list[Iterator[Row]] = []
    for number in range(sys.maxsize):
        if thefts and dice.random() < 0.05:
            theft = thefts.pop(0)
            row = next(theft, None)
            if row is not None:
                thefts.append(theft)
                yield {**row, "transaction": f"{seed}-{number}"}
                continue
        if dice.random() < _STOLEN:
            thefts.append(_theft(f"stolen-{seed}-{number}", number))
        yield {
            "transaction": f"{seed}-{number}",
            "card": f"card-{int(dice.integers(CARDS))}",
            "amount": int(dice.integers(5, 60)),
            "lat": HOME[0],
            "lon": HOME[1],
        }


def _theft(card: str, number: int) -> Iterator[Row]:
    """The fraud of one card: many small amounts, a few large ones, or two places far apart."""
    here = {"card": card, "lat": HOME[0], "lon": HOME[1]}
    if number % 3 == 0:
        yield from ({**here, "amount": 1} for _ in range(10))
    elif number % 3 == 1:
        yield from ({**here, "amount": 1_300} for _ in range(5))
    else:
        yield {**here, "amount": 20}
        yield {**here, "amount": 20, "lat": FAR[0], "lon": FAR[1]}


def main(url: str, rate: str, length: str, skip: str, seed: str) -> None:
    """Send transactions, wait for alerts, and print the result."""
    load = Load()
    ready = threading.Event()
    watching = threading.Thread(target=_watch, args=(url, load, ready))
    watching.start()
    ready.wait()
    began = _send(url, load, float(rate), float(length), int(seed))
    meant = load.meant()
    wanted = {(transaction, rule) for rule, ids in meant.items() for transaction in ids}
    until = time.time() + _PATIENCE
    while time.time() < until and not wanted <= load.seen.keys():
        time.sleep(0.05)
    load.over = True
    watching.join()
    waits = [
        (seen - load.sent[transaction]) * 1e3
        for (transaction, _), seen in load.seen.items()
        if load.sent[transaction] >= began + float(skip)
    ]
    flagged = {rule: {t for t, r in load.seen if r == rule} for rule in RULES}
    print(
        json.dumps(
            {
                "waits": waits,
                "sent": len(load.sent),
                "meant": {rule: len(ids) for rule, ids in meant.items()},
                "right": {rule: len(meant[rule] & flagged[rule]) for rule in RULES},
            }
        )
    )


def _send(url: str, load: Load, rate: float, length: float, seed: int) -> float:
    """Send at a rate for `length` seconds, and return the time of the first."""
    with _sender(url) as send:
        began = time.time()
        for number, row in enumerate(transactions(seed)):
            due = began + number / rate
            if due > began + length:
                break
            if (early := due - time.time()) > 0.001:
                time.sleep(early)
            now = time.time()
            load.sent[row["transaction"]] = now
            load.rows.append({**row, "moment": now})
            at = datetime.fromtimestamp(now, UTC)
            send({**row, "amount": f"{row['amount']}.00", "merchant": "shop", "at": at})
    return began


@contextlib.contextmanager
def _sender(url: str) -> Iterator[Callable[[Row], object]]:
    """A function that sends a transaction to Kafka, with a plain Kafka producer."""
    kafka = Producer({"bootstrap.servers": servers(url), "linger.ms": 0})

    def send(row: Row) -> None:
        value = json.dumps({**row, "at": row["at"].isoformat()})
        kafka.produce(TRANSACTIONS, value.encode(), key=row["card"].encode())
        kafka.poll(0)

    yield send
    kafka.flush()


def _watch(url: str, load: Load, ready: threading.Event) -> None:
    """Record the time of every alert."""
    for transaction, rule in _alerts(url, load, ready):
        if transaction in load.sent:
            load.seen.setdefault((transaction, rule), time.time())


def _alerts(url: str, load: Load, ready: threading.Event) -> Iterator[tuple[str, str]]:
    consumer = Consumer(
        {
            "bootstrap.servers": servers(url),
            "group.id": "bench",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 10,
        }
    )
    consumer.subscribe([ALERTS])
    ready.set()
    while not load.over:
        for message in consumer.consume(500, 0.005):
            if message.error() is None:
                row = json.loads(message.value())
                yield row["transaction"], row["rule"]
    consumer.close()


def servers(url: str) -> str:
    """The broker addresses of a log."""
    return url.removeprefix("kafka://")


if __name__ == "__main__":
    main(*sys.argv[1:])
