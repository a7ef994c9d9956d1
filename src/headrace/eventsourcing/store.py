"""Stores: commands are handled, each in one commit, and states are loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from headrace.clock import Clock, SystemClock, to_datetime
from headrace.closing import Closing
from headrace.errors import InvalidDomain, Unsupported
from headrace.eventsourcing.answers import Answer
from headrace.eventsourcing.boundary import Decision
from headrace.eventsourcing.declare import Aggregate, S
from headrace.eventsourcing.handling import Handler
from headrace.eventsourcing.hidden import stored_matches
from headrace.eventsourcing.history import Change, changes, latest_commands
from headrace.eventsourcing.keys import KeyStore
from headrace.eventsourcing.loading import Loaded, Loader
from headrace.eventsourcing.request import Request, Writer
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
        self._handler = Handler(domain, log, self._loader, self._writer, keys, attempts)

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
        return self._synced(self._handler.handle(request, aggregate, expect))

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
        return self._synced(self._handler.decide_across(request, decision))

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

    def _synced(self, answer: Answer) -> Answer:
        """The answer to a command, once what it depends on is on disk."""
        if self._grouped:
            # Whoever gets the log's lock first syncs for all who wait for it.
            self.log.sync(self.log.head() if answer.commit is None else answer.commit)
        return answer


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
