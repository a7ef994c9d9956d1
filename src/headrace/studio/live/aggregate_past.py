"""The past of one aggregate: its state at a version, a commit or a time, and the changes before it.

Histories may be long. A page reads the events that it shows, and those since the last snapshot
before them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import headrace.eventsourcing as es
from headrace.clock import to_datetime
from headrace.errors import HeadraceError, InvalidPosition, UnknownPage, UserError
from headrace.eventsourcing.stored import aggregate_tag
from headrace.log import Commit, parse_position
from headrace.log.position import Time

ROWS = 20
FOLDED = 100_000
"""Events without a snapshot that a page folds into a state."""


@dataclass(frozen=True)
class Then:
    """An aggregate at a moment: `newest` is its version now, `version` the one that is shown.

    The changes and the commands are the last ones up to then, newest first. `state` is None if too
    many events have no snapshot.
    """

    aggregate: es.Aggregate[Any]
    id: str
    newest: int
    version: int
    commit: int
    state: Any
    changes: tuple[es.Change[Any] | es.StoredEvent, ...]
    commands: tuple[es.StoredCommand, ...]

    @property
    def events(self) -> tuple[es.StoredEvent, ...]:
        """The events of the changes."""
        return tuple(c.event if isinstance(c, es.Change) else c for c in self.changes)

    @property
    def older(self) -> int | None:
        """The version before those that are shown."""
        events = self.events
        return events[-1].version - 1 if events and events[-1].version > 1 else None


@dataclass(frozen=True)
class Past:
    """Reads the past of one aggregate from its store."""

    store: es.Store
    aggregate: es.Aggregate[Any]
    id: str

    def then(self, *, version: int | None = None, at: str = "", rows: int = ROWS) -> Then:
        """The aggregate after a version, or at a commit or a time; without either, now."""
        try:
            return self._then(version, at, rows)
        except HeadraceError:
            raise
        except Exception as error:
            raise UserError(
                f"A function of {self.aggregate.name!r} failed: {type(error).__name__}: {error}",
                hint="States are folded by its evolve, and older events go through its upcasters",
            ) from error

    def _then(self, version: int | None, at: str, rows: int) -> Then:
        newest, last = self._version(None)
        upto: int | None = None
        state: Any = None
        if at:
            moment = _moment(at)
            if isinstance(moment, datetime):
                self._check_short(newest)
                loaded = self.store.load(self.aggregate, self.id, at=moment)
                upto, version, state = loaded.commit, loaded.version, loaded.state
            else:
                upto = moment
                version = self._version(upto)[0]
        elif version is not None:
            version = min(version, newest)
            upto = self._commit_of(version, last)
        else:
            version = newest
        commands = self._commands(upto, rows)
        if not newest and not self._commands(None, 1):
            raise UnknownPage(
                f"There is no {self.aggregate.name} {self.id[:100]!r}",
                hint="It has no events, and no command to it was refused",
            )
        changes = self._changes(version, upto, rows)
        if state is None and self._is_short(newest):
            first = changes[0] if changes else None
            state = first.after if isinstance(first, es.Change) else self.aggregate.initial
        commit = last if upto is None else upto
        return Then(
            self.aggregate, self.id, newest, version, commit, state, changes, tuple(commands)
        )

    def _changes(
        self, version: int, upto: int | None, rows: int
    ) -> tuple[es.Change[Any] | es.StoredEvent, ...]:
        if not version:
            return ()
        if not self._is_short(version):
            events = self.store.events(self._mine, upto=upto, last=rows)
            return tuple(event for event in events if event.version <= version)[::-1]
        changes = self.store.history(self.aggregate, self.id, upto=upto, last=rows)
        return tuple(each for each in changes if each.event.version <= version)[::-1][:rows]

    def _commands(self, upto: int | None, rows: int) -> list[es.StoredCommand]:
        if not self.store.domain.record_commands:
            return []
        return list(self.store.commands(self.aggregate, self.id, upto=upto, last=rows))[::-1]

    def _version(self, upto: int | None) -> tuple[int, int]:
        """The version after a commit, and the commit of its event; zeros without events."""
        for event in self.store.events(self._mine, upto=upto, last=1):
            return event.version, event.commit
        return 0, 0

    def _commit_of(self, version: int, high: int) -> int:
        """The commit of the event of a version, which are in the same order."""
        low = 0
        while low < high:
            middle = (low + high) // 2
            if self._version(middle)[0] < version:
                low = middle + 1
            else:
                high = middle
        return low

    @property
    def _mine(self) -> list[Any]:
        return [es.match(tags=[aggregate_tag(self.aggregate.key(self.id))])]

    def _is_short(self, version: int) -> bool:
        return self.aggregate.snapshot_every is not None or version <= FOLDED

    def _check_short(self, version: int) -> None:
        # A time is that of events, so all of them are looked at, whatever the snapshots.
        if version > FOLDED:
            raise InvalidPosition(
                f"A state at a time reads all {version:,} events, and a page reads {FOLDED:,}",
                hint="Choose a version or a commit, or load it in a program: "
                "store.load(aggregate, id, at=...)",
            )


def _moment(text: str) -> int | datetime:
    """A commit or a time that was typed; a bare number is a commit."""
    bare = text.isascii() and text.isdigit()
    match parse_position(f"commit:{text}" if bare else text):
        case Commit(number):
            return number
        case Time(micros):
            return to_datetime(micros)
    raise InvalidPosition(
        f"{text[:50]!r} is no moment in the past", hint="Give a commit (42) or a time"
    )
