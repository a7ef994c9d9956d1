"""The work queue against RabbitMQ, and against itself when it is long.

`put` and `accept`: messages of 100 bytes per second into a queue, and out of one that is full, with
1 and 8 client processes on each side. Producers have up to 1,000 messages under way that are not
confirmed yet; `put each` waits for each message. `through`: producers and workers at once, from the
first put to the last accept. `accept, concurrency 8` is one process of ours with 8 threads against
RabbitMQ's 8 processes. `latency`: from the call that puts a message to its handler, in an idle
queue. `waiting` and `keys`: what the first of a million messages cost to accept, against a short
queue; and in order of a million keys, against few.

RabbitMQ is a node on this machine from Debian's packages (`make services`), its queue a durable
quorum queue of one member, with confirms, manual acks and a prefetch of 100; pika is its client.

Durability: a put is on disk (fsync) before it returns, on both sides. An accept of ours is, too. An
ack to RabbitMQ returns at once, and what a crash takes back of them is handed out again.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from bench.baselines import rabbitmq
from bench.measure import Progress, Result, cost, rate, report
from headrace.log import open_log
from headrace.queue import (
    Message,
    NewMessage,
    QueueSettings,
    Worker,
    WorkQueue,
    create_queue,
    open_queue,
)
from tests.servers.rabbitmq import RabbitMQ

BODY = b"x" * 100
WINDOW = 1_000
Body = Callable[[], bytes]
QUEUE = "work"

_AGAIN = 0.005
"""Seconds between two looks at a counter."""

DURABILITY = {
    "ours": "fsync before a put or an accept returns",
    "RabbitMQ": "quorum queue: fsync before a put is confirmed; an ack is not confirmed",
}


def run(*, quick: bool = False, progress: Progress = lambda _: None) -> dict[str, Any]:
    """Run the benchmark; `quick` takes a twentieth of the data, as a smoke test."""
    scale = 20 if quick else 1
    settings: dict[str, Any] = {
        "body_bytes": len(BODY),
        "messages": 100_000 // scale,
        "messages_each": 4_000 // scale,
        "latencies": 400 // scale,
        "waiting": 1_000_000 // scale,
        "keys": 1_000_000 // scale,
        "accepted_of_waiting": 20_000 // scale,
        "rounds": 1 if quick else 3,
        "durability": DURABILITY,
    }
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as home, RabbitMQ.running() as node:
        sides = [Ours(Path(home)), Theirs(node)]
        results = [
            *_throughput(sides, settings, progress),
            _latency(sides, settings["latencies"], progress),
            *_long(Ours(Path(home)), settings, progress),
        ]
    return report("queue", settings, results)


class Side:
    """A kind of queue. It is sent to the processes that use it."""

    def create(self) -> None:
        """Make an empty queue."""
        raise NotImplementedError

    def put(self, count: int, begin: Callable[[], Any]) -> None:
        """Put messages with a window."""
        raise NotImplementedError

    def put_each(self, count: int, begin: Callable[[], Any], body: Body) -> None:
        """Put messages one by one."""
        raise NotImplementedError

    def work(
        self, tally: Tally, stop: threading.Event, begin: Callable[[], Any], concurrency: int = 1
    ) -> None:
        """Accept messages until it is told to stop."""
        raise NotImplementedError


@dataclass
class Tally:
    """The messages that a process has accepted, and the time of each, if it is to say."""

    counts: Any
    index: int
    latencies: Any = None

    def handled(self, body: bytes) -> None:
        """Count a message, or note its latency."""
        if self.latencies is not None:
            self.latencies.put(time.monotonic_ns() - int(body))
        self.counts[self.index] += 1


class Ours(Side):
    def __init__(self, home: Path) -> None:
        self.home = home
        self.url = ""
        self.made = 0

    def create(self, **settings: Any) -> None:
        shutil.rmtree(self.home / str(self.made), ignore_errors=True)
        self.made += 1
        self.url = f"file:{self.home}/{self.made}"
        with open_log(self.url) as log:
            create_queue(log, QUEUE, settings=QueueSettings(**settings)).close()

    @contextlib.contextmanager
    def _open(self) -> Iterator[WorkQueue]:
        with open_log(self.url, create=False) as log, open_queue(log, QUEUE) as queue:
            yield queue

    def put(self, count: int, begin: Callable[[], Any]) -> None:
        message = NewMessage(BODY)
        with self._open() as queue:
            begin()
            for first in range(0, count, WINDOW):
                sent = [queue.send(message) for _ in range(min(WINDOW, count - first))]
                sent[-1].wait()

    def put_each(self, count: int, begin: Callable[[], Any], body: Body) -> None:
        with self._open() as queue:
            begin()
            for _ in range(count):
                queue.put(body())

    def fill(self, count: int, keys: int = 0) -> None:
        """Put many messages, of so many keys."""
        with self._open() as queue:
            queue.put_many(NewMessage(BODY, b"%d" % (n % keys) if keys else None)
                           for n in range(count))  # fmt: skip

    def work(
        self, tally: Tally, stop: threading.Event, begin: Callable[[], Any], concurrency: int = 1
    ) -> None:
        def handle(message: Message) -> None:
            if tally.latencies is not None:
                tally.handled(message.value)

        with self._open() as queue:
            worker = Worker(queue, handle, concurrency=concurrency)
            running = threading.Thread(target=worker.run)
            begin()
            running.start()
            while not stop.is_set():
                if tally.latencies is None:
                    tally.counts[tally.index] = worker.report.accepted
                time.sleep(_AGAIN)
            worker.stop()
            running.join()


class Theirs(Side):
    def __init__(self, node: RabbitMQ) -> None:
        self.url = node.url
        self.made = 0

    @property
    def queue(self) -> str:
        return f"{QUEUE}-{self.made}"

    def create(self) -> None:
        self.made += 1
        rabbitmq.create(self.url, self.queue)

    def put(self, count: int, begin: Callable[[], Any]) -> None:
        rabbitmq.put(self.url, self.queue, BODY, count, WINDOW, begin)

    def put_each(self, count: int, begin: Callable[[], Any], body: Body) -> None:
        rabbitmq.put_each(self.url, self.queue, body, count, begin)

    def work(
        self, tally: Tally, stop: threading.Event, begin: Callable[[], Any], concurrency: int = 1
    ) -> None:
        rabbitmq.work(self.url, self.queue, tally.handled, stop, begin)


_CONTEXT = multiprocessing.get_context("spawn")


def _timed(
    side: Side,
    total: int,
    *,
    producers: int = 0,
    each: bool = False,
    workers: int = 0,
    concurrency: int = 1,
) -> float:
    """Seconds until producers have put and workers have accepted so many messages."""
    start = _CONTEXT.Barrier(producers + workers + 1)
    done = _CONTEXT.Barrier(producers + 1)
    stop = _CONTEXT.Event()
    counts = _CONTEXT.Array("q", max(1, workers), lock=False)
    children: list[BaseProcess] = []
    for index in range(producers):
        share = total * (index + 1) // producers - total * index // producers
        children.append(_CONTEXT.Process(target=_produce, args=(side, share, each, start, done)))
    for index in range(workers):
        arguments = (side, Tally(counts, index), stop, start, concurrency)
        children.append(_CONTEXT.Process(target=_work, args=arguments))
    for child in children:
        child.start()
    start.wait()
    begin = time.perf_counter()
    if producers:
        done.wait()
    while workers and sum(counts) < total:
        assert all(child.exitcode in (None, 0) for child in children), "a client has failed"
        time.sleep(_AGAIN / 5)
    spent = time.perf_counter() - begin
    stop.set()
    for child in children:
        child.join()
    return spent


def _produce(side: Side, share: int, each: bool, start: Any, done: Any) -> None:
    try:
        if each:
            side.put_each(share, start.wait, lambda: BODY)
        else:
            side.put(share, start.wait)
    except BaseException:
        done.abort()
        raise
    done.wait()


def _work(side: Side, tally: Tally, stop: Any, start: Any, concurrency: int) -> None:
    side.work(tally, stop, start.wait, concurrency)


def _throughput(
    sides: list[Side], settings: dict[str, Any], progress: Progress
) -> Iterator[Result]:
    many, few = settings["messages"], settings["messages_each"]
    best: dict[str, list[float]] = {}

    def note(name: str, index: int, spent: float) -> None:
        best.setdefault(name, [float("inf")] * len(sides))
        best[name][index] = min(best[name][index], spent)

    for turn in range(settings["rounds"]):
        for clients in (1, 8):
            progress(f"round {turn + 1}: {clients} clients")
            for index, side in enumerate(sides):
                side.create()
                note(f"put, {clients}", index, _timed(side, many, producers=clients))
                note(f"accept, {clients}", index, _timed(side, many, workers=clients))
                spent = _timed(side, few, producers=clients, each=True)
                note(f"put each, {clients}", index, spent)
                side.create()
                spent = _timed(side, many, producers=clients, workers=clients)
                note(f"through, {clients}", index, spent)
        sides[0].create()
        _timed(sides[0], many, producers=8)
        note("accept, concurrency 8", 0, _timed(sides[0], many, workers=1, concurrency=8))
        note("accept, concurrency 8", 1, best["accept, 8"][1])
    for name, (ours, theirs) in best.items():
        amount = few if "each" in name else many
        yield rate(name, "messages/s", amount, ours, "RabbitMQ, processes", theirs)


def _latency(sides: list[Side], count: int, progress: Progress) -> Result:
    progress("latency")
    ours, theirs = (_latencies(side, count) for side in sides)
    return cost("latency", "ms, median", statistics.median(ours), "RabbitMQ",
                statistics.median(theirs))  # fmt: skip


def _latencies(side: Side, count: int) -> list[float]:
    """Milliseconds from the call that puts a message to its handler."""
    side.create()
    stop = _CONTEXT.Event()
    start = _CONTEXT.Barrier(2)
    found = _CONTEXT.Queue()
    tally = Tally(_CONTEXT.Array("q", 1, lock=False), 0, found)
    child = _CONTEXT.Process(target=_work, args=(side, tally, stop, start, 1))
    child.start()
    start.wait()
    spent: list[float] = []

    def stamped() -> bytes:
        if pending:
            spent.append(found.get(timeout=30) / 1e6)
        pending.append(True)
        time.sleep(0.005)
        return b"%d" % time.monotonic_ns()

    pending: list[bool] = []
    side.put_each(count, lambda: None, stamped)
    stop.set()
    child.join()
    return spent


def _long(ours: Ours, settings: dict[str, Any], progress: Progress) -> Iterator[Result]:
    accepted = settings["accepted_of_waiting"]
    for name, size, ordered in (("waiting", "waiting", False), ("keys", "keys", True)):
        large, spent = settings[size], []
        for count in (accepted, large):
            progress(f"{name}: {count:,}")
            ours.create(ordered=ordered)
            ours.fill(count, keys=count if ordered else 0)
            spent.append(_timed(ours, accepted, workers=1))
        yield cost(
            f"accept of {large:,} {name}", f"ms per 1,000 of {accepted:,} messages",
            spent[1] * 1e6 / accepted, f"of {accepted:,} {name}", spent[0] * 1e6 / accepted,
        )  # fmt: skip
