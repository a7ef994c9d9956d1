"""The inputs of the instances of a process, commit by commit, in the order of the log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from headrace.eventsourcing.boundary import match
from headrace.eventsourcing.processes.actions import CommandRefused
from headrace.eventsourcing.store import Store
from headrace.eventsourcing.stored import (
    REFUSED,
    StoredCommand,
    StoredEvent,
    commands_in,
    events_in,
    in_order,
)
from headrace.log import Commit

if TYPE_CHECKING:
    from headrace.eventsourcing.processes.declare import Process

COMMITS = 500
"""Commits of events that are reacted to at once, at most."""

PROCESS = "process"
"""The name in the metadata of a command that says which process has sent it."""


@dataclass(frozen=True)
class Input:
    """An event, or what is like one, for one instance.

    `cause` says in the metadata of commands where they come from, `what` says it to people.
    """

    instance: str
    event: Any
    at: datetime
    cause: str
    what: str
    metadata: dict[str, str]


@dataclass(frozen=True)
class Turn:
    """A commit: how far it has moved the time of the events, and what is in it."""

    commit: int
    frontier: int | None
    events: tuple[StoredEvent, ...]
    refused: tuple[StoredCommand, ...]


@dataclass(frozen=True)
class Turns:
    """The commits after one, up to another that is `upto`. Those of no interest are left out."""

    upto: int
    more: bool
    """True if there are commits after `upto`."""
    each: Iterator[Turn]


def turns_of(process: Process[Any], store: Store, after: int, stop: int | None) -> Turns:
    """The next commits for a process, those after `stop` excluded."""
    log, name = store.log, store.domain.events.name
    head = log.head() if stop is None else stop
    commits = [one for one in log.commits(name, after, COMMITS) if one.number <= head]
    upto = commits[-1].number if len(commits) == COMMITS else head
    frontiers = {one.number: one.after for one in commits}
    return Turns(upto, upto < head, _turns(process, store, after, upto, frontiers))


def command_id(process: str, instance: str, commit: int, number: int) -> str:
    """The id of a command: that of the commit that the process reacted to decides it."""
    return f"{process}/{instance}/{commit}.{number}"


def refusal(process: Process[Any], stored: StoredCommand) -> Input:
    """The refusal of a command, for the instance that has sent it."""
    instance = stored.id.removeprefix(f"{process.name}/").rpartition("/")[0]
    event = CommandRefused(stored.command, stored.reason or "", stored.aggregate)
    what = f"the refused command {stored.id!r} ({stored.type!r} to {stored.aggregate!r})"
    return Input(instance, event, stored.at, f"refused:{stored.id}", what, stored.metadata)


def _turns(
    process: Process[Any], store: Store, after: int, upto: int, frontiers: dict[int, int | None]
) -> Iterator[Turn]:
    refused = _refused(process, store, after, upto)
    wanted = [match(types=[kind.name for kind in process.events])]
    found = store.log.find(store.domain.events.name, wanted, after=after, upto=upto)
    each = groupby(events_in(store.domain, found, store.keys), lambda event: event.commit)
    number, events = next(each, (None, ()))
    for commit in sorted({*frontiers, *refused}):
        mine: tuple[StoredEvent, ...] = ()
        if number == commit:
            mine = _ordered(events)
            number, events = next(each, (None, ()))
        yield Turn(commit, frontiers.get(commit), mine, tuple(refused.get(commit, ())))


def _ordered(events: Any) -> tuple[StoredEvent, ...]:
    """The events of a commit, those of a command in its order whatever their partitions."""
    by_command: dict[str, list[StoredEvent]] = {}
    for event in events:
        by_command.setdefault(event.command, []).append(event)
    return tuple(event for mine in by_command.values() for event in in_order(mine))


def _refused(
    process: Process[Any], store: Store, after: int, upto: int
) -> dict[int, list[StoredCommand]]:
    """The commands of the process that were refused, by their commits."""
    found: dict[int, list[StoredCommand]] = {}
    name = store.domain.commands.name
    for batch in store.log.read(name, start=Commit(after), stop=Commit(upto)):
        mine = pc.and_(
            pc.equal(batch.data.column("outcome"), REFUSED),
            pc.starts_with(batch.data.column("id"), f"{process.name}/"),
        )
        if pc.any(mine).as_py():
            chosen = batch.only(np.asarray(mine))
            for stored in commands_in(store.domain, [chosen], store.keys):
                if stored.metadata.get(PROCESS) == process.name:
                    found.setdefault(stored.commit, []).append(stored)
    return found
