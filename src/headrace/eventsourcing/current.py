"""Stored events and commands as rows of the current versions of their types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa

from headrace.errors import UnreadableEvent, UserError
from headrace.eventsourcing.declare import MessageType
from headrace.eventsourcing.domain import Domain
from headrace.eventsourcing.stored import Row, command_place, decider_of, event_place, opened
from headrace.log import Batch


class Current:
    """Turns the rows of a domain's topic into the current versions, for people to read.

    A row that cannot be read stays as it is stored, and `failed` has the first reason. Personal
    fields read as sealed.
    """

    def __init__(self, domain: Domain, topic: str) -> None:
        self._domain = domain
        if topic not in (domain.events.name, domain.commands.name):
            raise UserError(
                f"Topic {topic!r} has no events and no commands of the domain {domain.name!r}",
                hint=f"It has {domain.events.name} and {domain.commands.name}",
            )
        events = topic == domain.events.name
        self._place = event_place if events else command_place
        self._type: Callable[[Row], MessageType] = self._event if events else self._command
        self.unread = 0
        self.failed: UnreadableEvent | None = None

    def batch(self, batch: Batch) -> Batch:
        """The rows with the columns `schema` and `data` of the current versions."""
        rows = [self._row(row) for row in batch.data.to_pylist()]
        return replace(batch, data=pa.RecordBatch.from_pylist(rows, schema=batch.data.schema))

    def _row(self, row: Row) -> Row:
        try:
            ((_, data),) = opened([row], self._place, None)
            kind = self._type(row)
            value = kind.read(data, row["schema"])
            return {**row, "schema": kind.version, "data": kind.codec.encode(value)}
        except UnreadableEvent as error:
            self.failed = self.failed or error
            self.unread += 1
            return row

    def _event(self, row: Row) -> MessageType:
        return self._domain.event_type(row["type"])

    def _command(self, row: Row) -> MessageType:
        return self._domain.command_type(decider_of(row), row["type"])
