"""The same messages, handed out by a work queue and read by consumer groups, on a virtual clock.

One topic carries both. A crash is that of a process: it settles, commits and polls nothing more,
so a lease or a session has to end before somebody else goes on.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache

from headrace.clock import SECOND
from headrace.errors import LeaseLost
from headrace.log import Consumer, Log, Producer
from headrace.log.position import EARLIEST
from headrace.queue import Message, Outcome, WorkQueue, create_queue, open_queue, seek
from headrace.studio.learn.simulation import Setup
from headrace.studio.learn.stage import stage

MESSAGES = 16
STEPS = 36
PARTITIONS = 2
MEMBERS = 2
SESSION = 5
"""Seconds without a poll after which a group goes on without a member."""
ONCE = "at-most-once"
_TOPIC, _QUEUE, _BILLING, _ANALYTICS = "orders", "work", "billing", "analytics"
_CUSTOMERS = 5

Place = tuple[int, int]
"""The partition and the offset of a message."""


@dataclass(frozen=True)
class Hand:
    """A worker of the queue or a member of the group, and the message that it is busy with."""

    name: str
    alive: bool
    message: int | None = None
    delivery: int = 1
    partitions: tuple[int, ...] = ()


@dataclass(frozen=True)
class Side:
    """The queue, or the group: who works, what is done how often, and what is lost."""

    hands: tuple[Hand, ...]
    done: tuple[int, ...]
    """The times that each message was handled to the end."""
    again: int
    """Messages that were handed out once more."""
    lost: frozenset[int]
    left: int
    """Messages that wait or are in flight; of the group, its lag."""

    @property
    def twice(self) -> int:
        return sum(times > 1 for times in self.done)


@dataclass(frozen=True)
class Moment:
    """The topic, the queue over it and its groups after a step."""

    written: int
    kept: int
    queue: Side
    waiting: int
    group: Side
    analytics: int
    """Records that analytics has read; more than there are once it has replayed."""
    said: tuple[str, ...] = ()


@dataclass
class _Worker:
    """A process that works on one message at a time, for so many seconds."""

    name: str
    finish: Callable[[], bool]
    """Settles or commits what it has; False if somebody else has it by now."""
    close: Callable[[], None]
    message: int | None = None
    delivery: int = 1
    until: int = 0
    alive: bool = True


@dataclass
class _Hub:
    """All that read the topic, and what each has done."""

    log: Log
    setup: Setup
    written: int = 0
    workers: list[_Worker] = field(default_factory=list)
    members: list[_Worker] = field(default_factory=list)
    queues: dict[str, WorkQueue] = field(default_factory=dict)
    consumers: dict[str, Consumer] = field(default_factory=dict)
    taken: dict[str, Message] = field(default_factory=dict)
    done: dict[str, Counter[int]] = field(
        default_factory=lambda: {_QUEUE: Counter(), _BILLING: Counter()}
    )
    seen: Counter[int] = field(default_factory=Counter)
    again: Counter[str] = field(default_factory=Counter)
    read: int = 0
    started: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.once = self.setup.text("delivery") == ONCE
        self.log.create_topic(_TOPIC, partitions=PARTITIONS)
        settings = {
            "lease": timedelta(seconds=self.setup.number("lease")),
            "delivery": self.setup.text("delivery"),
            "max_deliveries": None,
        }
        self.queue = create_queue(self.log, _QUEUE, topic=_TOPIC, settings=settings)
        self.analytics = self._read(_ANALYTICS)
        for _ in range(self.setup.whole("workers")):
            self.workers.append(self._worker())
        for _ in range(MEMBERS):
            self.members.append(self._member())

    # Who works

    def _worker(self) -> _Worker:
        self.started["w"] += 1
        name = f"w{self.started['w']}"
        queue = self.queues[name] = open_queue(self.log, _QUEUE, worker=name)

        def finish() -> bool:
            try:
                queue.accept(self.taken.pop(name))
            except LeaseLost:
                return False
            return True

        return _Worker(name, finish, queue.close)

    def _member(self) -> _Worker:
        self.started["b"] += 1
        name = f"b{self.started['b']}"
        consumer = self.consumers[name] = self.log.consumer(
            _TOPIC,
            group=_BILLING,
            commit="before" if self.once else "manual",
            session=timedelta(seconds=SESSION),
        )

        def finish() -> bool:
            if not self.once:
                consumer.commit()
            return True

        return _Worker(name, finish, consumer.close)

    def _read(self, group: str) -> Consumer:
        return self.log.consumer(_TOPIC, group=group, commit="after")

    def write(self, producer: Producer, messages: int, rng: random.Random) -> None:
        """Write the next messages, each with its number and a customer as its key."""
        with producer.transaction() as transaction:
            for _ in range(messages):
                self.written += 1
                customer = f"customer {rng.randint(1, _CUSTOMERS)}"
                transaction.send(_TOPIC, str(self.written), customer)

    # A second of work

    def work(self, step: int) -> list[str]:
        said = []
        for worker in self.workers:
            said += self._turn(worker, _QUEUE, step, self._take)
        for member in self.members:
            said += self._turn(member, _BILLING, step, self._poll)
        self.read += len(self.analytics.poll())
        return said

    def _turn(
        self, one: _Worker, side: str, step: int, take: Callable[[_Worker], None]
    ) -> list[str]:
        """Finish what is due, and take the next message."""
        said: list[str] = []
        if not one.alive:
            return said
        if one.message is not None and step >= one.until:
            self.done[side][one.message] += 1
            if not one.finish():
                said.append(
                    f"{one.name} has done message {one.message}, but its lease is gone: the queue "
                    "hands it out again."
                )
            one.message = None
        if one.message is None:
            take(one)
            one.until = step + self.setup.whole("work")
        return said

    def _take(self, worker: _Worker) -> None:
        for message in self.queues[worker.name].take():
            self.taken[worker.name] = message
            worker.message = int(message.text)
            worker.delivery = message.deliveries
            self.again[_QUEUE] += message.deliveries > 1

    def _poll(self, member: _Worker) -> None:
        for record in self.consumers[member.name].poll(max_records=1):
            member.message = int(record.value)
            self.seen[member.message] += 1
            member.delivery = self.seen[member.message]
            self.again[_BILLING] += member.delivery > 1

    # What a person does

    def act(self, action: str) -> str:
        match action:
            case "crash-worker":
                return self._crash(self.workers, "Its message waits until the lease ends.")
            case "crash-member":
                return self._crash(self.members, "Its partitions wait until its session ends.")
            case "restart":
                return self._restart()
            case "seek":
                seek(self.queue, EARLIEST)
                return "The queue was set back: every message waits again, as work."
            case _:
                self.analytics.close()
                self.log.reset_group(_ANALYTICS, _TOPIC, EARLIEST)
                self.analytics = self._read(_ANALYTICS)
                return "Analytics was set back: it reads everything again, and nobody else notices."

    def _crash(self, among: list[_Worker], then: str) -> str:
        alive = [one for one in among if one.alive]
        if not alive:
            return "Nobody is left to crash."
        one = next((each for each in alive if each.message is not None), alive[0])
        one.alive = False
        if one.message is None:
            return f"{one.name} has crashed. It was idle."
        lost = " It was accepted before, so it is lost." if self.once else f" {then}"
        return f"{one.name} has crashed with message {one.message}.{lost}"

    def _restart(self) -> str:
        new = []
        for among, start in ((self.workers, self._worker), (self.members, self._member)):
            for place, one in enumerate(among):
                if not one.alive:
                    among[place] = start()
                    new.append(f"{among[place].name} for {one.name}")
        return f"Started again: {', '.join(new)}." if new else "Everybody runs."

    # What there is

    def moment(self, said: list[str]) -> Moment:
        state = self.queue.state()
        places = {
            (record.partition, record.offset): int(record.value)
            for batch in self.log.read(_TOPIC)
            for record in batch.records()
        }
        lags = self.log.group(_BILLING).lags
        positions = {lag.partition: lag.committed or 0 for lag in lags}
        past = {n for (p, offset), n in places.items() if offset < positions.get(p, 0)}
        return Moment(
            self.written,
            self.log.topic(_TOPIC).records,
            self._side(_QUEUE, self.workers, self._accepted(places), state.unfinished),
            state.waiting,
            self._side(_BILLING, self.members, past, sum(lag.records for lag in lags)),
            self.read,
            tuple(said),
        )

    def _accepted(self, places: Mapping[Place, int]) -> set[int]:
        """The messages that were accepted, by the journal, since the queue was set back."""
        found: set[int] = set()
        for batch in self.log.read(self.queue.row.journal):
            for line in batch.data.to_pylist():
                partition, offset = line["partition"], line["offset"]
                if line["outcome"] == Outcome.ACCEPTED:
                    found.add(places[partition, offset])
                else:
                    found -= {n for (p, _), n in places.items() if p == partition}
        return found

    def _side(self, side: str, hands: list[_Worker], finished: set[int], left: int) -> Side:
        busy = {one.message for one in hands if one.alive}
        done = self.done[side]
        lost = {number for number in finished if not done[number] and number not in busy}
        return Side(
            tuple(self._hand(one, side) for one in hands),
            tuple(done[number] for number in range(1, MESSAGES + 1)),
            self.again[side],
            frozenset(lost),
            left,
        )

    def _hand(self, one: _Worker, side: str) -> Hand:
        partitions: tuple[int, ...] = ()
        if side == _BILLING and one.alive:
            assigned = self.consumers[one.name].assignment
            partitions = tuple(sorted(partition for _, partition in assigned))
        return Hand(one.name, one.alive, one.message, one.delivery, partitions)

    def close(self) -> None:
        for one in (*self.workers, *self.members):
            one.close()
        self.analytics.close()
        self.queue.close()


@lru_cache(maxsize=32)
def history(setup: Setup) -> tuple[Moment, ...]:
    """The topic and its readers after each step, from the beginning."""
    with stage() as (log, clock), contextlib.closing(_Hub(log, setup)) as hub:
        rng = random.Random(setup.seed)
        moments = [hub.moment([])]
        with log.producer(acks="written") as producer:
            for step in range(1, STEPS + 1):
                clock.sleep(SECOND)
                said = [hub.act(action) for action in setup.actions_before(step, STEPS)]
                hub.write(producer, min(MESSAGES - hub.written, rng.choice((0, 1, 1, 2))), rng)
                said += hub.work(step)
                moments.append(hub.moment(said))
    return tuple(moments)
