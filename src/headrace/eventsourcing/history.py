"""The audit trail: each event of an aggregate with its states, and the commands of a domain."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic

from headrace.eventsourcing.declare import Aggregate, S
from headrace.eventsourcing.keys import KeyStore
from headrace.eventsourcing.loading import evolved
from headrace.eventsourcing.stored import StoredCommand, StoredEvent, commands_in
from headrace.log import Batch, Commit, Log
from headrace.log.sample import newest

if TYPE_CHECKING:
    from headrace.eventsourcing.domain import Domain


@dataclass(frozen=True)
class Change(Generic[S]):
    """An event, with who and why in its metadata, and the state before and after it."""

    event: StoredEvent
    before: S
    after: S


def changes(
    aggregate: Aggregate[S], state: S, events: Iterable[StoredEvent]
) -> Iterator[Change[S]]:
    """The changes that events of an aggregate have made, from the state before the first."""
    for stored in events:
        after = evolved(aggregate, state, stored.event)
        yield Change(stored, state, after)
        state = after


def batches_of(log: Log, topic: str, tag: str | None = None, *, upto: int) -> Iterator[Batch]:
    """The rows of a topic, of one tag if it is given, in the order of their commits."""
    if tag is not None:
        return log.find(topic, [[[tag]]], upto=upto)
    partitions = range(log.topic(topic).topic.partitions)
    each = (log.read(topic, stop=Commit(upto), partitions=[one]) for one in partitions)
    return heapq.merge(*each, key=lambda batch: batch.commit or 0)


def latest_commands(
    domain: Domain, log: Log, keys: KeyStore | None, limit: int
) -> list[StoredCommand]:
    """The newest recorded commands of a domain, newest first."""
    batches = newest(log, domain.commands.name, limit).batches
    ordered = sorted(batches, key=lambda batch: batch.commit or 0)
    return list(commands_in(domain, ordered, keys))[::-1][:limit]
