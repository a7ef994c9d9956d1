"""Sending record by record, in batches limited by size and time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from headrace.errors import HeadraceError, MisusedHandle, Retryable, UserError
from headrace.forks import in_child
from headrace.log.committer import Committer
from headrace.log.pending import Either, Outcome, Rows, Sent, Taken, take_all, waiting_rows
from headrace.log.record import Header
from headrace.log.roles import Delivery, Producer
from headrace.log.split import MAX_COMMIT_BYTES, Piece
from headrace.log.state import Receipt

_QUEUE = 8
"""Full batches that may queue up with `acks="none"` before `send` blocks."""

_STEP_IN = 0.001
"""Seconds that the background thread leaves an overdue batch to the next `send`."""


class Outbox(Producer):
    """The half of a producer that sends.

    The `send` that fills a batch commits it, so a slow disk slows down a fast caller (back
    pressure). Once `linger` has passed, the next `send` commits the batch, or else a background
    thread does. With `acks="none"` that thread makes all commits.

    Threads meet here without a lock, so the order of steps matters. A commit resets everything,
    replaces the current batch by a new one, and only then takes the records. `send` notes the
    current batch, adds its record, and compares. If the batch is the same, the record is in it; if
    not, it is in one of the two. A record that was not taken finds everything reset, so its own
    `send` schedules the next commit.
    """

    def __init__(
        self, committer: Committer, *, wait: bool, linger: timedelta, batch_bytes: int
    ) -> None:
        self._committer = committer
        self._wait = wait
        self._linger = linger.total_seconds()
        self._batch_bytes = batch_bytes
        self._rows: dict[str, Rows] = {}
        self._retired: list[Rows] = []  # only a `send` in progress may still add to these
        self._sent = Sent(self.flush_for)
        self._full: deque[Sent] = deque()
        self._size = 0
        self._trip = 0  # the size from which `send` takes the slow path
        self._empty = True
        self._overdue = False
        self._opening = threading.Lock()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: HeadraceError | None = None
        self._closed = False
        self._inherited = False
        in_child(self, Outbox._inherit)

    def send(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        headers: Sequence[Header] | None = None,
        partition: int | None = None,
    ) -> Delivery:
        rows = self._rows.get(topic)
        if rows is None:
            rows = self._open(topic)
        sent = self._sent
        try:
            size = self._size = self._size + rows.add(value, key, headers, partition)
        except UserError:
            size = self._committer.add(rows, value, key, headers, partition)
            size = self._size = self._size + size
        return sent if size < self._trip and sent is self._sent else self._tripped(sent)

    def flush(self) -> None:
        self._drain()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def flush_for(self, sent: Outcome) -> None:
        """Commit a batch. Errors of other batches are left for `flush` to raise."""
        try:
            self.flush()
        except HeadraceError as error:
            if not sent.done:
                raise
            self._failure = None if error is sent.error else error

    def check_open(self) -> None:
        """Check that this producer can still be used."""
        if self._closed:
            raise MisusedHandle("This producer is closed", hint="Create another: log.producer()")
        self.check_process()

    def check_process(self) -> None:
        """Check that this process created the producer."""
        if self._inherited:
            raise MisusedHandle(
                "This producer belongs to the process that this one was forked from",
                hint="Create another: log.producer()",
            )

    def close(self) -> None:
        if self._closed or self._inherited:  # what was sent is the parent's to commit
            return
        # First refuse new sends; then commit what was sent.
        self._closed = True
        with self._opening:
            self._retired += self._rows.values()
            self._rows = {}
        try:
            self.flush()
        finally:
            self._stop.set()
            self._wake.set()
            if self._thread is not None:
                self._thread.join()
            self._committer.close()

    @property
    def waiting(self) -> bool:
        """True if there are sent records that are not committed."""
        return bool(self._full) or not all(rows.empty for rows in self._all_rows())

    # Inside

    def _inherit(self) -> None:
        """Refuse all further use, in a fork of the process that created this producer."""
        self._inherited = True
        self._trip = 0  # or `send` would not check
        self._opening = threading.Lock()
        self._committer.lock = threading.RLock()

    def _all_rows(self) -> list[Rows]:
        return [*self._rows.values(), *self._retired]

    def _open(self, topic: str) -> Rows:
        with self._opening:
            self.check_open()
            rows = self._rows.get(topic)
            if rows is None:
                rows = self._rows[topic] = waiting_rows(self._committer.topic(topic))
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="headrace-linger", daemon=True
                )
                self._thread.start()
        return rows

    def _tripped(self, before: Sent) -> Delivery:
        """The slow path of `send`: the record is the first of a batch, or fills one, or a batch is
        overdue or was just taken, or the producer is being closed."""
        self.check_process()
        now = self._sent
        delivery = now if now is before else Either(before, now)
        if self._empty and not self._closed:
            self._empty = False
            self._trip = self._batch_bytes
            self._wake.set()
        if not self._closed and self._size < self._batch_bytes and not self._overdue:
            return delivery
        if not self._wait and self._size <= min(_QUEUE * self._batch_bytes, MAX_COMMIT_BYTES):
            self._wake.set()
            return delivery
        try:
            self._drain()
        except Retryable:
            # The record is in the queue, so raising would make the caller send it twice; `flush`
            # will raise. But the queue needs a limit.
            if self._closed or sum(sent.size for sent in [*self._full]) > MAX_COMMIT_BYTES:
                raise
        return delivery

    def _drain(self) -> None:
        """Commit all that was sent, in order. A batch with a retryable error stays first."""
        self.check_process()
        first: HeadraceError | None = None
        with self._committer.lock:
            self._seal()
            while self._full:
                sent = self._full[0]
                try:
                    receipt, error = self._commit(sent)
                except Retryable:
                    raise
                except HeadraceError as failure:
                    receipt, error = None, failure
                    self._committer.doubt()
                sent.end(receipt, error)
                self._full.popleft()
                first = first or error
        if first is not None:
            raise first

    def _seal(self) -> None:
        size, self._size = self._size, 0
        self._trip = 0
        self._empty = True
        self._overdue = False
        sent, self._sent = self._sent, Sent(self.flush_for)
        sent.taken = take_all(self._all_rows())
        sent.size = size
        if sent.taken:
            self._full.append(sent)
        else:
            sent.end(Receipt(None, 0, ()), None)

    def _commit(self, sent: Sent) -> tuple[Receipt, HeadraceError | None]:
        """Commit a batch, without the rows of topics that are gone."""
        # The number stays with the batch, so that a retry after a lost answer adds nothing.
        if sent.sequence is None:
            sent.sequence = self._committer.last_own = self._committer.next_sequence

        def make() -> list[Piece]:
            pieces = []
            for taken in list(sent.taken):
                try:
                    pieces += self._committer.pieces_of(taken)
                except UserError as error:
                    sent.refused = sent.refused or error
                    sent.taken.remove(taken)
                    self._retire(taken)
            return pieces

        receipt = self._committer.commit(make, sent.sequence)
        for taken in sent.taken:
            taken.rows.topic = self._committer.topic(taken.topic.name)
        return receipt, sent.refused

    def _retire(self, taken: Taken) -> None:
        """Make the next `send` to a deleted topic look it up again."""
        self._committer.forget(taken.topic.name)
        with self._opening:
            if self._rows.get(taken.topic.name) is taken.rows:
                self._retired.append(self._rows.pop(taken.topic.name))

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            self._stop.wait(self._linger)
            if self._wait:
                # A `send` commits at less cost than this thread, which contends with the sender
                # for the GIL. So it steps in only when nobody sends.
                self._overdue = True
                self._trip = 0
                self._stop.wait(_STEP_IN)
            if self._stop.is_set():
                return
            if self._wait and not self._overdue:
                continue
            try:
                self._drain()
            except Retryable:
                continue  # the batch stays queued, and `flush` will try again
            except HeadraceError as error:
                # The sender is in another thread; `flush` and `close` will raise it.
                self._failure = error
