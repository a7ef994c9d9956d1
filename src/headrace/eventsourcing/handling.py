"""Commands that are decided, and committed on the condition that nothing has come between.

One command is one commit: its events, its record, a snapshot if one is due, and the conditions
that nothing has come on which its decision depends, and that no command has its id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from headrace.errors import ConditionFailed, Conflict, Contended, InvalidDomain
from headrace.eventsourcing.answers import Answer, Handled, Refused, decided
from headrace.eventsourcing.boundary import Addressed, Decision
from headrace.eventsourcing.declare import Aggregate, Refusal, S
from headrace.eventsourcing.hidden import stored_matches
from headrace.eventsourcing.keys import KeyStore
from headrace.eventsourcing.loading import Loaded, Loader, evolved
from headrace.eventsourcing.request import Request, Snapshot, Writer
from headrace.eventsourcing.stored import aggregate_tag, commands_in, events_in
from headrace.log import Log

if TYPE_CHECKING:
    from headrace.eventsourcing.domain import Domain


class Handler:
    """Decides the commands of a domain, a bounded number of times each."""

    def __init__(
        self,
        domain: Domain,
        log: Log,
        loader: Loader,
        writer: Writer,
        keys: KeyStore | None,
        attempts: int,
    ) -> None:
        self._domain = domain
        self._log = log
        self._loader = loader
        self._writer = writer
        self._keys = keys
        self._attempts = attempts

    def handle(self, request: Request, aggregate: Aggregate[S], expect: int | None) -> Answer:
        """Decide a command to an aggregate; with `expect`, only on that version."""
        return self._answer(request, lambda: self._handle(request, aggregate, expect), aggregate)

    def decide_across(self, request: Request, decision: Decision[S]) -> Answer:
        """Decide a command on the events that its decision matches."""
        return self._answer(request, lambda: self._across(request, decision), decision)

    # Inside

    def _answer(
        self,
        request: Request,
        attempt: Callable[[], Answer],
        subject: Aggregate[Any] | Decision[Any],
    ) -> Answer:
        """Try until no other commit comes between, or until the command turns out as repeated."""
        if request.given and (known := self._answered(request, subject)) is not None:
            return known
        for _ in range(self._attempts):
            try:
                return attempt()
            except ConditionFailed as lost:
                last = lost
                if isinstance(subject, Aggregate):
                    self._loader.current(subject, request.key)
                if request.given and (known := self._answered(request, subject)) is not None:
                    return known
        raise Contended(
            f"The command {request.kind.name!r} to {request.key!r} lost to others {self._attempts} "
            "times",
            hint="Nothing of it is in the log. Try again",
            commit=last.details["commit"],
        ) from last

    def _handle(self, request: Request, aggregate: Aggregate[S], expect: int | None) -> Answer:
        key = request.key
        loaded = self._loader.known(aggregate, key)
        outcome = decided(aggregate.name, aggregate.decide(loaded.state, request.command))
        unseen = expect is not None and loaded.version != expect
        unseen |= isinstance(outcome, Refusal) and not self._domain.record_commands
        if unseen:  # no condition protects what was remembered
            loaded = self._loader.current(aggregate, key)
            outcome = decided(aggregate.name, aggregate.decide(loaded.state, request.command))
        if expect is not None and loaded.version != expect:
            raise Conflict(
                f"{key!r} has version {loaded.version}, and the command expects {expect}",
                hint="Load it again, and decide whether the command still makes sense",
                version=loaded.version,
            )
        condition = self._log.unless(
            self._domain.events.name, [[[aggregate_tag(key)]]], after=loaded.commit
        )
        if isinstance(outcome, Refusal):
            commit = self._writer.commit(
                request, (), [condition], reason=outcome.reason,
                subjects=aggregate.subjects(loaded.state, key),
            )  # fmt: skip
            return Refused(request.id, commit, outcome.reason, loaded.version, loaded.state)
        state, version = loaded.state, loaded.version
        addressed = []
        for event in outcome:
            version += 1
            state = evolved(aggregate, state, event)
            addressed.append((key, version, event))
        due = aggregate.snapshot_due(loaded.version, version)
        snapshots = [Snapshot(aggregate, key, version, state)] if due else []
        commit = self._writer.commit(request, addressed, [condition], snapshots=snapshots)
        if outcome and commit is not None:
            self._loader.remember(key, Loaded(state, version, commit, loaded.era))
        return Handled(request.id, commit, outcome, version, state)

    def _across(self, request: Request, decision: Decision[S]) -> Answer:
        matches = stored_matches(decision.matches(request.command), self._keys)
        name, head = self._domain.events.name, self._log.head()
        state = decision.initial
        for stored in events_in(self._domain, self._log.find(name, matches, upto=head), self._keys):
            state = evolved(decision, state, stored.event)
        outcome = decided(decision.name, decision.decide(state, request.command))
        conditions = [self._log.unless(name, matches, after=head)]
        if isinstance(outcome, Refusal):
            commit = self._writer.commit(
                request, (), conditions, reason=outcome.reason, subjects=decision.subjects(state)
            )
            return Refused(request.id, commit, outcome.reason, 0, state)
        reached: dict[str, int] = {}
        addressed = []
        new: dict[str, list[Addressed]] = {}
        for event in outcome:
            if not isinstance(event, Addressed):
                raise InvalidDomain(
                    f"decide of {decision.name!r} returned a {type(event).__name__} without "
                    "its aggregate",
                    hint="Return es.to(aggregate, id, event)",
                )
            key = event.aggregate.key(event.id)
            if key not in new:
                reached[key], commit = self._loader.version(key)
                conditions.append(self._log.unless(name, [[[aggregate_tag(key)]]], after=commit))
            new.setdefault(key, []).append(event)
            addressed.append((key, reached[key] + len(new[key]), event.event))
        snapshots = [one for key in new for one in self._snapshot(key, reached[key], new[key])]
        commit = self._writer.commit(request, addressed, conditions, snapshots=snapshots)
        return Handled(request.id, commit, tuple(e for *_, e in addressed), 0, state)

    def _snapshot(self, key: str, before: int, events: Sequence[Addressed]) -> Iterator[Snapshot]:
        """The snapshot of an aggregate after events of a decision, if one is due."""
        aggregate = self._domain.aggregate(events[0].aggregate.name)
        after = before + len(events)
        if aggregate.snapshot_due(before, after):
            state = self._loader.at_version(aggregate, key, before).state
            for one in events:
                state = evolved(aggregate, state, one.event)
            yield Snapshot(aggregate, key, after, state)

    def _answered(self, request: Request, subject: Aggregate[Any] | Decision[Any]) -> Answer | None:
        """The answer to a command that was handled before; None if it was not."""
        found = self._log.find(self._domain.commands.name, request.tag)
        before = next(commands_in(self._domain, found, self._keys), None)
        if before is None:
            return None
        request.check_same(before)
        commit, reason = before.commit, before.reason
        events = self._writer.events_of(commit, request.id)
        state, version = None, 0
        if isinstance(subject, Aggregate):
            loaded = self._loader.at_commit(subject, request.key, commit)
            state, version = loaded.state, loaded.version
        if reason is not None:
            return Refused(request.id, commit, reason, version, state, repeated=True)
        facts = tuple(stored.event for stored in events)
        return Handled(request.id, commit, facts, version, state, repeated=True)
