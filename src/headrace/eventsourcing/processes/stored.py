"""The stored part of a process: its position, its instances and the commands that it has issued."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic

import numpy as np

from headrace.clock import to_datetime, to_micros
from headrace.errors import UnreadableEvent
from headrace.eventsourcing.codec import text_of
from headrace.eventsourcing.declare import Aggregate, S
from headrace.eventsourcing.loading import upgraded
from headrace.eventsourcing.personal import FORGOTTEN, SEALED, seal_data
from headrace.eventsourcing.processes.actions import Send
from headrace.eventsourcing.processes.timeouts import Timeouts
from headrace.eventsourcing.store import Store
from headrace.eventsourcing.stored import Row, batch_of, command_place, command_row, opened
from headrace.eventsourcing.topics import sent_topic, states_topic
from headrace.log import Commit, Match, Transaction

if TYPE_CHECKING:
    from headrace.eventsourcing.processes.declare import Process

REMEMBERED = 10_000

_POSITION: list[Match] = [[[""]]]


@dataclass(frozen=True)
class Issued:
    """A command that a process has issued, under an id of its own."""

    id: str
    instance: str
    cause: str
    send: Send
    at: datetime
    metadata: Mapping[str, str]


@dataclass(frozen=True)
class Position:
    """All up to the commit `read` was reacted to, and the commands up to `sent` were handled.

    `commit` is the commit that says so.
    """

    read: int
    sent: int
    commit: int


class Progress(Generic[S]):
    """The part of a process that is in the log. `load` drops what is remembered of it."""

    def __init__(self, process: Process[S], store: Store) -> None:
        self._process = process
        self._store = store
        self._log = store.log
        self.states = states_topic(store.domain.name, process.name)
        self.sent = sent_topic(store.domain.name, process.name)
        for topic in (self.states, self.sent):
            self._log.ensure_topic(topic)
        self._producer = self._log.producer(acks=store.acks)
        self.timeouts = Timeouts()
        self._known: OrderedDict[str, S] = OrderedDict()

    def close(self) -> None:
        self._producer.close()

    def load(self) -> Position | None:
        """The position; None if the process has never run."""
        self._known.clear()
        found = self._log.find(self.states.name, _POSITION, last=True)
        position = None
        for batch in found:
            (row,) = batch.data.to_pylist()
            position = Position(row["read"], row["sent"], batch.commit or 0)
        self.timeouts = Timeouts()
        if position is not None:
            for instance, due in self._timeouts(position.commit):
                self.timeouts.replace(instance, due)
        return position

    def state(self, instance: str) -> S:
        """The state of an instance."""
        if self._process.codec is None:
            return self._process.initial
        if instance not in self._known:
            self._known[instance] = self._stored(instance)
        self._known.move_to_end(instance)
        return self._known[instance]

    def remember(self, instance: str, state: S) -> None:
        """Remember the state that an instance has now."""
        self._known[instance] = state

    def commit(
        self, before: Position, read: int, sent: int, changed: Iterable[str], issued: list[Issued]
    ) -> Position:
        """Commit a position, the instances that have changed and commands.

        `ConditionFailed` is raised if another has made a commit since the position before.
        """
        transaction = self._producer.transaction()
        transaction.attach(self._log.unless(self.states.name, _POSITION, after=before.commit))
        rows = [self._row(instance) for instance in changed]
        over = [row["data"] is None and row["timeouts"] is None for row in rows]
        rows.append(_blank("") | {"read": read, "sent": sent})
        self._append(transaction, rows, np.array([*over, False]))
        if issued:
            sent_rows = [self._sent_row(one) for one in issued]
            transaction.append(self.sent.name, batch_of(sent_rows, self.sent.schema))
        receipt = transaction.commit()
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return Position(read, sent, (receipt and receipt.commit) or 0)

    def issued(self, after: int, upto: int) -> Iterator[Issued]:
        """The commands that were issued in the commits after one, up to another."""
        domain, keys = self._store.domain, self._store.keys
        for batch in self._log.read(self.sent.name, start=Commit(after), stop=Commit(upto)):
            for row, data in opened(batch.data.to_pylist(), command_place, keys):
                decider, _, id = row["aggregate"].partition("/")
                kind = domain.command_type(decider, row["type"])
                send = Send(domain.decider(decider), id, kind.read(data, row["schema"]))
                yield Issued(
                    row["id"], row["instance"], row["cause"], send, row["at"],
                    dict(row["metadata"] or ()),
                )  # fmt: skip

    # Inside

    def _append(self, transaction: Transaction, rows: list[Row], over: Any) -> None:
        # The place of a tombstone is its key alone.
        transaction.append(self.states.name, batch_of(rows, self.states.schema), tombstones=over)

    def _timeouts(self, upto: int) -> Iterator[tuple[str, dict[str, int]]]:
        columns = ["instance", "timeouts"]
        for batch in self._log.read(self.states.name, stop=Commit(upto), columns=columns):
            for row in batch.data.to_pylist():
                due = dict(row["timeouts"] or ())
                yield row["instance"], {name: to_micros(at) for name, at in due.items()}

    def _stored(self, instance: str) -> S:
        process = self._process
        for batch in self._log.find(self.states.name, [[[instance]]], last=True):
            (row,) = batch.data.to_pylist()
            if row["data"] is None or process.codec is None:
                break
            row["aggregate"] = self._key(instance)
            ((_, data),) = opened([row], _place, self._store.keys)
            current = upgraded(process, data, row["state_version"])
            if current is None:
                raise UnreadableEvent(
                    f"The state of {instance!r} in the process {process.name!r} has version "
                    f"{row['state_version']}, and this code has {process.state_version}",
                    hint="Return data of the current version: es.process(..., upgrade=...). If the "
                    "stored version is newer, run the newer code",
                )
            return process.codec.read(current)
        return process.initial

    def _row(self, instance: str) -> Row:
        process, row = self._process, _blank(instance)
        if due := self.timeouts.of(instance):
            row["timeouts"] = [(name, to_datetime(at)) for name, at in due.items()]
        state = self.state(instance)
        if process.codec is not None and state != process.initial:
            key, data = self._key(instance), process.codec.data(state)
            place = _place({"aggregate": key})
            sealed = seal_data(process.personal, data, key, place, self._store.keys)
            row |= {"state_version": process.state_version, "data": text_of(sealed)}
        return row

    def _sent_row(self, issued: Issued) -> Row:
        to, domain = issued.send.to, self._store.domain
        key = to.key(issued.send.id) if isinstance(to, Aggregate) else to.name
        row = command_row(
            domain, domain.type_of_command(to, issued.send.command), issued.send.command,
            id=issued.id, key=key, at=issued.at, reason=None, metadata=issued.metadata,
            keys=self._store.keys,
        )  # fmt: skip
        row |= {"instance": issued.instance, "cause": issued.cause}
        return {name: row[name] for name in self.sent.schema.names} if self.sent.schema else row

    def _key(self, instance: str) -> str:
        return f"{self._process.name}/{instance}"


def readable(metadata: Mapping[str, str]) -> dict[str, str]:
    """Metadata that can be passed on: without what nobody can read here."""
    return {name: text for name, text in metadata.items() if text not in (SEALED, FORGOTTEN)}


def _blank(instance: str) -> Row:
    return {
        "instance": instance, "state_version": None, "data": None, "timeouts": None,
        "read": None, "sent": None,
    }  # fmt: skip


def _place(row: Mapping[str, Any]) -> tuple[str, ...]:
    """The place of the personal fields of an instance's state."""
    return ("process", row["aggregate"])
