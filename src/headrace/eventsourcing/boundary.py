"""Dynamic consistency boundaries: rules over the events of several aggregates.

A decision names the events that its rule depends on, by their types and tags. It holds if none
of those has come since they were read, whichever aggregate they belong to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic

from headrace.errors import InvalidDomain
from headrace.eventsourcing.codec import Codec, codec_of
from headrace.eventsourcing.declare import (
    Aggregate,
    CommandType,
    S,
    check_callable,
    check_kinds,
    check_name,
)
from headrace.eventsourcing.personal import Personal, PersonalFields, personal_fields
from headrace.eventsourcing.scalars import is_text
from headrace.log import Match


def match(*, types: Iterable[str] = (), tags: Iterable[str] = ()) -> Match:
    """The events of at least one of the types, if any are given, and with all of the tags."""
    given = [f"type:{name}" for name in _texts(types)]
    groups = [[tag] for tag in _texts(tags)]
    if not given and not groups:
        raise InvalidDomain(
            "A match needs types or tags", hint="es.match(types=['seat-booked'], tags=['seat:4'])"
        )
    return [given, *groups] if given else groups


@dataclass(frozen=True)
class Addressed:
    """An event and the aggregate that it belongs to. Make it with `es.to`."""

    aggregate: Aggregate[Any]
    id: str
    event: Any


def to(aggregate: Aggregate[Any], id: str, event: Any) -> Addressed:
    """An event of an aggregate: what a decision's `decide` returns."""
    return Addressed(aggregate, id, event)


@dataclass(frozen=True)
class Decision(Generic[S]):
    """A rule over several aggregates. Make it with `es.decision`."""

    name: str
    initial: S
    decide: Callable[[S, Any], Any]
    evolve: Callable[[S, Any], S]
    matches: Callable[[Any], Sequence[Match]]
    commands: tuple[CommandType, ...]
    personal: Personal
    codec: Codec[S] = field(repr=False, compare=False)

    def subjects(self, state: S) -> set[str]:
        """The subjects of what is personal in a state, which a refusal may name."""
        return self.personal.subjects(self.codec.data(state), "") if self.personal.fields else set()


def decision(
    name: str,
    *,
    initial: S,
    decide: Callable[[S, Any], Any],
    evolve: Callable[[S, Any], S],
    matches: Callable[[Any], Sequence[Match]],
    commands: Iterable[CommandType],
    personal: PersonalFields | None = None,
) -> Decision[S]:
    """Declare a decision over several aggregates.

    `matches(command)` returns the matches of the events that it depends on, each made with
    `es.match`. `evolve(state, event)` folds those into its state. `decide(state, command)`
    returns events with their aggregates, `es.to(account, "a-1", event)`, or `es.refuse(reason)`.
    `personal` names fields of the state, with their subjects: reasons of refusals are sealed for
    them. Where events have personal fields it has to be given, as `[]` if the state has none.
    """
    check_name(name, "decision")
    for what, function in (("decide", decide), ("evolve", evolve), ("matches", matches)):
        check_callable(f"{what} of {name!r}", function)
    known = tuple(commands)
    check_kinds(known, CommandType, "command")
    sealed = personal_fields(f"the state of {name!r}", type(initial), personal)
    codec = codec_of(type(initial))
    return Decision(name, initial, decide, evolve, matches, known, sealed, codec)


def _texts(values: Iterable[str]) -> list[str]:
    if isinstance(values, str):
        raise InvalidDomain(
            f"{values!r} is one text, and a match takes a list", hint=f"Write [{values!r}]"
        )
    found = set(values)
    for text in found:
        if not is_text(text):
            raise InvalidDomain(f"{text!r} cannot be matched", hint="Give texts: ['seat:4']")
    return sorted(found)
