"""Sending record by record: batches that fill up by size or by time."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from headrace.errors import HeadraceError, MisusedHandle, Retryable, UserError
from headrace.log.file.appender import Piece
from headrace.log.file.committer import Committer
from headrace.log.file.pending import Rows, Taken, take_all, waiting_rows
from headrace.log.file.split import MAX_COMMIT_BYTES
from headrace.log.interface import Delivery, Producer
from headrace.log.record import Header
from headrace.log.state import Receipt

_QUEUE = 8
"""Full batches that may gather behind `acks="none"` before `send` blocks."""

_STEP_IN = 0.001
"""Seconds that the background thread leaves an overdue batch to whoever sends."""


class Sent(Delivery):
    """One batch of sent records, over all topics. Every `send` into it returns it.

    A record may have gone with the `previous` batch instead, if that was taken at the very moment
    of its `send`. So what became of an empty batch is what became of the one before it.
    """

    def __init__(self, outbox: Outbox, previous: Sent | None) -> None:
        self._outbox = outbox
        self.previous = previous
        self.taken: list[Taken] = []
        self.sequence: int | None = None
        self.receipt: Receipt | None = None
        self.error: HeadraceError | None = None

    @property
    def done(self) -> bool:
        return self.receipt is not None or self.error is not None

    def wait(self) -> Receipt:
        if not self.done:
            self._outbox.flush()
        return self._outcome()

    def end(self, receipt: Receipt | None, error: HeadraceError | None) -> None:
        """Hear what became of the batch."""
        self.receipt, self.error = receipt, error
        self.taken, self.previous = [], None

    def _outcome(self) -> Receipt:
        if self.error is not None:
            raise self.error
        if self.receipt is not None:
            return self.receipt
        return Receipt(None, 0, ()) if self.previous is None else self.previous._outcome()


class Outbox(Producer):
    """The half of a producer that sends.

    A batch is committed by the `send` that fills it, which is how a slow disk slows down whoever
    writes too fast. When `linger` has passed it is committed by the next `send`, or if there is
    none by a thread in the background. With `acks="none"` that thread commits them all.

    The order of things matters where threads meet without a lock. `send` puts its record in
    before it looks at anything else; a commit resets everything before it takes the records. So a
    record that was not taken is noticed by its own `send`, and the delivery that `send` returns is
    never done before the record is in the log.
    """

    def __init__(
        self, committer: Committer, *, wait: bool, linger: timedelta, batch_bytes: int
    ) -> None:
        self._committer = committer
        self._wait = wait
        self._linger = linger.total_seconds()
        self._batch_bytes = batch_bytes
        self._rows: dict[str, Rows] = {}
        self._sent = Sent(self, None)
        self._full: deque[Sent] = deque()
        self._size = 0
        self._trip = 0  # the size at which `send` has to do more than send
        self._empty = True
        self._overdue = False
        self._opening = threading.Lock()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: HeadraceError | None = None
        self._closed = False

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
        try:
            size = self._size = self._size + rows.add(value, key, headers, partition)
        except UserError:
            size = self._committer.add(rows, value, key, headers, partition)
            size = self._size = self._size + size
        return self._sent if size < self._trip else self._tripped()

    def flush(self) -> None:
        self._drain()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def check_open(self) -> None:
        """Return if this producer can still be used."""
        if self._closed:
            raise MisusedHandle("This producer is closed", hint="Make another: log.producer()")

    def close(self) -> None:
        if self._closed:
            return
        try:
            self.flush()
        finally:
            self._closed = True
            self._rows.clear()
            self._stop.set()
            self._wake.set()
            if self._thread is not None:
                self._thread.join()

    # Inside

    def _open(self, topic: str) -> Rows:
        self.check_open()
        with self._opening:
            rows = self._rows.get(topic)
            if rows is None:
                rows = self._rows[topic] = waiting_rows(self._committer.topic(topic))
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="headrace-linger", daemon=True
                )
                self._thread.start()
        return rows

    def _tripped(self) -> Delivery:
        """The record is the first of a batch, or fills one, or one has waited for long enough."""
        sent = self._sent
        if self._empty:
            self._empty = False
            self._trip = self._batch_bytes
            self._wake.set()
        if self._size < self._batch_bytes and not self._overdue:
            return sent
        if self._wait or self._size > min(_QUEUE * self._batch_bytes, MAX_COMMIT_BYTES):
            self._drain()
        else:
            self._wake.set()
        return sent

    @property
    def waiting(self) -> bool:
        """Whether there is anything that was sent and not committed."""
        return bool(self._full) or not all(rows.empty for rows in [*self._rows.values()])

    def _drain(self) -> None:
        """Commit all that was sent, in order. What may succeed later stays first in line."""
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
                if error is not None:
                    raise error

    def _seal(self) -> None:
        self._size = self._trip = 0
        self._empty = True
        self._overdue = False
        sent = self._sent
        self._sent = following = Sent(self, sent)
        sent.taken = take_all([*self._rows.values()])
        if sent.taken:
            self._full.append(sent)
        else:
            following.previous = sent.previous

    def _commit(self, sent: Sent) -> tuple[Receipt, HeadraceError | None]:
        """Commit a batch, but for the rows of a topic that is gone: others are not to suffer."""
        # The number stays with the batch, so that trying again after a lost answer adds nothing.
        if sent.sequence is None:
            sent.sequence = self._committer.last_own = self._committer.next_sequence
        failures: list[UserError] = []
        topics = [taken.rows for taken in sent.taken]

        def make() -> list[Piece]:
            pieces = []
            for taken in list(sent.taken):
                try:
                    pieces += self._committer.pieces_of(taken)
                except UserError as error:
                    failures.append(error)
                    sent.taken.remove(taken)
            return pieces

        try:
            receipt = self._committer.commit(make, sent.sequence)
        finally:
            for rows in topics:
                with contextlib.suppress(HeadraceError):  # it has been deleted
                    rows.topic = self._committer.topic(rows.topic.name)
        return receipt, failures[0] if failures else None

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            self._stop.wait(self._linger)
            if self._wait:
                # Whoever is sending commits cheaper than a thread that fights for the
                # interpreter with them; this one steps in when nobody is.
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
                continue  # the batch is still there, and `flush` will try it again
            except HeadraceError as error:
                # Whoever sent is not here to be told; `flush` and `close` will tell them.
                self._failure = error
