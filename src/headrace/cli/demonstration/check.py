"""The account at the end: what was acknowledged, what the log holds, what each group handled."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.cli.demonstration.plan import KEY, READERS, Plan
from headrace.log import Log

Numbers = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Finding:
    """One thing that has to hold, whether it does, and what was counted."""

    law: str
    holds: bool
    counted: int
    remark: str = ""


@dataclass(frozen=True)
class Stored:
    """What one partition of the log holds, in order."""

    numbers: Numbers
    customers: Sequence[str]
    steps: Numbers


def check(log: Log, plan: Plan, acknowledged: int) -> list[Finding]:
    """Everything that the demo promises, counted."""
    stored = [_read(log, plan.topic, p) for p in range(log.topic(plan.topic).topic.partitions)]
    return [
        all_acknowledged(acknowledged, plan.events),
        each_once(stored, acknowledged, plan.events),
        in_order(stored),
        *(all_handled(r.group, _handled(plan, r.group), plan.events) for r in READERS),
    ]


def all_acknowledged(acknowledged: int, events: int) -> Finding:
    """The producer has heard from the log about every event."""
    return Finding("events acknowledged", acknowledged == events, acknowledged, f"of {events:,}")


def each_once(stored: Sequence[Stored], acknowledged: int, events: int) -> Finding:
    """The log has each event that it acknowledged, and no event twice."""
    numbers = np.concatenate([part.numbers for part in stored])
    missing = acknowledged - len(np.intersect1d(numbers, np.arange(acknowledged)))
    twice = len(numbers) - len(np.unique(numbers))
    return Finding(
        "events in the log, each once",
        not missing and not twice and len(numbers) <= events,
        len(numbers),
        f"{missing:,} missing, {twice:,} twice",
    )


def in_order(stored: Sequence[Stored]) -> Finding:
    """Each customer's events are in one partition, counting up by one."""
    last: dict[str, tuple[int, int]] = {}
    wrong = 0
    for partition, part in enumerate(stored):
        for customer, step in zip(part.customers, part.steps.tolist(), strict=True):
            if last.get(customer, (partition, 0)) != (partition, step - 1):
                wrong += 1
            last[customer] = (partition, step)
    return Finding("customers, each in order", not wrong, len(last), f"{wrong:,} out of order")


def all_handled(group: str, numbers: Numbers, events: int) -> Finding:
    """A group has handled each event, some of them again after a crash."""
    distinct = np.unique(numbers)
    missing = events - len(np.intersect1d(distinct, np.arange(events)))
    remark = f"{missing:,} missing, {len(numbers) - len(distinct):,} repeated"
    return Finding(f"events handled by {group}", not missing, len(distinct), remark)


def _read(log: Log, topic: str, partition: int) -> Stored:
    wanted = ["number", KEY, "step"]
    batches = [batch.data for batch in log.read(topic, partitions=[partition], columns=wanted)]
    if not batches:
        return Stored(np.empty(0, np.int64), [], np.empty(0, np.int64))
    data = pa.Table.from_batches(batches)
    return Stored(
        data.column("number").to_numpy(),
        data.column(KEY).to_pylist(),
        data.column("step").to_numpy(),
    )


def _handled(plan: Plan, group: str) -> Numbers:
    path = plan.ledger(group)
    return np.fromfile(path, np.int64) if os.path.exists(path) else np.empty(0, np.int64)
