"""What the demo's processes do: `python -m headrace.cli.demonstration.worker ROLE PLAN`.

They go on until their standard input is closed, which also happens if whoever started them dies.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
from datetime import timedelta

from headrace.cli.demonstration.plan import PRODUCER, READERS, Plan, Reader, orders
from headrace.clock import SECOND, SystemClock, to_datetime
from headrace.log import Log, open_log

_WAIT = timedelta(milliseconds=100)
_PORTIONS_PER_SECOND = 40


class Pace:
    """Passes the time so that no more than so many events are handled in a second."""

    def __init__(self, per_second: float) -> None:
        self._clock = SystemClock()
        self._per_second = per_second
        self._due = self._clock.now()

    def keep(self, events: int) -> None:
        """Return when so many events may have been handled. Time lost is not made up for."""
        now = self._clock.now()
        self._due = max(self._due, now) + int(events / self._per_second * SECOND)
        self._clock.sleep(self._due - now)


def produce(log: Log, plan: Plan, stop: threading.Event) -> None:
    """Write what is not in the log yet, and print how many events it has acknowledged."""
    clock = SystemClock()
    with log.producer(id=plan.producer, acks="synced") as producer:
        done = min(plan.events, producer.next_sequence * plan.chunk)
        events = itertools.islice(orders(plan), done, None)
        pace = Pace(plan.rate)
        while done < plan.events and not stop.is_set():
            now = to_datetime(clock.now())
            with producer.transaction() as transaction:
                for event in itertools.islice(events, plan.chunk):
                    transaction.send(plan.topic, event | {"at": now})
                    done += 1
            print(done, flush=True)
            pace.keep(plan.chunk)


def consume(log: Log, plan: Plan, reader: Reader, stop: threading.Event) -> None:
    """Note every event in the group's ledger. The group moves on when a whole poll is noted."""
    clock = SystemClock()
    pace = None if reader.speed is None else Pace(plan.rate * reader.speed)
    every = reader.every * plan.tempo
    most = max(1, int(plan.rate * (reader.speed or 1) * (every or 1)))
    portion = max(1, int(plan.rate / _PORTIONS_PER_SECOND))
    ledger = os.open(plan.ledger(reader.group), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    with log.consumer(plan.topic, group=reader.group, instance=reader.group) as consumer:
        while not stop.is_set():
            due = clock.now() + int(every * SECOND)
            for batch in consumer.poll_batches(_WAIT, most):
                numbers = batch.data.column("number").to_numpy()
                for start in range(0, len(numbers), portion):
                    part = numbers[start : start + portion]
                    os.write(ledger, part.tobytes())
                    if pace is not None:
                        pace.keep(len(part))
            clock.sleep(max(0, due - clock.now()))


def main() -> None:
    role, plan = sys.argv[1], Plan.from_json(sys.argv[2])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stop = threading.Event()
    threading.Thread(target=_wait_for_end, args=(stop,), daemon=True).start()
    with open_log(plan.url, create=False) as log:
        if role == PRODUCER:
            produce(log, plan, stop)
        else:
            consume(log, plan, next(r for r in READERS if r.group == role), stop)


def _wait_for_end(stop: threading.Event) -> None:
    # Not sys.stdin, whose lock must not be held when Python ends.
    while os.read(0, 1):
        pass
    stop.set()


if __name__ == "__main__":
    main()
