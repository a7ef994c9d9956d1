"""What a user declares: the events and commands of an aggregate, and its two functions.

A declaration is a frozen value that runs nothing. An event's type is a name that the user gives,
never a module's path, so that code can move.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from headrace.errors import InvalidDomain, UnreadableEvent
from headrace.eventsourcing.codec import Codec, Data, codec_of, parsed
from headrace.eventsourcing.personal import Personal, PersonalFields, check_names, personal_fields
from headrace.eventsourcing.scalars import is_text
from headrace.eventsourcing.upcast import Chain, UpcastStep, upcasted

S = TypeVar("S")

_NAME = re.compile(r"[a-z][a-z0-9_.-]{0,99}")

Upcasts = Sequence[UpcastStep] | Mapping[int, Sequence[UpcastStep]]
"""Steps to version 2, or the steps from each version to the next by the version before."""

RESERVED = ("type:", "aggregate:", "command:")
"""How tags begin that headrace gives; a user's do not."""


@dataclass(frozen=True)
class Refusal:
    """The outcome of a command that breaks a rule, with the reason for people."""

    reason: str


def refuse(reason: str) -> Refusal:
    """Refuse a command: what `decide` returns instead of events."""
    if not is_text(reason):
        raise InvalidDomain(
            f"A refusal needs a reason, and {reason!r} is none",
            hint="Say which rule the command breaks: es.refuse('the balance is too low')",
        )
    return Refusal(reason)


@dataclass(frozen=True)
class MessageType:
    """A named, versioned dataclass: an event or a command."""

    name: str
    kind: type
    version: int
    chain: Chain
    personal: Personal
    codec: Codec[Any] = field(repr=False, compare=False)

    def upcasted(self, data: Data, schema_version: int) -> Data:
        """Data of an older version as the current one."""
        if not 1 <= schema_version <= self.version:
            raise UnreadableEvent(
                f"A stored {self.name!r} has version {schema_version}, and this code knows "
                f"versions up to {self.version}",
                hint="Deploy the newer code here too before it writes",
            )
        return upcasted(self.chain, data, schema_version)

    def decode(self, text: str, schema_version: int) -> Any:
        """The instance that stored JSON text of a version means now."""
        return self.read(parsed(text), schema_version)

    def read(self, data: Data, schema_version: int) -> Any:
        """The instance that data of a version means now."""
        return self.codec.read(self.upcasted(data, schema_version), tolerant=True)


@dataclass(frozen=True)
class EventType(MessageType):
    """A type of event. Make it with `es.event`."""

    tags: Callable[[Any], Iterable[str]] | None = None

    def tags_of(self, event: Any) -> tuple[str, ...]:
        """The user's tags of an event."""
        found = () if self.tags is None else tuple(self.tags(event))
        for tag in found:
            if not is_text(tag) or tag.startswith(RESERVED):
                raise InvalidDomain(
                    f"An event {self.name!r} cannot have the tag {tag!r}",
                    hint=f"A tag is text such as 'email:a@b.c' and does not begin with "
                    f"{', '.join(RESERVED)}",
                )
        return found


@dataclass(frozen=True)
class CommandType(MessageType):
    """A type of command. Make it with `es.command`."""


def event(
    name: str,
    kind: type,
    *,
    version: int = 1,
    upcast: Upcasts = (),
    tags: Callable[[Any], Iterable[str]] | None = None,
    personal: PersonalFields | None = None,
) -> EventType:
    """A type of event: a stable name and a frozen dataclass.

    `version` counts the changes of the class. `upcast` has the steps from older versions: a list
    of those from 1 to 2, or with more versions a dict of them by the version that they start
    from. `tags` returns texts to find events by, across aggregates. `personal` names text fields
    that are sealed with the key of a subject: of the aggregate itself, or in a dict of the subject
    that a template names, `personal={"name": "customer/{customer}"}`.
    """
    return EventType(*_message("event", name, kind, version, upcast, personal), tags)


def command(
    name: str,
    kind: type,
    *,
    version: int = 1,
    upcast: Upcasts = (),
    personal: PersonalFields | None = None,
) -> CommandType:
    """A type of command: a stable name and a frozen dataclass, versioned like events.

    Its `personal` fields are sealed as those of events are, and with them the reason of a refusal.
    """
    return CommandType(*_message("command", name, kind, version, upcast, personal))


@dataclass(frozen=True)
class Aggregate(Generic[S]):
    """A kind of thing with a history and rules. Make it with `es.aggregate`."""

    name: str
    initial: S
    decide: Callable[[S, Any], Any]
    evolve: Callable[[S, Any], S]
    events: tuple[EventType, ...]
    commands: tuple[CommandType, ...]
    snapshot_every: int | None
    state_version: int
    upgrade: Callable[[Data, int], Data | None] | None
    personal: Personal
    codec: Codec[S] = field(repr=False, compare=False)

    def key(self, id: str) -> str:
        """The aggregate's key in the topics: its kind and its id."""
        if not is_text(id):
            raise InvalidDomain(
                f"{id!r} cannot be the id of an aggregate", hint="Use text, such as 'a-1'"
            )
        return f"{self.name}/{id}"

    def snapshot_due(self, before: int, after: int) -> bool:
        """True if a commit from one version to another has a snapshot."""
        every = self.snapshot_every
        return every is not None and after // every > before // every

    def subjects(self, state: S, key: str) -> set[str]:
        """The subjects of what is personal in a state, which a refusal may name."""
        if self.personal.declared:
            fields = self.personal.fields
            return self.personal.subjects(self.codec.data(state), key) if fields else set()
        messages: tuple[MessageType, ...] = (*self.events, *self.commands)
        return {key} if any(one.personal.fields for one in messages) else set()


def aggregate(
    name: str,
    *,
    initial: S,
    decide: Callable[[S, Any], Any],
    evolve: Callable[[S, Any], S],
    events: Iterable[EventType],
    commands: Iterable[CommandType] = (),
    snapshot_every: int | None = None,
    state_version: int = 1,
    upgrade: Callable[[Data, int], Data | None] | None = None,
    personal: PersonalFields | None = None,
) -> Aggregate[S]:
    """Declare an aggregate.

    `decide(state, command)` returns an event, several, none, or `es.refuse(reason)`.
    `evolve(state, event)` returns the next state. Both are pure: no clock, no randomness, no
    input. Every `snapshot_every` events the state is stored, with `state_version`. Raise that
    when the state's class or `evolve` changes: snapshots of another version are ignored, unless
    `upgrade(data, version)` returns data of the current version for an older one. `personal` names
    fields of the state: snapshots seal them, and reasons of refusals are sealed for their subjects.
    """
    check_name(name, "aggregate")
    for what, function in (("decide", decide), ("evolve", evolve)):
        check_callable(f"{what} of {name!r}", function)
    if snapshot_every is not None and not (type(snapshot_every) is int and snapshot_every > 0):
        raise InvalidDomain(
            f"snapshot_every cannot be {snapshot_every!r}",
            hint="Give a number of events from 1, or leave it out for no snapshots",
        )
    check_version(name, state_version)
    known = tuple(events)
    if not known:
        raise InvalidDomain(
            f"The aggregate {name!r} has no events", hint="events=[es.event(name, Class), ...]"
        )
    asked = tuple(commands)
    check_kinds(known, EventType, "event")
    check_kinds(asked, CommandType, "command")
    codec = codec_of(type(initial))
    codec.data(initial)
    sealed = personal_fields(f"the state of {name!r}", type(initial), personal)
    check_personal(name, type(initial), sealed, (*known, *asked), stored=snapshot_every is not None)
    return Aggregate(
        name, initial, decide, evolve, known, asked, snapshot_every, state_version, upgrade,
        sealed, codec,
    )  # fmt: skip


def check_name(name: str, what: str) -> str:
    """Return the name of an event, a command or an aggregate, if it is valid."""
    if not is_text(name) or not _NAME.fullmatch(name):
        raise InvalidDomain(
            f"{name!r} cannot be the name of a type of {what}",
            hint="Use lower-case letters, digits, dots, underscores and dashes, such as "
            "'money-deposited'. The name is stored, so it stays when code moves",
        )
    return name


def check_callable(what: str, function: object) -> None:
    """Raise unless it is a function."""
    if not callable(function):
        raise InvalidDomain(f"{what} is {function!r}", hint="Give a function")


def _message(
    what: str,
    name: str,
    kind: type,
    version: int,
    upcast: Upcasts,
    personal: PersonalFields | None,
) -> tuple[str, type, int, Chain, Personal, Codec[Any]]:
    check_name(name, what)
    check_version(name, version)
    steps = upcast if isinstance(upcast, Mapping) else {1: tuple(upcast)} if upcast else {}
    if sorted(steps) != list(range(1, version)):
        wanted = ", ".join(f"{old}: [...]" for old in range(1, version))
        raise InvalidDomain(
            f"{name!r} has version {version}, and upcasters from "
            f"{', '.join(map(str, sorted(steps))) or 'no version'}",
            hint=f"Declare the steps from each older version: upcast={{{wanted}}}"
            if version > 1
            else "Raise version= when the class changes",
        )
    chain = tuple(tuple(steps[old]) for old in range(1, version))
    codec: Codec[Any] = codec_of(kind)
    return name, kind, version, chain, personal_fields(repr(name), kind, personal), codec


def check_personal(
    name: str, state: type, sealed: Personal, messages: Iterable[MessageType], *, stored: bool
) -> None:
    """Raise if what is personal in one message would be stored in clear elsewhere.

    Reasons of refusals may repeat a state. If that does not say what is personal in it, they are
    sealed for the aggregate, which suffices unless it is `stored` or there are other subjects.
    """
    found = tuple(messages)
    where = {field: repr(one.name) for one in found for field in one.personal.fields}
    for one in found:
        check_names(repr(one.name), one.kind, one.personal, where)
    if not where:
        return
    if sealed.declared:
        check_names(f"the state of {name!r}", state, sealed, where)
    elif stored or any(one.personal.has_others for one in found):
        field, message = next(iter(where.items()))
        raise InvalidDomain(
            f"The state of {name!r}, in snapshots and in reasons of refusals, may have what is "
            f"personal in its messages, such as {field!r} of {message}",
            hint=f"Say which fields of the state are personal: personal=[{field!r}], or a dict "
            "with their subjects, or personal=[] if none is",
        )


def check_version(name: str, version: int) -> None:
    if type(version) is not int or version < 1:
        raise InvalidDomain(f"{name!r} cannot have version {version!r}", hint="Count from 1")


def check_kinds(found: tuple[Any, ...], kind: type[MessageType], what: str) -> None:
    """Raise unless all are of that kind of message."""
    for message in found:
        if not isinstance(message, kind):
            raise InvalidDomain(f"{message!r} is no type of {what}", hint=f"Use es.{what}(...)")
