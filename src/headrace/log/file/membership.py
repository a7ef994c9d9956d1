"""A consumer's membership in its group: kept by heartbeats, lost without them."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta

from headrace.clock import SECOND, Clock, micros
from headrace.errors import InvalidSetting, LogError, MemberFenced, MisusedHandle
from headrace.log.declared import TopicRow
from headrace.log.file.coordinator import Coordinator, MemberId, Share
from headrace.log.positions import GroupOffsets, Place


@dataclass(frozen=True)
class MemberSettings:
    """The group settings of a consumer."""

    group: str
    assignor: str
    instance: str | None
    session: timedelta
    max_poll_interval: timedelta
    heartbeats: bool
    """True if a thread sends heartbeats while the caller works; else each poll is one."""


class Membership:
    """Membership in a group, for as long as the consumer polls."""

    def __init__(
        self,
        coordinator: Coordinator,
        clock: Clock,
        settings: MemberSettings,
        topics: Sequence[TopicRow],
    ) -> None:
        if settings.session <= timedelta(0):
            raise InvalidSetting(
                f"session cannot be {settings.session}: it must be positive",
                hint="Choose some seconds",
            )
        self._coordinator = coordinator
        self._clock = clock
        self._settings = settings
        self._topics = topics
        self._session = micros(settings.session)
        self._synced_at = clock.monotonic()
        self._polled_at = clock.monotonic()
        self._member = self._join()
        self.generation = 0
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def group(self) -> int:
        """The id of the group."""
        return self._member.group

    def polled(self) -> None:
        """Note that the caller has polled."""
        self._polled_at = self._clock.monotonic()

    def keep(self) -> Share | None:
        """Send a heartbeat if one is due, and follow a rebalance. Usually this only reads."""
        due = self._clock.monotonic() - self._synced_at >= self._session // 3
        if not due and not self._coordinator.has_news(self._member, self.generation):
            return None
        return self.sync()

    def sync(self) -> Share:
        """Take this member's free partitions, and return those it owns and must release."""
        share = self._coordinator.sync(self._member)
        self._synced_at = self._clock.monotonic()
        self.generation = share.generation
        if self._settings.heartbeats and self._thread is None:
            self._thread = threading.Thread(
                target=self._beat, name="headrace-heartbeat", daemon=True
            )
            self._thread.start()
        return share

    def release(self, places: Collection[Place]) -> None:
        """Release partitions that are meant for other members."""
        self._coordinator.release(self._member, places)

    def rejoin(self) -> None:
        """Join again as a new member after the group has removed this one.

        A static member does not rejoin if another consumer uses its instance name.
        """
        instance = self._settings.instance
        if instance is not None and self._coordinator.has_successor(self._member, instance):
            raise MemberFenced(
                f"Another consumer has taken the instance name {instance!r}",
                hint="Each running consumer needs an instance name of its own",
            )
        self._coordinator.leave(self._member)
        self._member = self._join()

    def offsets(self, offsets: dict[Place, int]) -> GroupOffsets:
        """Offsets that this member wants to commit."""
        return GroupOffsets(self._member.group, self._member.id, offsets)

    def stop(self) -> None:
        """Stop the heartbeats."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()

    def leave(self) -> None:
        """Leave the group; a static member stays in it until its session expires."""
        if self._settings.instance is None:
            self._coordinator.leave(self._member)

    def _join(self) -> MemberId:
        settings = self._settings
        return self._coordinator.join(
            settings.group, self._topics, settings.assignor, settings.instance, self._session
        )

    def _beat(self) -> None:
        """Send heartbeats while the caller works, up to `max_poll_interval` after its poll."""
        limit = micros(self._settings.max_poll_interval)
        while not self._closed.wait(self._session / 3 / SECOND):
            if self._clock.monotonic() - self._polled_at > limit:
                continue
            try:
                self._coordinator.heartbeat(self._member)
            except MisusedHandle:
                return  # the log has been closed
            except LogError:
                continue  # the next poll will meet the same error and raise it
