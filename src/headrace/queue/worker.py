"""A worker: takes messages, runs a handler on them, and settles them.

One thread talks to the queue. It settles everything that was finished meanwhile in one commit, and
takes the next messages with it, so the busier a worker is, the more messages share a commit. A
second thread renews leases, so a message stays with a worker that is alive, however long it takes.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from headrace.clock import SECOND, Clock, SystemClock, micros
from headrace.errors import HeadraceError, InvalidSetting, Retryable, UserError
from headrace.log.queueing import Outcome
from headrace.queue.contract import Message, QueueCapability, Settlement, WorkQueue
from headrace.queue.handling import Handler, handling

log = logging.getLogger(__name__)

_PULSE = 0.002
"""Seconds between looks for new messages while others are being handled."""
_IDLE = timedelta(milliseconds=200)
_PAUSE = SECOND // 4
MOST = 500
"""The most messages that a worker holds if no prefetch is given."""


@dataclass
class WorkReport:
    """Deliveries of a worker: those that it accepted, released after a failure, and rejected, and
    those whose lease it lost."""

    accepted: int = 0
    failed: int = 0
    rejected: int = 0
    lost: int = 0


class Worker:
    """Runs a handler on the messages of a queue.

    `prefetch` bounds the messages that it holds. By default that is what it handled in the last
    quarter of a second: slow messages stay in the queue for other workers, quick ones come in
    large batches. A message that takes longer than `longest` is no longer renewed, so another
    worker gets it.
    """

    def __init__(
        self,
        queue: WorkQueue,
        handler: Handler,
        *,
        concurrency: int = 1,
        prefetch: int | None = None,
        longest: timedelta | None = None,
        clock: Clock | None = None,
    ) -> None:
        if concurrency < 1 or (prefetch is not None and prefetch < 1):
            raise InvalidSetting(
                f"A worker cannot have a concurrency of {concurrency} and a prefetch of {prefetch}",
                hint="Both are at least 1",
            )
        self.queue = queue
        self.report = WorkReport()
        self._handler = handler
        self._concurrency = concurrency
        self._prefetch = prefetch
        self._longest = None if longest is None else micros(longest)
        self._clock = clock or SystemClock()
        self._held: dict[tuple[str, int], tuple[Message, int, int]] = {}
        """Messages that are not settled, with the times when they were taken and renewed."""
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._handled: deque[tuple[int, int]] = deque()

    def stop(self) -> None:
        """Let it end: it finishes what it has begun, and gives the rest back. Thread-safe."""
        self._stop.set()

    @property
    def stopping(self) -> bool:
        """True after `stop`."""
        return self._stop.is_set()

    def run(self, *, until_empty: bool = False) -> WorkReport:
        """Work until `stop` is called, or until the queue has no unfinished message."""
        self._stop.clear()
        over = threading.Event()
        renewing = threading.Thread(
            target=self._renew, args=(over,), name="headrace-renewal", daemon=True
        )
        if QueueCapability.RENEW in self.queue.capabilities:
            renewing.start()
        work = handling(self._handler, self.queue.failed, self._concurrency)
        try:
            while not self._stop.is_set():
                settled = self._finished(work.done)
                taken = self._exchange(settled)
                work.start(taken)
                if until_empty and not self._held and not taken and self._empty():
                    break
            self._settle([_untouched(message) for message in work.withdraw()])
            work.close()
            while self._held and (settled := self._finished(work.done)):
                self._settle(settled)
        finally:
            over.set()
            if renewing.ident is not None:
                renewing.join()
        return self.report

    # The queue

    def _finished(self, done: queue.SimpleQueue[Settlement]) -> list[Settlement]:
        """The settlements that are finished, waiting a moment for one."""
        found: list[Settlement] = []
        if not self._held:
            return found
        try:
            found.append(done.get(timeout=_PULSE))
            while True:
                found.append(done.get_nowait())
        except queue.Empty:
            return found

    def _exchange(self, settled: Sequence[Settlement]) -> list[Message]:
        """Settle messages and take others."""
        room = self._room(len(settled))
        if not settled:
            if not room:
                return []
            taken = self._retrying_take(room)
        else:
            taken = self._settle(settled, room)
        now = self._clock.monotonic()
        with self._lock:
            for message in taken:
                self._held[message.id, message.token] = (message, now, now)
        return taken

    def _retrying_take(self, room: int) -> list[Message]:
        try:
            return self.queue.take(room, timeout=timedelta(0) if self._held else _IDLE)
        except Retryable as error:
            self._pause(error)
            return []

    def _settle(self, settled: Sequence[Settlement], room: int = 0) -> list[Message]:
        """Settle messages, trying again while the log is busy or its disk full."""
        if not settled:
            return []
        while True:
            try:
                lost, taken = self.queue.exchange(settled, room)
                break
            except Retryable as error:
                self._pause(error)
            except UserError as error:
                # What one of them sends cannot be written.
                if len(settled) > 1:
                    for settlement in settled:
                        self._settle([settlement])
                    return []
                if not settled[0].sends:
                    raise
                settled = [self.queue.failed(settled[0].message, f"{error.message}")]
        self._count(settled, lost)
        return taken

    def _count(self, settled: Sequence[Settlement], lost: Sequence[Message]) -> None:
        gone = {(message.id, message.token) for message in lost}
        self.report.lost += len(gone)
        if gone:
            log.warning("the leases of %d messages were lost, so they were not settled", len(gone))
        self._handled.append((self._clock.monotonic(), len(settled)))
        with self._lock:
            for settlement in settled:
                key = (settlement.message.id, settlement.message.token)
                self._held.pop(key, None)
                if key in gone:
                    continue
                match settlement.outcome:
                    case Outcome.ACCEPTED:
                        self.report.accepted += 1
                    case Outcome.REJECTED:
                        self.report.rejected += 1
                    case _ if settlement.counted:
                        self.report.failed += 1

    def _room(self, settled: int) -> int:
        """The number of messages more that it may hold."""
        limit = self._prefetch
        if limit is None:
            since = self._clock.monotonic() - SECOND // 4
            while self._handled and self._handled[0][0] < since:
                self._handled.popleft()
            limit = min(MOST, max(2 * self._concurrency, sum(n for _, n in self._handled)))
        return max(0, limit - len(self._held) + settled)

    def _empty(self) -> bool:
        return self.queue.state().unfinished == 0

    def _pause(self, error: HeadraceError) -> None:
        log.warning("the queue cannot be reached, and will be tried again: %s", error)
        self._clock.sleep(_PAUSE)

    # Leases

    def _renew(self, over: threading.Event) -> None:
        lease = micros(self.queue.settings.lease)
        while not over.wait(lease / 6 / SECOND):
            now = self._clock.monotonic()
            with self._lock:
                due = [
                    message
                    for message, taken, renewed in self._held.values()
                    if now - renewed >= lease // 3
                    and (self._longest is None or now - taken < self._longest)
                ]
            if not due:
                continue
            try:
                self.queue.renew(*due)
            except HeadraceError as error:
                log.warning("leases were not renewed: %s", error)
                continue
            with self._lock:
                for message in due:
                    key = (message.id, message.token)
                    if key in self._held:
                        self._held[key] = (*self._held[key][:2], now)


def _untouched(message: Message) -> Settlement:
    """A message that was not begun goes back as if it had not been taken."""
    return Settlement(
        message, Outcome.RELEASED, (), "the worker stopped before it began", counted=False
    )


def work(
    queue: WorkQueue, handler: Handler, *, concurrency: int = 1, until_empty: bool = False
) -> WorkReport:
    """Run a handler on the messages of a queue, and return what it did."""
    return Worker(queue, handler, concurrency=concurrency).run(until_empty=until_empty)
