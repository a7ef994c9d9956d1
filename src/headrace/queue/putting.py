"""Putting messages into one queue, or into several in one commit."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol, runtime_checkable

import pyarrow as pa

from headrace.clock import MILLISECOND, SECOND, Clock, micros
from headrace.errors import LeaseLost, QueueFull
from headrace.log.queueing import DUE_HEADER, PRIORITY_HEADER, QueueRow, QueueSettings
from headrace.log.record import RAW_SCHEMA, Header
from headrace.log.roles import Transaction
from headrace.queue.contract import NewMessage, Settlement

LOOK_AGAIN = 2 * MILLISECOND
_PATIENCE = SECOND // 5


@runtime_checkable
class Putting(Protocol):
    """A queue, as far as messages are put into it."""

    name: str
    row: QueueRow

    @property
    def settings(self) -> QueueSettings: ...
    def changes(self) -> int: ...
    def transaction(self) -> Transaction: ...
    def oldest(self, count: int) -> list[Settlement]: ...
    def check(self, message: NewMessage) -> None: ...
    def add(
        self,
        transaction: Transaction,
        messages: Sequence[NewMessage],
        dropped: Sequence[Settlement] = (),
    ) -> None: ...


def put_together(
    parts: Sequence[tuple[Putting, Sequence[NewMessage]]],
    clock: Clock,
    timeout: timedelta | None = None,
) -> None:
    """Put messages into queues of one log, all in one commit.

    While one of them is full it waits, drops that one's oldest messages, or raises, as the full
    queue's `overflow` says.
    """
    deadline = None if timeout is None else clock.monotonic() + micros(timeout)
    first = parts[0][0]
    dropped: dict[str, list[Settlement]] = {}
    while True:
        changes = first.changes()
        try:
            with first.transaction() as transaction:
                for queue, messages in parts:
                    queue.add(transaction, messages, dropped.get(queue.name, ()))
            return
        except LeaseLost:
            dropped = {}  # a worker has taken what was to be dropped
        except QueueFull as full:
            name = full.details["queue"]
            queue, messages = next(part for part in parts if part[0].name == name)
            if queue.settings.overflow == "refuse":
                raise
            if queue.settings.overflow == "drop":
                excess = full.details["unfinished"] + len(messages) - full.details["bound"]
                dropped[name] = queue.oldest(excess)
                if len(dropped[name]) == excess:
                    continue
            _wait(first, changes, clock, deadline, full)


def _wait(
    queue: Putting, changes: int, clock: Clock, deadline: int | None, full: QueueFull
) -> None:
    """Wait until the log changes or a lease may have ended, or raise when the time is over."""
    again = clock.monotonic() + _PATIENCE
    while queue.changes() == changes and clock.monotonic() < again:
        if deadline is not None and clock.monotonic() >= deadline:
            raise full
        clock.sleep(LOOK_AGAIN)


def raw_batch(messages: Sequence[NewMessage], clock: Clock) -> pa.RecordBatch:
    """Messages for a topic of raw bytes."""
    headers = [
        [{"key": key, "value": value} for key, value in all_headers(message, clock)] or None
        for message in messages
    ]
    columns: list[Sequence[object]] = [
        [m.raw_key for m in messages], [m.raw_value for m in messages], headers
    ]  # fmt: skip
    arrays = [pa.array(c, field.type) for c, field in zip(columns, RAW_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=RAW_SCHEMA)


def all_headers(message: NewMessage, clock: Clock) -> list[Header]:
    """A message's own headers, and those of its priority and delay."""
    headers = list(message.headers)
    if message.priority:
        headers.append((PRIORITY_HEADER, str(message.priority).encode()))
    if message.delay:
        due = clock.now() + micros(message.delay)
        headers.append((DUE_HEADER, str(due).encode()))
    return headers
