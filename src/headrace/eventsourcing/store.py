"""Stores: commands are handled in one commit each, and states are loaded.

One command is one commit: its events, its record, a snapshot if one is due, and the conditions
that nothing has come on which its decision depends, and that no command has its id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from headrace.clock import Clock, SystemClock, to_datetime
from headrace.closing import Closing
from headrace.errors import ConditionFailed, Conflict, Contended, InvalidDomain, Unsupported
from headrace.eventsourcing.answers import Answer, Handled, Refused, decided
from headrace.eventsourcing.boundary import Addressed, Decision
from headrace.eventsourcing.declare import Aggregate, Refusal, S
from headrace.eventsourcing.hidden import stored_matches
from headrace.eventsourcing.history import Change, changes, latest_commands
from headrace.eventsourcing.keys import KeyStore
from headrace.eventsourcing.loading import Loaded, Loader, evolved
from headrace.eventsourcing.request import Request, Snapshot, Writer
from headrace.eventsourcing.stored import (
    StoredCommand,
    StoredEvent,
    aggregate_tag,
    commands_in,
    events_in,
)
from headrace.eventsourcing.what_if import Decide, Difference, what_if
from headrace.log import Acks, Capability, Log, Match, folder_of_log

if TYPE_CHECKING:
    from headrace.eventsourcing.domain import Domain

_ATTEMPTS = 20
_REMEMBERED = 10_000


class Store(Closing):
    """Handles the commands of a domain and loads its states. Threads may share one."""

    def __init__(
        self,
        domain: Domain,
        log: Log,
        *,
        acks: Acks = "synced",
        attempts: int = _ATTEMPTS,
        remembered: int = _REMEMBERED,
        clock: Clock | None = None,
        keys: KeyStore | None = None,
        grouped: bool = False,
    ) -> None:
        if Capability.CONDITIONS not in log.capabilities:
            raise _undecidable(domain, log.url)
        self.domain = domain
        self.log = log
        self._attempts = attempts
        self.clock = clock or SystemClock()
        there = log.topic_ids(topic.name for topic in domain.topics)
        for topic in domain.topics:
            if topic.name not in there:
                log.ensure_topic(topic)
        if keys is not None and (folder := folder_of_log(log.url)) is not None:
            keys.check_apart(folder)
        self.acks: Acks = acks
        self._keys = keys
        self._loader = Loader(domain, log, remembered, keys)
        self._grouped = grouped and acks == "synced"
        self._writer = Writer(domain, log, "written" if self._grouped else acks, keys)

    def close(self) -> None:
        """End the store. The log stays open."""
        self._writer.close()

    @property
    def keys(self) -> KeyStore | None:
        """The key store that opens personal fields, if there is one."""
        return self._keys

    # Commands

    def handle(
        self,
        aggregate: Aggregate[S],
        aggregate_id: str,
        command: Any,
        *,
        id: str | None = None,
        expect: int | None = None,
        metadata: Mapping[str, str] | None = None,
        at: datetime | None = None,
    ) -> Answer:
        """Decide a command and commit its events.

        A command with an `id` has one effect however often it is sent, and the same answer. If
        other commands for the aggregate come first, it is decided again, a bounded number of
        times. With `expect` it is only decided on that version. `metadata` says who and why.
        """
        key = aggregate.key(aggregate_id)
        request = self._request(aggregate, command, key, id, metadata, at)
        return self._answer(request, lambda: self._handle(request, aggregate, expect), aggregate)

    def decide_across(
        self,
        decision: Decision[S],
        command: Any,
        *,
        id: str | None = None,
        metadata: Mapping[str, str] | None = None,
        at: datetime | None = None,
    ) -> Answer:
        """Decide a command on the events that its decision matches, and commit its events.

        They are committed unless an event has come that matches, whichever aggregate it belongs
        to: of two commands for the same seat, one wins.
        """
        request = self._request(decision, command, decision.name, id, metadata, at)
        return self._answer(request, lambda: self._across(request, decision), decision)

    # States

    def load(
        self,
        aggregate: Aggregate[S],
        aggregate_id: str,
        *,
        at: datetime | None = None,
        version: int | None = None,
        commit: int | None = None,
    ) -> Loaded[S]:
        """The state of an aggregate: now, or as of a time, after a version or after a commit.

        A time is that of the events, not of their commits.
        """
        if sum(bound is not None for bound in (at, version, commit)) > 1:
            raise InvalidDomain("A state is loaded at one point", hint="Give one of them")
        key = aggregate.key(aggregate_id)
        if at is not None:
            return self._loader.at_time(aggregate, key, at)
        if version is not None:
            return self._loader.at_version(aggregate, key, version)
        if commit is not None:
            return self._loader.at_commit(aggregate, key, commit)
        return self._loader.current(aggregate, key)

    def events(
        self, matches: Sequence[Match], *, after: int = 0, upto: int | None = None, last: int = 0
    ) -> Iterator[StoredEvent]:
        """The events that match, in the order of their commits.

        Only those of commits after `after` and up to `upto`; with `last`, only the last so many.
        """
        wanted = stored_matches(matches, self._keys)
        name = self.domain.events.name
        found = self.log.find(name, wanted, after=after, upto=upto, last=last)
        return events_in(self.domain, found, self._keys)

    def history(
        self, aggregate: Aggregate[S], aggregate_id: str, *, upto: int | None = None, last: int = 0
    ) -> Iterator[Change[S]]:
        """Every event of an aggregate, with the state before and after it.

        Only those of commits up to `upto`. With `last`, only the last so many and the others of
        the first one's commit: snapshots spare it from reading all that came before.
        """
        matches, after = [[[aggregate_tag(aggregate.key(aggregate_id))]]], 0
        state = aggregate.initial
        if last and (first := next(self.events(matches, upto=upto, last=last), None)):
            after = first.commit - 1
            state = self.load(aggregate, aggregate_id, commit=after).state
        return changes(aggregate, state, self.events(matches, after=after, upto=upto))

    def commands(
        self,
        aggregate: Aggregate[Any],
        aggregate_id: str,
        *,
        upto: int | None = None,
        last: int = 0,
    ) -> Iterator[StoredCommand]:
        """Every recorded command to an aggregate, with its outcome.

        Only those of commits up to `upto`; with `last`, only the last so many.
        """
        tag = aggregate_tag(aggregate.key(aggregate_id))
        found = self.log.find(self.domain.commands.name, [[[tag]]], upto=upto, last=last)
        return commands_in(self.domain, found, self._keys)

    def latest_commands(self, limit: int) -> list[StoredCommand]:
        """The newest recorded commands of the whole domain, newest first."""
        return latest_commands(self.domain, self.log, self._keys, limit)

    def what_if(
        self,
        decider: Aggregate[Any] | Decision[Any],
        decide: Decide,
        *,
        aggregate_id: str | None = None,
        after: int = 0,
    ) -> Iterator[Difference]:
        """The recorded commands that a changed `decide` would decide differently, in order.

        Each is decided on the state that it had. Nothing is written. `aggregate_id` limits it to
        one aggregate, `after` to the commands of later commits.
        """
        return what_if(self.domain, self.log, self._keys, decider, decide, aggregate_id, after)

    # Inside

    def _request(
        self,
        decider: Aggregate[Any] | Decision[Any],
        command: Any,
        key: str,
        id: str | None,
        metadata: Mapping[str, str] | None,
        at: datetime | None,
    ) -> Request:
        kind = self.domain.type_of_command(decider, command)
        if id is not None and not self.domain.record_commands:
            raise InvalidDomain(
                f"The domain {self.domain.name!r} does not record its commands, so none can have "
                "an id to be sent again with",
                hint="Leave out the id, or record_commands=False. A refused command would leave no "
                "trace, and an accepted one could not be told from another with its id",
            )
        moment = to_datetime(self.clock.now()) if at is None else at
        return Request(kind, command, key, id, metadata, moment)

    def _answer(
        self,
        request: Request,
        attempt: Callable[[], Answer],
        subject: Aggregate[Any] | Decision[Any],
    ) -> Answer:
        """The answer to a command, once what it depends on is on disk."""
        known = self._answered(request, subject) if request.given else None
        answer = self._decide(request, attempt, subject) if known is None else known
        if self._grouped:
            # Whoever gets the log's lock first syncs for all who wait for it.
            self.log.sync(self.log.head() if answer.commit is None else answer.commit)
        return answer

    def _decide(
        self,
        request: Request,
        attempt: Callable[[], Answer],
        subject: Aggregate[Any] | Decision[Any],
    ) -> Answer:
        """Try until no other commit comes between, or until the command turns out as repeated."""
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
        unseen |= isinstance(outcome, Refusal) and not self.domain.record_commands
        if unseen:  # no condition protects what was remembered
            loaded = self._loader.current(aggregate, key)
            outcome = decided(aggregate.name, aggregate.decide(loaded.state, request.command))
        if expect is not None and loaded.version != expect:
            raise Conflict(
                f"{key!r} has version {loaded.version}, and the command expects {expect}",
                hint="Load it again, and decide whether the command still makes sense",
                version=loaded.version,
            )
        condition = self.log.unless(
            self.domain.events.name, [[[aggregate_tag(key)]]], after=loaded.commit
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
        name, head = self.domain.events.name, self.log.head()
        state = decision.initial
        for stored in events_in(self.domain, self.log.find(name, matches, upto=head), self._keys):
            state = evolved(decision, state, stored.event)
        outcome = decided(decision.name, decision.decide(state, request.command))
        conditions = [self.log.unless(name, matches, after=head)]
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
                    f"decide of {decision.name!r} returned {event!r} without its aggregate",
                    hint="Return es.to(aggregate, id, event)",
                )
            key = event.aggregate.key(event.id)
            if key not in new:
                reached[key], commit = self._loader.version(key)
                conditions.append(self.log.unless(name, [[[aggregate_tag(key)]]], after=commit))
            new.setdefault(key, []).append(event)
            addressed.append((key, reached[key] + len(new[key]), event.event))
        snapshots = [one for key in new for one in self._snapshot(key, reached[key], new[key])]
        commit = self._writer.commit(request, addressed, conditions, snapshots=snapshots)
        return Handled(request.id, commit, tuple(e for *_, e in addressed), 0, state)

    def _snapshot(self, key: str, before: int, events: Sequence[Addressed]) -> Iterator[Snapshot]:
        """The snapshot of an aggregate after events of a decision, if one is due."""
        aggregate = self.domain.aggregate(events[0].aggregate.name)
        after = before + len(events)
        if aggregate.snapshot_due(before, after):
            state = self._loader.at_version(aggregate, key, before).state
            for one in events:
                state = evolved(aggregate, state, one.event)
            yield Snapshot(aggregate, key, after, state)

    def _answered(self, request: Request, subject: Aggregate[Any] | Decision[Any]) -> Answer | None:
        """The answer to a command that was handled before; None if it was not."""
        found = self.log.find(self.domain.commands.name, request.tag)
        before = next(commands_in(self.domain, found, self._keys), None)
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


def _undecidable(domain: Domain, url: str) -> Unsupported:
    """The error for a log on which commands cannot be decided, with what can be done there."""
    whose = "Kafka has" if url.startswith("kafka:") else "it has"
    return Unsupported(
        f"The domain {domain.name!r} cannot be opened on {url}: {whose} no commit on a condition, "
        "so two commands could both win. Impossible there are expected versions, rules over "
        "several aggregates, commands that have one effect when they are sent twice, and process "
        "managers",
        hint="Keep the domain on an embedded log (file:./data), which many processes can use. "
        "Possible on Kafka: copies of its events, sent with a consumer of "
        f"{domain.events.name!r} and told apart by their ids; and a service of your own that alone "
        "decides the commands of a partition, fenced by log.producer(id=...). See "
        "docs/decisions/0063-commands-are-not-decided-on-kafka.md",
        capability=Capability.CONDITIONS.name,
    )
