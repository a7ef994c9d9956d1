"""Answers to commands."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from headrace.errors import InvalidDomain
from headrace.eventsourcing.declare import Refusal


@dataclass(frozen=True)
class Handled:
    """A command was accepted: its events are in the log, in one commit.

    `version` and `state` are those of its aggregate after them, or the state that a decision was
    made on. `commit` is None if there was nothing to commit. `repeated` is True if the command was
    handled before.
    """

    id: str
    commit: int | None
    events: tuple[Any, ...]
    version: int
    state: Any
    repeated: bool = False


@dataclass(frozen=True)
class Refused:
    """A command was refused, with the reason. `version` and `state` are unchanged by it."""

    id: str
    commit: int | None
    reason: str
    version: int
    state: Any
    repeated: bool = False


Answer = Handled | Refused


def decided(name: str, outcome: Any) -> tuple[Any, ...] | Refusal:
    """What `decide` returned, as events."""
    if isinstance(outcome, Refusal):
        return outcome
    if outcome is None:
        raise InvalidDomain(
            f"decide of {name!r} returned None",
            hint="Return an event, a list of them, () for none, or es.refuse(reason)",
        )
    if isinstance(outcome, Iterable) and not isinstance(outcome, (str, bytes, dict)):
        return tuple(outcome)
    return (outcome,)
