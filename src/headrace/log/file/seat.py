"""One consumer's seat in its group: kept by heartbeats, lost by silence."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta

from headrace.clock import SECOND, Clock, micros
from headrace.errors import InvalidSetting, LogError, MemberFenced, MisusedHandle
from headrace.log.declared import TopicRow
from headrace.log.file.coordinator import Coordinator, Membership, Share
from headrace.log.group_offsets import GroupOffsets, Place


@dataclass(frozen=True)
class Terms:
    """On what terms a consumer is in a group."""

    group: str
    assignor: str
    instance: str | None
    session: timedelta
    max_poll_interval: timedelta
    heartbeats: bool
    """Whether a thread beats while the caller works; without, each poll is a heartbeat."""


class Seat:
    """Membership in a group, for as long as the consumer polls."""

    def __init__(
        self, coordinator: Coordinator, clock: Clock, terms: Terms, topics: Sequence[TopicRow]
    ) -> None:
        if terms.session <= timedelta(0):
            raise InvalidSetting(
                f"A session of {terms.session} is over before it begins",
                hint="Choose some seconds",
            )
        self._coordinator = coordinator
        self._clock = clock
        self._terms = terms
        self._topics = topics
        self._session = micros(terms.session)
        self._synced_at = clock.monotonic()
        self._polled_at = clock.monotonic()
        self._membership = self._join()
        self.generation = 0
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def polled(self) -> None:
        """Note that the caller is still there."""
        self._polled_at = self._clock.monotonic()

    def keep(self) -> Share | None:
        """Beat if it is time to, and hear of a rebalance. Most of the time this only reads."""
        due = self._clock.monotonic() - self._synced_at >= self._session // 3
        if not due and not self._coordinator.has_news(self._membership, self.generation):
            return None
        return self.sync()

    def sync(self) -> Share:
        """Take what is free for this member, and hear what it has to let go of."""
        share = self._coordinator.sync(self._membership)
        self._synced_at = self._clock.monotonic()
        self.generation = share.generation
        if self._terms.heartbeats and self._thread is None:
            self._thread = threading.Thread(
                target=self._beat, name="headrace-heartbeat", daemon=True
            )
            self._thread.start()
        return share

    def release(self, places: Collection[Place]) -> None:
        """Let go of partitions that are meant for others."""
        self._coordinator.release(self._membership, places)

    def rejoin(self) -> None:
        """Come back as a new member after the group has gone on without this one.

        A static member does not come back if its name is in use by its successor.
        """
        instance = self._terms.instance
        if instance is not None and self._coordinator.has_successor(self._membership, instance):
            raise MemberFenced(
                f"Another consumer has taken the instance name {instance!r}",
                hint="Each running consumer needs an instance name of its own",
            )
        self._coordinator.leave(self._membership, static=False)
        self._membership = self._join()

    def committed(self, place: Place) -> int | None:
        """The offset at which the group goes on in a partition."""
        return self._coordinator.committed(self._membership.group, *place)

    def offsets(self, offsets: dict[Place, int]) -> GroupOffsets:
        """Offsets that this member wants to commit."""
        return GroupOffsets(self._membership.group, self._membership.member, offsets)

    def commit(self, offsets: GroupOffsets, *, synced: bool) -> None:
        """Move the group's offsets, if this member still owns the partitions."""
        self._coordinator.commit(offsets, synced=synced)

    def stop(self) -> None:
        """Stop beating."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()

    def leave(self) -> None:
        """Leave the group; a static member's place is kept until its session runs out."""
        self._coordinator.leave(self._membership, static=self._terms.instance is not None)

    def _join(self) -> Membership:
        terms = self._terms
        return self._coordinator.join(
            terms.group, self._topics, terms.assignor, terms.instance, self._session
        )

    def _beat(self) -> None:
        """Stay in the group while the caller works on what it polled, within limits."""
        limit = micros(self._terms.max_poll_interval)
        while not self._closed.wait(self._session / 3 / SECOND):
            if self._clock.monotonic() - self._polled_at > limit:
                continue
            try:
                self._coordinator.heartbeat(self._membership)
            except MisusedHandle:
                return  # the log has been closed, and nobody can poll any more
            except LogError:
                continue  # the next poll will meet the same trouble, and tell
