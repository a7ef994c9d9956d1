"""Commands on their way into the log."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.errors import InvalidDomain, ReusedCommand
from headrace.eventsourcing.declare import Aggregate, CommandType
from headrace.eventsourcing.keys import KeyStore
from headrace.eventsourcing.personal import differing
from headrace.eventsourcing.scalars import is_text
from headrace.eventsourcing.stored import (
    StoredCommand,
    StoredEvent,
    checked_metadata,
    command_row,
    command_tag,
    event_rows,
    events_in,
    in_order,
    micros_of,
    snapshot_row,
)
from headrace.log import Acks, Commit, CommitPart, Log, Match

if TYPE_CHECKING:
    from headrace.eventsourcing.domain import Domain


class Snapshot(NamedTuple):
    """The state of an aggregate after an event."""

    aggregate: Aggregate[Any]
    key: str
    version: int
    state: Any


class Request:
    """A command to one aggregate, or to a decision over several."""

    def __init__(
        self,
        kind: CommandType,
        command: Any,
        key: str,
        id: str | None,
        metadata: Mapping[str, str] | None,
        at: datetime,
    ) -> None:
        if id is not None and not is_text(id):
            raise InvalidDomain(f"{id!r} cannot be the id of a command", hint="Use text")
        micros_of(at)
        self.kind = kind
        self.command = command
        self.key = key
        self.given = id is not None
        """True if it has an id under which it may be sent again."""
        self.id = uuid.uuid4().hex if id is None else id
        self.metadata = checked_metadata(metadata)
        self.at = at
        self.tag: list[Match] = [[[command_tag(self.id)]]]

    def check_same(self, before: StoredCommand) -> None:
        """Raise if another command was handled under the id before."""
        data = self.kind.codec.data
        same = type(before.command) is self.kind.kind and before.aggregate == self.key
        others = (
            differing(self.kind.personal, data(before.command), data(self.command)) if same else []
        )
        if others or not same:
            how = f", with another {', '.join(others)}" if same else ""
            raise ReusedCommand(
                f"The id {self.id!r} was given to another command before: {before.type!r} to "
                f"{before.aggregate!r}{how}",
                hint="Give each command an id of its own; send it again unchanged",
                id=self.id,
            )


class Writer:
    """Commits what was decided."""

    def __init__(self, domain: Domain, log: Log, acks: Acks, keys: KeyStore | None) -> None:
        self._keys = keys
        self._domain = domain
        self._log = log
        self._producer = log.producer(acks=acks)

    def close(self) -> None:
        self._producer.close()

    def commit(
        self,
        request: Request,
        events: Sequence[tuple[str, int, Any]],
        conditions: Sequence[CommitPart],
        *,
        reason: str | None = None,
        subjects: AbstractSet[str] = frozenset(),
        snapshots: Iterable[Snapshot] = (),
    ) -> int | None:
        """Commit events, the command and snapshots, all on conditions; None for nothing.

        The `reason` of a refusal may name the `subjects`.
        """
        domain = self._domain
        if not events and not domain.record_commands:
            return None
        transaction = self._producer.transaction()
        for condition in conditions:
            transaction.attach(condition)
        if request.given:
            transaction.attach(self._log.unless(domain.commands.name, request.tag, after=0))
        if events:
            rows = event_rows(domain, events, request.id, request.at, request.metadata, self._keys)
            for row in rows:
                transaction.send(domain.events.name, row)
        if domain.record_commands:
            row = command_row(
                domain, request.kind, request.command, id=request.id, key=request.key,
                at=request.at, reason=reason, metadata=request.metadata, keys=self._keys,
                subjects=subjects,
            )  # fmt: skip
            transaction.send(domain.commands.name, row)
        for aggregate, key, version, state in snapshots:
            row = snapshot_row(aggregate, key, version, state, self._keys)
            transaction.send(domain.snapshots.name, row)
        receipt = transaction.commit()
        return None if receipt is None else receipt.commit

    def events_of(self, commit: int, command: str) -> list[StoredEvent]:
        """The events that a command had, in order."""
        name = self._domain.events.name
        batches = self._log.read(name, start=Commit(commit - 1), stop=Commit(commit))
        found = events_in(self._domain, batches, self._keys)
        return in_order(event for event in found if event.command == command)
