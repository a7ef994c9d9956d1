"""Domains: aggregates that share topics."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

from headrace.errors import InvalidDomain, UnreadableEvent
from headrace.eventsourcing.boundary import Decision
from headrace.eventsourcing.declare import (
    Aggregate,
    CommandType,
    EventType,
    check_name,
    check_personal,
)
from headrace.eventsourcing.keys import KeyStore
from headrace.eventsourcing.personal import PersonalFields, personal_metadata_of
from headrace.eventsourcing.store import Store
from headrace.eventsourcing.topics import commands_topic, events_topic, snapshots_topic
from headrace.log import Acks, Log, Topic


class Domain:
    """Aggregates whose events are in one topic, `NAME.events`, in one order.

    Their commands, also refused ones, are in `NAME.commands`; with `record_commands=False` they are
    not recorded, and have no ids to be sent again with. Snapshots are in `NAME.snapshots`.
    `personal_metadata` names metadata that is sealed as personal fields are.
    """

    def __init__(
        self,
        name: str,
        aggregates: Iterable[Aggregate[Any]],
        *,
        decisions: Iterable[Decision[Any]] = (),
        partitions: int = 1,
        record_commands: bool = True,
        personal_metadata: PersonalFields = (),
    ) -> None:
        self.name = check_name(name, "domain")
        self.aggregates = tuple(aggregates)
        self.decisions = tuple(decisions)
        if not self.aggregates:
            raise InvalidDomain(
                f"The domain {name!r} has no aggregates", hint="es.Domain(name, [account])"
            )
        self.record_commands = record_commands
        self.personal_metadata = personal_metadata_of(name, personal_metadata)
        self.events = events_topic(name, partitions)
        self.commands = commands_topic(name, partitions)
        self.snapshots = snapshots_topic(name, partitions)
        self._names: dict[str, Aggregate[Any]] = {}
        self._deciders: dict[str, Aggregate[Any] | Decision[Any]] = {}
        self._events: dict[str, EventType] = {}
        self._event_kinds: dict[type, EventType] = {}
        self._commands: dict[tuple[str, type | str], CommandType] = {}
        for one in self.aggregates:
            self._add(one)
        for other in self.decisions:
            if not isinstance(other, Decision):
                raise InvalidDomain(f"{other!r} is no decision", hint="Use es.decision(...)")
            self._add_commands(other)
            personal = [event for event in self.event_types if event.personal.fields]
            check_personal(
                other.name, type(other.initial), other.personal, (*personal, *other.commands),
                stored=True,
            )  # fmt: skip

    def open(
        self,
        log: Log,
        *,
        acks: Acks = "synced",
        keys: KeyStore | None = None,
        grouped: bool = False,
    ) -> Store:
        """Open the domain's store on a log; its topics are created if they are not there.

        `keys` seals and opens personal fields. Without it they cannot be written, and read as
        `es.SEALED` or None. With `grouped`, commands that several processes handle at once share a
        sync. Each is still on disk before it is answered, but others may read its events before.
        """
        return Store(self, log, acks=acks, keys=keys, grouped=grouped)

    def stream(self, app: Any, *types: str, prefix: str = "", keys: KeyStore | None = None) -> Any:
        """The events of some types, or of all, as a stream for an application's pipelines.

        Each row has the columns of all events, `aggregate`, `version`, `type`, `at`, `id`,
        `command`, `metadata` and `tags`, and one for each field of the chosen types, in their
        current versions. `prefix` goes in front of the names of fields. An event that cannot be
        read is a dead letter of the application, with the reason. Personal fields stay sealed,
        unless `keys` opens them: then what is derived from them is stored in clear.
        """
        # Pipelines are downstream of domains, and this is a declaration of theirs.
        declare = importlib.import_module("headrace.operators.events.declare")
        return declare.stream(app, self, *types, prefix=prefix, keys=keys)

    @property
    def topics(self) -> tuple[Topic, ...]:
        """The topics that the domain needs."""
        found = [self.events]
        if self.record_commands:
            found.append(self.commands)
        if any(one.snapshot_every is not None for one in self.aggregates):
            found.append(self.snapshots)
        return tuple(found)

    def aggregate(self, name: str) -> Aggregate[Any]:
        """The aggregate of that name."""
        try:
            return self._names[name]
        except KeyError:
            raise InvalidDomain(
                f"The domain {self.name!r} has no aggregate {name!r}",
                hint=f"It has: {', '.join(self._names)}",
            ) from None

    def decider(self, name: str) -> Aggregate[Any] | Decision[Any]:
        """The aggregate or the decision of that name."""
        try:
            return self._deciders[name]
        except KeyError:
            raise InvalidDomain(
                f"The domain {self.name!r} has no aggregate and no decision {name!r}",
                hint=f"It has: {', '.join(self._deciders)}",
            ) from None

    @property
    def event_types(self) -> tuple[EventType, ...]:
        """All types of events."""
        return tuple(self._events.values())

    def event_type(self, name: str) -> EventType:
        """The type of events of that name."""
        try:
            return self._events[name]
        except KeyError:
            raise UnreadableEvent(
                f"The domain {self.name!r} has no type of event {name!r}",
                hint=f"It has: {', '.join(self._events)}. Events are never forgotten, so declare "
                "a type as long as there are events of it",
            ) from None

    def type_of_event(self, event: Any) -> EventType:
        """The type of an event, by its class."""
        found = self._event_kinds.get(type(event))
        if found is None:
            raise InvalidDomain(
                f"{event!r} is not an event of the domain {self.name!r}",
                hint=f"Declare its class: es.event(name, {type(event).__name__})",
            )
        return found

    def command_type(self, decider: str, name: str) -> CommandType:
        """The type of commands of that name to an aggregate or a decision."""
        try:
            return self._commands[decider, name]
        except KeyError:
            raise UnreadableEvent(
                f"{decider!r} in the domain {self.name!r} has no type of command {name!r}",
                hint="Commands are recorded for good, so declare a type as long as there are "
                "commands of it",
            ) from None

    def type_of_command(
        self, aggregate: Aggregate[Any] | Decision[Any], command: Any
    ) -> CommandType:
        """The type of a command to an aggregate or a decision, by its class."""
        if self._deciders.get(aggregate.name) is not aggregate:
            raise InvalidDomain(
                f"{aggregate.name!r} is not of the domain {self.name!r}",
                hint=f"The domain has: {', '.join(self._deciders)}",
            )
        found = self._commands.get((aggregate.name, type(command)))
        if found is None:
            raise InvalidDomain(
                f"{command!r} is not a command of {aggregate.name!r}",
                hint=f"Declare its class: es.command(name, {type(command).__name__})",
            )
        return found

    def _add(self, one: Aggregate[Any]) -> None:
        if not isinstance(one, Aggregate):
            raise InvalidDomain(f"{one!r} is no aggregate", hint="Use es.aggregate(...)")
        self._add_commands(one)
        self._names[one.name] = one
        for event in one.events:
            same = self._events.setdefault(event.name, event)
            again = self._event_kinds.setdefault(event.kind, event)
            if same is not event or again is not event:
                raise InvalidDomain(
                    f"Two types of events in the domain {self.name!r} have the name "
                    f"{event.name!r} or the class {event.kind.__name__}",
                    hint="Give each class one name; aggregates may share the same es.event(...)",
                )

    def _add_commands(self, one: Aggregate[Any] | Decision[Any]) -> None:
        if self._deciders.setdefault(one.name, one) is not one:
            raise InvalidDomain(
                f"The domain {self.name!r} has two aggregates or decisions {one.name!r}",
                hint="Give one another name",
            )
        for command in one.commands:
            names = (one.name, command.kind), (one.name, command.name)
            if any(name in self._commands for name in names):
                raise InvalidDomain(
                    f"Two commands of {one.name!r} have the name {command.name!r} or the class "
                    f"{command.kind.__name__}",
                    hint="Give each class one name",
                )
            self._commands.update(dict.fromkeys(names, command))
