"""States of aggregates: the latest snapshot and the events after it, folded by `evolve`."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic

from headrace.errors import InvalidDomain, UnreadableEvent
from headrace.eventsourcing.boundary import Decision
from headrace.eventsourcing.codec import Data
from headrace.eventsourcing.declare import Aggregate, S
from headrace.eventsourcing.keys import KeyStore
from headrace.eventsourcing.stored import (
    FOLDED,
    aggregate_tag,
    event_place,
    micros_of,
    opened,
    snapshot_place,
)
from headrace.log import Batch, Log

if TYPE_CHECKING:
    from headrace.eventsourcing.domain import Domain
    from headrace.eventsourcing.processes.declare import Process


@dataclass(frozen=True)
class Loaded(Generic[S]):
    """The state of an aggregate after its events up to `version`, the last of them in `commit`.

    An aggregate without events has version 0.
    """

    state: S
    version: int
    commit: int
    era: int = field(default=0, repr=False, compare=False)
    """The number of subjects that were forgotten when it was read."""


class Loader:
    """Loads states, and remembers those of the aggregates that were used last.

    What it remembers may be behind the log. A commit that depends on it has the condition that no
    event has come since.
    """

    def __init__(self, domain: Domain, log: Log, remembered: int, keys: KeyStore | None) -> None:
        self._keys = keys
        self._domain = domain
        self._log = log
        self._remembered = remembered
        self._known: OrderedDict[str, Loaded[Any]] = OrderedDict()
        self._lock = threading.Lock()

    def known(self, aggregate: Aggregate[S], key: str) -> Loaded[S]:
        """The state as it was seen last, from the log if it was never seen."""
        found = self._recalled(key, self._era())
        return self.current(aggregate, key) if found is None else found

    def current(self, aggregate: Aggregate[S], key: str) -> Loaded[S]:
        """The state now."""
        era = self._era()
        found = self._recalled(key, era)
        if found is None:
            found = self._snapshot(aggregate, key, None)
        loaded = replace(self._after(aggregate, key, found, None), era=era)
        self.remember(key, loaded)
        return loaded

    def remember(self, key: str, loaded: Loaded[Any]) -> None:
        """Remember a state that is in the log, unless a newer one is known."""
        with self._lock:
            known = self._known.pop(key, None)
            newer = known is not None and (known.era, known.version) > (loaded.era, loaded.version)
            self._known[key] = known if newer and known is not None else loaded
            if len(self._known) > self._remembered:
                self._known.popitem(last=False)

    def at_commit(self, aggregate: Aggregate[S], key: str, commit: int) -> Loaded[S]:
        """The state after a commit."""
        return self._after(aggregate, key, self._snapshot(aggregate, key, commit), commit)

    def at_version(self, aggregate: Aggregate[S], key: str, version: int) -> Loaded[S]:
        """The state after the event of that version."""
        if type(version) is not int or version < 0:
            raise InvalidDomain(
                f"An aggregate cannot have the version {version!r}",
                hint="Versions count its events, from 0 for none",
            )
        base = self._snapshot(aggregate, key, None)
        if base.version > version:
            base = Loaded(aggregate.initial, 0, 0)
        found = self._after(aggregate, key, base, None, version=version)
        if found.version != version:
            raise InvalidDomain(
                f"{key!r} has no version {version}: it has {found.version:,} events",
                hint=f"Ask for a version from 0 to {found.version}",
            )
        return found

    def at_time(self, aggregate: Aggregate[S], key: str, at: datetime) -> Loaded[S]:
        """The state by the events whose time is not after a moment."""
        micros_of(at)
        return self._after(aggregate, key, Loaded(aggregate.initial, 0, 0), None, at=at)

    def version(self, key: str) -> tuple[int, int]:
        """The version of an aggregate's last event, and its commit; 0 without events."""
        wanted = [[[aggregate_tag(key)]]]
        for batch in self._log.find(self._domain.events.name, wanted, last=1, columns=["version"]):
            return batch.data.column(0)[0].as_py(), batch.commit or 0
        return 0, 0

    def _era(self) -> int:
        return 0 if self._keys is None else self._keys.forgets()

    def _recalled(self, key: str, era: int) -> Loaded[Any] | None:
        """The state that is remembered, unless somebody was forgotten since it was read."""
        with self._lock:
            found = self._known.get(key)
        return None if found is None or found.era != era else found

    def _snapshot(self, aggregate: Aggregate[S], key: str, upto: int | None) -> Loaded[S]:
        """The latest snapshot that this code can read, or the initial state."""
        start = Loaded(aggregate.initial, 0, 0)
        if aggregate.snapshot_every is None:
            return start
        topic = self._domain.snapshots.name
        for batch in self._log.find(topic, [[[key]]], upto=upto, last=1):
            ((row, found),) = opened(batch.data.to_pylist(), snapshot_place, self._keys)
            data = upgraded(aggregate, found, row["state_version"])
            if data is not None:
                return Loaded(aggregate.codec.read(data), row["version"], batch.commit or 0)
        return start

    def _after(
        self,
        aggregate: Aggregate[S],
        key: str,
        base: Loaded[S],
        upto: int | None,
        *,
        version: int | None = None,
        at: datetime | None = None,
    ) -> Loaded[S]:
        """The state after the events that came after another."""
        columns = FOLDED if at is None else (*FOLDED, "at")
        batches = self._log.find(
            self._domain.events.name, [[[aggregate_tag(key)]]],
            after=base.commit, upto=upto, columns=columns,
        )  # fmt: skip
        return self._folded(aggregate, key, base, batches, version, at)

    def _folded(
        self,
        aggregate: Aggregate[S],
        key: str,
        base: Loaded[S],
        batches: Iterable[Batch],
        version: int | None,
        at: datetime | None,
    ) -> Loaded[S]:
        state, reached, commit = base.state, base.version, base.commit
        for batch in batches:
            for row, data in opened(batch.data.to_pylist(), event_place, self._keys):
                if version is not None and row["version"] > version:
                    return Loaded(state, reached, commit)
                if at is not None and row["at"] > at:
                    continue
                if at is None and row["version"] != reached + 1:
                    raise _gap(key, reached, row["version"])
                event = self._domain.event_type(row["type"]).read(data, row["schema"])
                state = evolved(aggregate, state, event)
                reached, commit = row["version"], batch.commit or 0
        return Loaded(state, reached, commit)


def upgraded(of: Aggregate[Any] | Process[Any], data: Data, version: int) -> Data | None:
    """The data of a stored state in the current version; None if this code cannot read it."""
    if version == of.state_version:
        return data
    if of.upgrade is None or version > of.state_version:
        return None  # only newer code knows what a newer state means
    return of.upgrade(data, version)


def evolved(aggregate: Aggregate[S] | Decision[S], state: S, event: Any) -> S:
    """The state after an event."""
    after = aggregate.evolve(state, event)
    if type(after) is not type(aggregate.initial):
        raise InvalidDomain(
            f"evolve of {aggregate.name!r} returned {after!r} for a {type(event).__name__}",
            hint=f"It returns the next {type(aggregate.initial).__name__} for every event, the "
            "same one if nothing changes",
        )
    return after


def _gap(key: str, reached: int, found: int) -> UnreadableEvent:
    return UnreadableEvent(
        f"After event {reached} of {key!r} comes event {found}",
        hint="Retention has deleted events, or something else has written to the topic. Events "
        "are kept for good: restore them from a backup",
    )
