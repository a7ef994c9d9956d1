"""A real log on a virtual clock, and consumer groups that read it step by step."""

from __future__ import annotations

import contextlib
import math
import random
from dataclasses import dataclass
from functools import lru_cache

from headrace.clock import SECOND
from headrace.log import Consumer, Log
from headrace.log.position import EARLIEST
from headrace.studio.learn.simulation import Setup
from headrace.studio.learn.stage import stage

RECORDS = 60
STEPS = 80
"""Seconds: the producer is done after about three quarters of them."""
FIRST = ("analytics", "search", "warehouse")
LATE = "audit"
SLOW, REPLAYED = "warehouse", "search"
_TOPIC = "orders"


@dataclass(frozen=True)
class Reading:
    """A consumer group at a step, as the log has it."""

    position: int
    lag: int
    read: int
    """The records that it was given so far: more than its position once it has replayed."""
    running: bool


@dataclass(frozen=True)
class Moment:
    """The log and its groups after a step."""

    written: int
    kept: int
    groups: tuple[tuple[str, Reading], ...]
    done: tuple[str, ...] = ()
    """The actions of the step that changed something."""

    def of(self, name: str) -> Reading | None:
        return dict(self.groups).get(name)


class _Readers:
    """The consumers of one log, and what each was given."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._commits = log.producer(acks="written")
        self._open: dict[str, Consumer] = {}
        self.read: dict[str, int] = {}

    def start(self, name: str) -> bool:
        """Start a consumer. Its group continues where it was, or at the first record."""
        if name in self._open:
            return False
        self._open[name] = self._log.consumer(_TOPIC, group=name, commit="manual")
        self.read.setdefault(name, 0)
        return True

    def stop(self, name: str) -> bool:
        """Stop a consumer. The log keeps its group's position."""
        consumer = self._open.pop(name, None)
        if consumer is not None:
            consumer.close()
        return consumer is not None

    def replay(self, name: str) -> bool:
        """Set the position of a group back to the first record."""
        running = self.stop(name)
        self._log.reset_group(name, _TOPIC, EARLIEST)
        return self.start(name) if running else True

    def poll(self, name: str, records: int) -> None:
        consumer = self._open.get(name)
        if consumer is None or not records:
            return
        if found := consumer.poll(max_records=records):
            self.read[name] += len(found)
            with self._commits.transaction() as transaction:
                transaction.commit_offsets(consumer)

    def seen(self) -> tuple[tuple[str, Reading], ...]:
        return tuple((name, self._reading(name)) for name in self.read)

    def _reading(self, name: str) -> Reading:
        (lag,) = self._log.group(name).lags
        return Reading(lag.committed or 0, lag.records, self.read[name], name in self._open)

    def close(self) -> None:
        for name in list(self._open):
            self.stop(name)
        self._commits.close()


@lru_cache(maxsize=32)
def history(setup: Setup) -> tuple[Moment, ...]:
    """The log and its groups after each step, from the beginning."""
    with stage() as (log, clock), contextlib.closing(_Readers(log)) as readers:
        log.create_topic(_TOPIC)
        for name in FIRST:
            readers.start(name)
        bursts = _bursts(setup.seed)
        moments = [Moment(0, 0, readers.seen())]
        written = 0
        with log.producer(acks="written") as producer:
            for step in range(1, STEPS + 1):
                clock.sleep(SECOND)
                done = tuple(act for act in setup.actions_before(step, STEPS) if _do(readers, act))
                with producer.transaction() as transaction:
                    for order in range(written, written + bursts[step - 1]):
                        transaction.send(_TOPIC, f"order {order}")
                written += bursts[step - 1]
                for name in readers.read:
                    readers.poll(name, _due(setup.number(name), step))
                kept = log.topic(_TOPIC).records
                moments.append(Moment(written, kept, readers.seen(), done))
    return tuple(moments)


def _bursts(seed: int) -> tuple[int, ...]:
    """The records of each second: none, one or two, until all are written."""
    rng, left, bursts = random.Random(seed), RECORDS, []
    for _ in range(STEPS):
        bursts.append(min(left, rng.choice((0, 1, 1, 2))))
        left -= bursts[-1]
    return tuple(bursts)


def _do(readers: _Readers, action: str) -> bool:
    match action:
        case "join":
            return readers.start(LATE)
        case "pause":
            return readers.stop(SLOW)
        case "resume":
            return readers.start(SLOW)
        case _:
            return readers.replay(REPLAYED)


def _due(speed: float, step: int) -> int:
    """The records that a consumer can handle in one second: 0.4 are two in five seconds."""
    return math.floor(speed * step + 1e-9) - math.floor(speed * (step - 1) + 1e-9)
