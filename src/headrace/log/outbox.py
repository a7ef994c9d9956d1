"""Sending record by record: batches that fill up by size or by time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from headrace.errors import HeadraceError, MisusedHandle, Retryable, UserError
from headrace.forks import in_child
from headrace.log.committer import Committer
from headrace.log.delivery import Either, Outcome, Sent
from headrace.log.pending import Rows, Taken, take_all, waiting_rows
from headrace.log.record import Header
from headrace.log.roles import Delivery, Producer
from headrace.log.split import MAX_COMMIT_BYTES, Piece
from headrace.log.state import Receipt

_QUEUE = 8
"""Full batches that may gather behind `acks="none"` before `send` blocks."""

_STEP_IN = 0.001
"""Seconds that the background thread leaves an overdue batch to whoever sends."""


class Outbox(Producer):
    """The half of a producer that sends.

    A batch is committed by the `send` that fills it, which is how a slow disk slows down whoever
    writes too fast. When `linger` has passed it is committed by the next `send`, or if there is
    none by a thread in the background. With `acks="none"` that thread commits them all.

    The order of things matters where threads meet without a lock. A commit resets everything,
    puts a new batch in place of the old one, and only then takes the records. `send` looks which
    batch is current, puts its record in, and looks again. If it is the same batch, the record goes
    with it; if not, it goes with one of the two. And a record that was not taken finds everything
    reset, so its own `send` sees to it that it will be.
    """

    def __init__(
        self, committer: Committer, *, wait: bool, linger: timedelta, batch_bytes: int
    ) -> None:
        self._committer = committer
        self._wait = wait
        self._linger = linger.total_seconds()
        self._batch_bytes = batch_bytes
        self._rows: dict[str, Rows] = {}
        self._retired: list[Rows] = []  # nothing new is sent to these, but by those who are at it
        self._sent = Sent(self.flush_for)
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
        """Have a batch committed. What became of others is left for `flush` to tell."""
        try:
            self.flush()
        except HeadraceError as error:
            if not sent.done:
                raise
            self._failure = None if error is sent.error else error

    def check_open(self) -> None:
        """Return if this producer can still be used."""
        if self._closed:
            raise MisusedHandle("This producer is closed", hint="Make another: log.producer()")
        self.check_process()

    def check_process(self) -> None:
        """Return if this is the process that the producer was made in."""
        if self._inherited:
            raise MisusedHandle(
                "This producer belongs to the process that this one was forked from",
                hint="Make another: log.producer()",
            )

    def close(self) -> None:
        if self._closed or self._inherited:  # what was sent is the parent's to commit
            return
        # First nobody new may send; then what was sent is committed.
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
        """Whether there is anything that was sent and not committed."""
        return bool(self._full) or not all(rows.empty for rows in self._all_rows())

    # Inside

    def _inherit(self) -> None:
        """Refuse whatever comes next, in a child of the process that made this producer."""
        self._inherited = True
        self._trip = 0  # or `send` would not look
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
        """The record is the first of a batch, or fills one, or one has waited for long enough, or
        one was taken at this very moment, or the producer is being closed."""
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
            # The record is in the queue, and raising would have it sent again; `flush` will tell.
            # But a queue has to end somewhere.
            if self._closed or sum(sent.size for sent in [*self._full]) > MAX_COMMIT_BYTES:
                raise
        return delivery

    def _drain(self) -> None:
        """Commit all that was sent, in order. What may succeed later stays first in line."""
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
        """Commit a batch, but for the rows of a topic that is gone: others are not to suffer."""
        # The number stays with the batch, so that trying again after a lost answer adds nothing.
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
        """Have the next `send` to a topic that is gone look whether there is one again."""
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
