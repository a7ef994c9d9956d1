"""The followers of an application's stores: a thread for each, so that none waits for another."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Sequence
from dataclasses import replace

from headrace.clock import SECOND, Clock
from headrace.closing import Closing
from headrace.errors import AlreadyRunning, HeadraceError, Retryable, StoreError
from headrace.log import Log
from headrace.plan.crash_points import CrashPoint, nothing
from headrace.store.contract import Store, StorePosition
from headrace.store.following import NOTHING, Follower, Interrupted
from headrace.store.lock import only_one
from headrace.store.status import State, StoreStatus, lock_of, note, noted

_PAUSE = 0.1
"""Seconds between two looks at a changelog that has nothing new."""
_FIRST_RETRY, _LAST_RETRY = 0.5, 30.0
"""Seconds until a store that has failed is tried again; twice as long after each failure."""
_NOTE_EVERY = SECOND
_LATER = "headrace stores run MODULE:APP brings it up to date"
_NOT_ALONE = "It goes on here when the other one ends"
PATIENCE = 30 * SECOND
"""The time that a run until caught up waits for a store that is down."""

_logger = logging.getLogger(__name__)


class FollowerThread:
    """One store of one view, followed by a thread of its own."""

    def __init__(
        self,
        log: Log,
        app: str,
        view: str,
        store: Store,
        clock: Clock,
        *,
        crash_point: CrashPoint = nothing,
        rebuild: str = "",
    ) -> None:
        self._log = log
        self._clock = clock
        self._stop = threading.Event()
        self._follower = Follower(
            log, app, view, store, stopping=self._stop.is_set, crash_point=crash_point
        )
        if rebuild:
            self._follower.build_again(rebuild)
        self.status = StoreStatus(app, view, store.address)
        self._noted = 0
        self._noted_position: StorePosition | None = None
        self._can_note = True
        self._failures = 0
        self._thread = threading.Thread(
            target=self._run, name=f"headrace store {app}.{view} {store.address}", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def ask_to_stop(self) -> None:
        self._stop.set()

    def join(self) -> None:
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def caught_up(self) -> bool:
        """True if the store shows all that the changelog has now."""
        status, end = self.status, self._follower.end
        if end is None:
            return True
        return status.position is not None and status.position.offset >= end

    @property
    def lag(self) -> int | None:
        """Changes that are not applied; None if that is unknown."""
        end, reached = self._follower.end, self.status.position
        if end is None:
            return 0
        return None if reached is None else max(0, end - reached.offset)

    # Inside of the thread

    def _run(self) -> None:
        status = self.status
        refusal = f"Another process follows view {status.view!r} into {status.store}"
        try:
            while not self._stop.is_set():
                try:
                    with only_one(lock_of(self._log.home, status), refusal, _NOT_ALONE):
                        self._follow()
                except Interrupted:
                    pass
                except Exception as error:  # a store of the user's may raise anything
                    self._failed(error)
        finally:
            self._close_quietly()
            if self.status.state != "failing":
                self._tell("stopped", now=True)

    def _follow(self) -> None:
        """Follow until asked to stop, or until the store fails."""
        if self._follower.position is None:
            self._tell("building")
        while not self._stop.is_set():
            done = self._follower.advance()
            self._failures = 0
            self.status = replace(self.status, error="", hint="")
            if done is not NOTHING:
                self.status = replace(
                    self.status,
                    applied=self.status.applied + done.changes,
                    last_batch=self._clock.now(),
                    last_rows=done.changes,
                    built=done.built or self.status.built,
                )
            self._tell("following", now=self.status.state != "following")
            if done is NOTHING:
                self._tell("following", now=self._follower.position != self._noted_position)
                self._stop.wait(_PAUSE)

    def _failed(self, error: Exception) -> None:
        """Note a failure, let go of the store, and wait before the next attempt."""
        self._close_quietly()
        message, hint = f"{type(error).__name__}: {error}", ""
        if isinstance(error, HeadraceError):
            message, hint = error.message, error.hint
        elsewhere = isinstance(error, AlreadyRunning)
        self.status = replace(
            self.status,
            error=message,
            hint=hint,
            retryable=isinstance(error, Retryable) or elsewhere,
        )
        if elsewhere:  # the note is the other one's
            there = noted(self._log.home, self.status)
            place = there.position if there is not None else None
            self.status = replace(self.status, state="failing", position=place)
        else:
            self._tell("failing", now=True)
        self._stop.wait(min(_FIRST_RETRY * 2**self._failures, _LAST_RETRY))
        self._failures = min(self._failures + 1, 16)

    def _close_quietly(self) -> None:
        """Let go of a store that has failed, and so may fail at that, too."""
        with contextlib.suppress(Exception):
            self._follower.close()

    def _tell(self, state: State, *, now: bool = False) -> None:
        """Note the state in its file: at once, or about once a second."""
        position = self._follower.position
        self.status = replace(self.status, state=state, position=position)
        moment = self._clock.monotonic()
        if now or (moment - self._noted >= _NOTE_EVERY and position != self._noted_position):
            self._note(moment)

    def _note(self, moment: int) -> None:
        """Write the note. A full disk does not stop a store that is elsewhere."""
        status = self.status
        try:
            note(self._log.home, status)
        except OSError as error:
            if self._can_note:  # said once
                _logger.warning("The state of %s is not noted: %s", status.store, error)
            self._can_note = False
        else:
            self._can_note = True
            self._noted, self._noted_position = moment, status.position


class Followers(Closing):
    """All stores of an application's views."""

    def __init__(self, threads: Sequence[FollowerThread], clock: Clock) -> None:
        self._threads = threads
        self._clock = clock
        self._started = False
        self._since: dict[int, tuple[object, int]] = {}

    def start(self) -> None:
        """Begin to follow."""
        if not self._started:
            self._started = True
            for thread in self._threads:
                thread.start()

    def statuses(self) -> list[StoreStatus]:
        """The state of each store, with its lag."""
        return [replace(thread.status, lag=thread.lag) for thread in self._threads]

    def caught_up(self) -> bool:
        """True if every store shows what the changelogs have.

        A store that is down is given some time to come back. When all others have caught up, this
        raises what it failed with.
        """
        waiting = [thread for thread in self._threads if not thread.caught_up]
        failed = [thread for thread in waiting if self._given_up(thread)]
        if len(failed) == len(waiting):
            self.check(failed)
        return not waiting

    def check(self, threads: Sequence[FollowerThread] | None = None) -> None:
        """Raise what a store failed with, if it will not come back."""
        for thread in self._threads if threads is None else threads:
            if not self._given_up(thread):
                continue
            status = thread.status
            raise StoreError(
                f"The views are up to date, but the store {status.store} of view {status.view!r} "
                f"is not: {status.error}",
                hint="\n".join(filter(None, (status.hint, _LATER))),
            )

    def _given_up(self, thread: FollowerThread) -> bool:
        """True if a store fails, and will not come back within some time."""
        status, now = thread.status, self._clock.monotonic()
        place, since = self._since.get(id(thread), (status.position, now))
        if place != status.position or status.state != "failing":
            place, since = status.position, now
        self._since[id(thread)] = place, since
        patience = PATIENCE if status.retryable else 0
        return status.state == "failing" and now - since >= patience

    def stop(self) -> None:
        """Stop following. Stores stay as of their positions."""
        for thread in self._threads:
            thread.ask_to_stop()
        if self._started:
            for thread in self._threads:
                thread.join()

    def close(self) -> None:
        self.stop()
