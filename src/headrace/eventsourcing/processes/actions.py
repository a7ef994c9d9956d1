"""The actions of a process, and its inputs besides events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from headrace.errors import InvalidDomain
from headrace.eventsourcing.boundary import Decision
from headrace.eventsourcing.declare import Aggregate
from headrace.eventsourcing.scalars import is_text


@dataclass(frozen=True)
class Send:
    """A command to send. Make it with `es.send`."""

    to: Aggregate[Any] | Decision[Any]
    id: str
    command: Any


@dataclass(frozen=True)
class Timeout:
    """A time-out to set. Make it with `es.timeout`."""

    name: str
    after: timedelta | None
    at: datetime | None


@dataclass(frozen=True)
class Cancel:
    """A time-out to cancel. Make it with `es.cancel`."""

    name: str


Action = Send | Timeout | Cancel


@dataclass(frozen=True)
class TimedOut:
    """A time-out that is due: what a process gets, like an event."""

    name: str


@dataclass(frozen=True)
class CommandRefused:
    """A command of the process that was refused: what the process gets, like an event.

    `to` is the aggregate's key, as in `account/a-1`, or the name of the decision.
    """

    command: Any
    reason: str
    to: str


def send(to: Aggregate[Any], id: str, command: Any) -> Send:
    """Send a command to an aggregate."""
    if not isinstance(to, Aggregate):
        raise InvalidDomain(
            f"A command cannot be sent to {to!r}",
            hint="Use es.send(aggregate, id, command), or es.send_across(decision, command)",
        )
    to.key(id)
    return Send(to, id, command)


def send_across(to: Decision[Any], command: Any) -> Send:
    """Send a command to a decision over several aggregates."""
    if not isinstance(to, Decision):
        raise InvalidDomain(
            f"{to!r} is no decision", hint="Use es.send(aggregate, id, command) for an aggregate"
        )
    return Send(to, "", command)


def timeout(name: str, *, after: timedelta | None = None, at: datetime | None = None) -> Timeout:
    """Set a time-out, in event time. One of the same name is replaced.

    `after` counts from the time of the event that is handled. The process gets
    `es.TimedOut(name)` when the time of the domain's events has come that far.
    """
    if not is_text(name):
        raise InvalidDomain(f"{name!r} cannot be the name of a time-out", hint="Use text")
    if (after is None) == (at is None):
        raise InvalidDomain(
            f"The time-out {name!r} needs one time",
            hint="es.timeout(name, after=timedelta(days=1)), or at= with a moment",
        )
    if after is not None and after <= timedelta(0):
        raise InvalidDomain(
            f"The time-out {name!r} cannot be after {after}", hint="Give a positive timedelta"
        )
    if at is not None and at.tzinfo is None:
        raise InvalidDomain(
            f"The time {at} of the time-out {name!r} has no time zone",
            hint="Use datetime(..., tzinfo=UTC)",
        )
    return Timeout(name, after, at)


def cancel(name: str) -> Cancel:
    """Cancel a time-out. It need not be there."""
    return Cancel(name)


def actions_of(process: str, outcome: Any) -> tuple[Action, ...]:
    """The actions that `react` returned."""
    if isinstance(outcome, Action):
        return (outcome,)
    if isinstance(outcome, Iterable) and not isinstance(outcome, (str, bytes, dict)):
        found = tuple(outcome)
        if all(isinstance(one, Action) for one in found):
            return found
    raise InvalidDomain(
        f"react of {process!r} returned {outcome!r}",
        hint="Return es.send(...), es.timeout(...), es.cancel(...), a list of them, or () for none",
    )
