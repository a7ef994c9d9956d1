"""Declarations of processes: the events that one reads, and its functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Generic

from headrace.errors import InvalidDomain
from headrace.eventsourcing.codec import Codec, Data, codec_of
from headrace.eventsourcing.declare import (
    EventType,
    S,
    check_callable,
    check_kinds,
    check_name,
    check_personal,
    check_version,
)
from headrace.eventsourcing.personal import Personal, PersonalFields, personal_fields
from headrace.eventsourcing.processes.runner import Runner
from headrace.eventsourcing.store import Store
from headrace.eventsourcing.stored import StoredEvent
from headrace.log import EARLIEST, LATEST, Commit, Position

_STARTS = (EARLIEST, LATEST)


@dataclass(frozen=True)
class Process(Generic[S]):
    """A process manager. Make it with `es.process`."""

    name: str
    initial: S
    key: Callable[[StoredEvent], str | None]
    react: Callable[[S, Any, str], Any]
    evolve: Callable[[S, Any], S]
    events: tuple[EventType, ...]
    state_version: int
    upgrade: Callable[[Data, int], Data | None] | None
    personal: Personal
    codec: Codec[S] | None = field(repr=False, compare=False)

    def runner(self, store: Store, *, start: Position = EARLIEST) -> Runner:
        """A runner of the process on a domain's store, which goes step by step.

        `start` counts for a process that has never run: from the first event, from `LATEST`, or
        after a `Commit`.
        """
        if not isinstance(start, Commit) and start not in _STARTS:
            raise InvalidDomain(
                f"The process {self.name!r} cannot start at {start!r}",
                hint="Use EARLIEST, LATEST or Commit(number)",
            )
        return Runner(self, store, start)

    def run(
        self,
        store: Store,
        *,
        until_caught_up: bool = False,
        start: Position = EARLIEST,
        stop: Callable[[], bool] = lambda: False,
    ) -> int:
        """React to events and send commands; return how many commands were sent.

        It goes on until `stop` returns True, or with `until_caught_up` until there is nothing left
        to react to. Several may run the same process: what one of them has committed, the others
        take over.
        """
        runner = self.runner(store, start=start)
        return runner.catch_up(stop) if until_caught_up else runner.go_on(stop)


def process(
    name: str,
    *,
    events: Iterable[EventType],
    key: Callable[[StoredEvent], str | None],
    react: Callable[[S, Any, str], Any],
    initial: S = None,  # type: ignore[assignment]
    evolve: Callable[[S, Any], S] | None = None,
    state_version: int = 1,
    upgrade: Callable[[Data, int], Data | None] | None = None,
    personal: PersonalFields | None = None,
) -> Process[S]:
    """Declare a process manager: from events to new commands.

    `key(stored)` returns the id of the instance that an event belongs to, or None for none.
    `evolve(state, event)` returns the instance's next state. `react(state, event, id)` gets that
    state and returns `es.send(...)`, `es.timeout(...)`, `es.cancel(...)`, several, or `()`. All
    are pure. Besides events of the given types, they get `es.CommandRefused` and `es.TimedOut`.

    Without `initial` and `evolve` the process has no state. An instance that is in its initial
    state and waits for no time-out is not stored. `state_version`, `upgrade` and `personal` are
    as those of an aggregate; here a state of another version has to be upgraded.
    """
    check_name(name, "process")
    check_callable(f"key of {name!r}", key)
    check_callable(f"react of {name!r}", react)
    check_version(name, state_version)
    known = tuple(events)
    check_kinds(known, EventType, "event")
    if not known:
        raise InvalidDomain(
            f"The process {name!r} reads no events", hint="events=[es.event(name, Class), ...]"
        )
    if (initial is None) != (evolve is None):
        raise InvalidDomain(
            f"The process {name!r} has {'evolve' if initial is None else 'initial'} alone",
            hint="A process with a state needs initial= and evolve=",
        )
    if evolve is None or initial is None:
        return Process(
            name, initial, key, react, _unchanged, known, state_version, None, Personal(), None
        )
    check_callable(f"evolve of {name!r}", evolve)
    codec: Codec[S] = codec_of(type(initial))
    codec.data(initial)
    sealed = personal_fields(f"the state of {name!r}", type(initial), personal)
    check_personal(name, type(initial), sealed, known, stored=True)
    return Process(name, initial, key, react, evolve, known, state_version, upgrade, sealed, codec)


def _unchanged(state: S, event: Any) -> S:
    return state
