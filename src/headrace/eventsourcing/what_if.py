"""Run a changed `decide` over the commands that were recorded, without writing anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.errors import InvalidDomain
from headrace.eventsourcing.answers import decided
from headrace.eventsourcing.boundary import Addressed, Decision
from headrace.eventsourcing.declare import Aggregate, Refusal
from headrace.eventsourcing.hidden import stored_matches
from headrace.eventsourcing.history import batches_of
from headrace.eventsourcing.keys import KeyStore
from headrace.eventsourcing.loading import evolved
from headrace.eventsourcing.stored import (
    StoredCommand,
    StoredEvent,
    aggregate_tag,
    commands_in,
    events_in,
    in_order,
)
from headrace.log import Commit, Log

if TYPE_CHECKING:
    from headrace.eventsourcing.domain import Domain

Outcome = tuple[Any, ...] | Refusal

Decide = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Difference:
    """A command that would be decided differently: its events or refusal, then and now.

    `state` is what it was decided on. That is the recorded history: the other differences have no
    effect on it.
    """

    command: StoredCommand
    state: Any
    was: Outcome
    would: Outcome


def what_if(
    domain: Domain,
    log: Log,
    keys: KeyStore | None,
    decider: Aggregate[Any] | Decision[Any],
    decide: Decide,
    id: str | None,
    after: int,
) -> Iterator[Difference]:
    """The recorded commands that a changed `decide` decides differently, in order."""
    if not domain.record_commands:
        raise InvalidDomain(
            f"The domain {domain.name!r} does not record its commands",
            hint="Without record_commands=False they are recorded from now on",
        )
    past = _Past(domain, log, keys, decider, id)
    for command in past.commands():
        if command.commit <= after:
            continue
        state, events = past.before(command)
        was: Outcome = events if command.reason is None else Refusal(command.reason)
        would = decided(decider.name, decide(state, command.command))
        if not isinstance(would, Refusal):
            would = tuple(e.event if isinstance(e, Addressed) else e for e in would)
        if was != would:
            yield Difference(command, state, was, would)


class _Past:
    """The commands to an aggregate or a decision, each with the state that it was decided on."""

    def __init__(
        self,
        domain: Domain,
        log: Log,
        keys: KeyStore | None,
        decider: Aggregate[Any] | Decision[Any],
        id: str | None,
    ) -> None:
        self._keys = keys
        self._domain = domain
        self._log = log
        self._decider = decider
        self._head = log.head()
        self._tag: str | None = None
        if isinstance(decider, Decision):
            self._tag = aggregate_tag(decider.name)
        elif id is not None:
            self._tag = aggregate_tag(decider.key(id))
        self._states: dict[str, Any] = {}
        self._events: Iterator[StoredEvent] = iter(())
        if isinstance(decider, Aggregate):
            found = batches_of(log, domain.events.name, self._tag, upto=self._head)
            self._events = events_in(domain, found, keys)
        self._next = next(self._events, None)

    def commands(self) -> Iterator[StoredCommand]:
        """The commands, in the order of their commits."""
        name = self._domain.commands.name
        found = batches_of(self._log, name, self._tag, upto=self._head)
        return commands_in(self._domain, found, self._keys, of=self._decider.name)

    def before(self, command: StoredCommand) -> tuple[Any, tuple[Any, ...]]:
        """The state before a command, and the events that it had."""
        if isinstance(self._decider, Decision):
            return self._across(command, self._decider)
        for stored in self._take(command.commit - 1):
            self._fold(self._decider, stored)
        state = self._states.get(command.aggregate, self._decider.initial)
        mine = in_order(self._take(command.commit))
        for stored in mine:
            self._fold(self._decider, stored)
        return state, tuple(stored.event for stored in mine)

    def _across(
        self, command: StoredCommand, decision: Decision[Any]
    ) -> tuple[Any, tuple[Any, ...]]:
        name, commit = self._domain.events.name, command.commit
        state = decision.initial
        matches = stored_matches(decision.matches(command.command), self._keys)
        found = self._log.find(name, matches, upto=commit - 1)
        for stored in events_in(self._domain, found, self._keys):
            state = evolved(decision, state, stored.event)
        batches = self._log.read(name, start=Commit(commit - 1), stop=Commit(commit))
        return state, tuple(e.event for e in in_order(events_in(self._domain, batches, self._keys)))

    def _fold(self, aggregate: Aggregate[Any], stored: StoredEvent) -> None:
        key = stored.aggregate
        if key.partition("/")[0] == aggregate.name:
            state = self._states.get(key, aggregate.initial)
            self._states[key] = evolved(aggregate, state, stored.event)

    def _take(self, upto: int) -> Iterator[StoredEvent]:
        while self._next is not None and self._next.commit <= upto:
            yield self._next
            self._next = next(self._events, None)
